//! The foundation of the integration tests and benches: real servers, and one way to each.
//!
//! API servers:
//! - [`Cluster`]: etcd and kube-apiserver with our CRDs and deploy/base, started once and shared; a
//!   [`Namespace`] per test.
//! - [`TestServer`]: that cluster, or the sandbox in its place, for cases that must end alike on both.
//! - [`parts`]: kube-controller-manager and cert-manager beside them.
//! - [`proxy`]: an API server that fails on cue.
//! - [`AuditLog`]: the writes of our account, as the API server saw them.
//! - [`flow_control`]: how the API server classes a request.
//!
//! Programs that run on them:
//! - [`Controller`]: the `trustplane` binary under our ServiceAccount, to start, kill and question.
//! - [`stage`]: a cluster with `trustplane federate` installed.
//! - [`spire`]: SPIRE servers, agents, the controller manager, and Pebble, an ACME server.
//! - [`kubelet`]: runs a Pod's containers as processes.
//! - [`review`]: several clusters whose tokens `trustplane review` is asked about.
//! - [`router`]: Routes in, HAProxy's configuration out, as OpenShift's router does it.
//!
//! Input of users:
//! - [`RouteFixture`], [`SecretFixture`], [`pair`], [`authority`]: Routes, Secrets and certificates.
//! - [`route_table`]: the table of docs/inject.md, read a second time.
//! - [`hostile`]: objects of a hostile tenant.
//! - [`der`]: certificates written tag by tag.
//! - [`manual`]: the walk of a page in docs, with what it prints.
//! - [`tools`]: kubectl, helm, promtool and go, run as an installer runs them.
//! - [`spiffe_verdict`]: go-spiffe, to fetch, to join, as a workload, and for a second opinion.
//!
//! For the tests themselves:
//! - [`eventually`]: waits for a condition.
//! - [`suite`]: the folder that a run leaves behind for tests/suite_audit.rs.
//! - [`arguments`], [`bench`]: the command lines of tests without cargo's harness, and of benches.
//! - [`process`], [`figures`], [`report`]: memory and processor time of a process, and how benches print figures.
//!
//! Nothing started here outlives the test process: see [`tied`].

mod access;
pub mod arguments;
pub mod audit;
pub mod authority;
pub mod bench;
mod cluster;
mod controller;
pub mod der;
mod eventually;
pub mod figures;
mod fixtures;
pub mod flow_control;
pub mod hostile;
pub mod http;
pub mod kubelet;
pub mod manual;
mod namespace;
pub mod pair;
pub mod parts;
mod paths;
pub mod process;
pub mod proxy;
pub mod report;
pub mod review;
pub mod route_table;
pub mod router;
mod sandbox;
mod servers;
pub mod spiffe_verdict;
pub mod spire;
pub mod stage;
pub mod suite;
mod test_server;
pub mod tied;
pub mod tools;

pub use access::{ACCOUNT, Access};
pub use audit::{AuditLog, Entry, Write, Writes};
pub use cluster::{Cluster, kubectl, token_of, until_served};
pub use controller::{Controller, Launch};
pub use eventually::{eventually, eventually_equals};
pub use fixtures::{RouteFixture, SecretFixture, cert_manager_metadata};
pub use namespace::{CertificateState, Namespace, SeenEvent, certificate_condition};
pub use pair::Pair;
pub use paths::{at, root, target_folder, temporary_folder, trustplane_binary};
pub use servers::{Servers, free_port, scratch_folder, toolbox};
pub use test_server::TestServer;
