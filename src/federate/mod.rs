//! SPIRE federation from a SpireServer object (job `federate`).
//!
//! `validate`, `render`, `merge` and `conditions` decide, `apply` does, `run` says when,
//! `references` and `domain` look at what is not ours, and `peers` asks each trust domain that we federate with how it is; `memory` keeps what the next leader
//! must know of them. `bootstrap` and `exchange` bring the first bundle of a peer.

mod anchors;
pub mod apply;
pub mod bootstrap;
pub mod conditions;
mod contest;
mod domain;
pub mod exchange;
pub mod last_valid;
mod memory;
pub mod merge;
pub mod metrics;
mod noticed;
pub mod peers;
pub mod references;
pub mod render;
pub mod run;
pub mod server_metrics;
pub mod spire_fetches;
pub mod trust;
pub mod validate;
