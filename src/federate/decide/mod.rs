//! Decisions about a SpireServer. Pure: no client, no clock, no lock, no log.

pub mod bootstrap;
pub(crate) mod bootstrap_bundles;
pub(crate) mod conditions;
mod digest;
mod endpoint_view;
pub mod exchange;
pub(crate) mod last_valid;
pub mod merge;
pub(crate) mod own_endpoint;
pub mod render;
pub(crate) mod spire_fetches;
pub(crate) mod trust;
pub mod validate;
