//! An agent: joins a trust domain, stays joined, and serves what it got to the workloads beside it by the
//! SPIFFE Workload API.

mod connections;
pub mod messages;
pub mod metrics;
pub mod refusal_log;
pub mod run;
pub mod service;
pub mod socket;
pub mod workload_client;
