//! Job `authority`: the trust domain's own CA and bundle, and the bundles of other trust domains.
//!
//! `decide/` is pure: when a CA changes its phase, when a federation is synced, what becomes of an answer.
//! `act/` reads and writes, `run.rs` starts it all.

pub mod act;
pub mod agent;
pub mod decide;
mod grpc;
pub mod join;
pub mod metrics;
pub mod run;
