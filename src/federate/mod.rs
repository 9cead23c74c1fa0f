//! SPIRE federation from a SpireServer object (job `federate`).
//!
//! `validate`, `trust`, `last_valid`, `render`, `merge` and `conditions` decide, `apply` does, `run` says
//! when, and `preview` shows what would be done. `references`, `domain` and `effective` read what decides.
//! `peers` asks each trust domain that we federate with how it is; `memory` keeps what the next leader
//! must know of them. `server_metrics` sees whether SPIRE fetches the same (`spire_fetches` judges), and
//! `own_endpoint` asks ours. `bootstrap` and `exchange` bring the first bundle of a peer.

mod anchors;
pub mod apply;
pub mod bootstrap;
pub mod conditions;
mod contest;
mod domain;
pub mod effective;
pub mod exchange;
pub mod last_valid;
mod memory;
pub mod merge;
pub mod metrics;
mod noticed;
pub mod own_endpoint;
pub mod peers;
pub mod preview;
pub mod references;
pub mod render;
pub mod run;
pub mod server_metrics;
pub mod spire_fetches;
pub mod trust;
pub mod validate;
