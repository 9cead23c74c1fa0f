//! Reads and writes of federation. Only `apply` changes the objects that a SpireServer asks for, and only
//! `bootstrap` the bundles of peers.

pub mod apply;
pub mod apps_domain;
pub mod bootstrap;
pub mod effective;
pub mod own_endpoint;
pub mod peers;
pub mod preview;
pub mod references;
pub mod server_metrics;
