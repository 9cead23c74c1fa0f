//! SPIRE federation from a SpireServer object (job `federate`).
//!
//! `validate`, `render`, `merge` and `conditions` decide, `apply` does, `run` says when,
//! `references` and `domain` look at what is not ours, and `peers` asks each trust domain that we federate with how it is.

pub mod apply;
pub mod bootstrap;
pub mod conditions;
mod domain;
pub mod merge;
pub mod metrics;
pub mod peers;
pub mod references;
pub mod render;
pub mod run;
pub mod validate;
