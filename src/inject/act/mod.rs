//! Reads and writes of the injector. Only `apply` changes a Route.

pub mod apply;
pub mod capability;
pub(crate) mod reconcile;
