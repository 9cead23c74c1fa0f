//! No key for users who may not read it: deploy/policy on a real API server, asked by ordinary users with
//! tokens of their own, while the controller runs.
//!
//! - [`matrix`]: every combination of rights with everything one can do to the annotation;
//! - [`bypasses`], [`owners`], [`orphans`]: attempts to get a key in spite of the policy;
//! - [`free`]: changes that the policy leaves free, those of the injector above all;
//! - [`readers`]: users who read a key without the right to read Routes;
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
