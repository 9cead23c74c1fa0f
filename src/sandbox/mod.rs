//! A cluster in one process: an API server without etcd, to try the product on and to test it with.
//!
//! `store` is pure: objects, versions, history and the rules of Kubernetes about them; the time is
//! an argument. `api` speaks HTTP over it. What it does not do, it refuses: server-side apply,
//! RBAC, admission webhooks. `metadata.managedFields` are not kept.

pub mod api;
pub mod kinds;
pub mod names;
pub mod patch;
pub mod refusal;
mod rules;
pub mod schema;
pub mod select;
pub mod store;
