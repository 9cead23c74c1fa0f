//! Decisions about a SpireServer. Pure: no client, no clock, no lock, no log.

pub mod bootstrap;
pub mod bootstrap_bundles;
pub mod conditions;
mod digest;
mod endpoint_view;
pub mod exchange;
pub mod last_valid;
pub mod merge;
pub mod own_endpoint;
pub mod render;
pub mod spire_fetches;
pub mod trust;
pub mod validate;
