//! What the tests of this binary stand on: a real API server, our own account on it, and sentences
//! to say what is there and what must become of it.
//!
//! - [`Cluster`]: etcd and kube-apiserver, started once and shared; a [`Namespace`] per test.
//! - [`Ground`]: that cluster, or the sandbox in its place, for cases that must end alike on both.
//! - [`Controller`]: the `trustplane` binary under our ServiceAccount, to start, kill and question.
//! - [`AuditLog`]: which writes that account made, as the API server saw them.
//! - [`RouteFixture`], [`SecretFixture`], [`pair`]: what users put into the cluster.
//! - [`hostile`]: what a hostile tenant puts there.
//! - [`flow_control`]: how the API server classes a request.
//! - [`proxy`]: an API server that fails on cue.
//! - [`suite`]: what a run leaves behind for the checks that look at it as a whole.
//!
//! Nothing started here outlives the test process: see [`tied`].

// The tests are written in several modules, and none of them uses everything.
#![allow(dead_code, unused_imports)]

mod access;
mod audit;
mod cluster;
mod controller;
mod eventually;
mod fixtures;
pub mod flow_control;
mod ground;
pub mod hostile;
pub mod http;
mod namespace;
pub mod pair;
pub mod proxy;
mod sandbox;
mod servers;
pub mod suite;
pub mod tied;

pub use access::{ACCOUNT, Access};
pub use audit::{AuditLog, Entry, Write, Writes};
pub use cluster::{Cluster, kubectl, token_of, until_served};
pub use controller::{Controller, Launch};
pub use eventually::{eventually, eventually_equals};
pub use fixtures::{RouteFixture, SecretFixture};
pub use ground::Ground;
pub use namespace::{CertificateState, Namespace, SeenEvent, certificate_condition};
pub use pair::Pair;
pub use servers::{Servers, free_port, scratch_folder, toolbox};
