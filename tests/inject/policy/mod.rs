//! No key for who may not read it: deploy/policy on a real API server, asked by ordinary users with
//! tokens of their own, while the controller runs.
//!
//! - [`matrix`]: every combination of rights with everything one can do to the annotation;
//! - [`bypasses`], [`owners`], [`orphans`]: ways to get a key all the same;
//! - [`free`]: what the policy asks of nobody, the injector least of all;
//! - [`readers`]: who reads a key without the right to read Routes;
//! - [`note`]: what forging `trustplane.dev/injected` can do;
//! - [`namespaced`]: the controller without any right on the cluster as a whole;
//! - [`manual`]: the commands of docs/security.md.

mod guarded;
mod users;

mod bypasses;
mod free;
mod manual;
mod matrix;
mod namespaced;
mod note;
mod orphans;
mod owners;
mod readers;
