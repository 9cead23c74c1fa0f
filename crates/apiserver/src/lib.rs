//! A Kubernetes API server in the process: no etcd, no sockets, no waiting.
//!
//! `store` is pure: objects, versions, history and the rules of Kubernetes about them; the time is
//! an argument. `api` speaks HTTP over it, as a `tower::Service`. The caller chooses the CRDs.
//! Server-side apply, RBAC and admission webhooks are not supported and refused.
//! `metadata.managedFields` are not kept.

pub mod api;
pub mod api_error;
pub mod faults;
pub mod kinds;
mod name_rules;
pub mod patch;
mod rules;
pub mod schema;
pub mod select;
pub mod store;

#[cfg(test)]
mod testing;
