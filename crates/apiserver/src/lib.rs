//! A Kubernetes API server in the process, without etcd or sockets.
//!
//! `store` is pure: objects, versions, history and the rules of Kubernetes about them; the time is
//! an argument. `tokens` signs and reviews tokens of ServiceAccounts. `api` serves both over HTTP, as
//! a `tower::Service`. `faults` makes the way there unreliable. The caller chooses the CRDs.
//!
//! Not supported: server-side apply, RBAC, admission webhooks and `metadata.managedFields`.

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
pub mod tokens;

#[cfg(test)]
mod testing;
