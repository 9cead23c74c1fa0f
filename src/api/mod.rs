//! The Kubernetes objects that we read or write, reduced to the fields that we need.
//!
//! Nothing here is ever sent back whole: writes are merge patches, so what these types leave out
//! survives.

pub mod condition;
pub(crate) mod config_map;
pub(crate) mod federated_trust_domain;
pub mod join_token;
pub(crate) mod metadata;
pub(crate) mod resource;
pub mod route;
pub(crate) mod secret;
pub mod spiffe_federation;
pub mod spire_server;
