//! Reads and writes of federation. Only `apply` changes the objects that a SpireServer asks for, and only
//! `bootstrap` the bundles of peers.

pub mod apply;
pub(crate) mod apps_domain;
pub mod bootstrap;
pub(crate) mod effective;
pub(crate) mod own_endpoint;
pub mod peers;
pub(crate) mod preview;
pub(crate) mod references;
pub(crate) mod server_metrics;
