//! A cluster in one process: an API server without etcd, to try the product on and to test it with.
//!
//! `store` is pure: objects, versions, history and the rules of Kubernetes about them; the time is
//! an argument. `api` speaks HTTP over it. What it does not do, it refuses: server-side apply,
//! RBAC, admission webhooks. `metadata.managedFields` are not kept.
//!
//! `serve` puts an API on a port, `edge` stands in for a router, `session` puts them together with
//! the injector, and `tour` walks a visitor through the job.

pub mod api;
pub mod authority;
pub mod edge;
pub mod kinds;
pub mod kubeconfig;
pub mod loopback;
pub mod names;
pub mod patch;
pub mod refusal;
mod rules;
pub mod schema;
pub mod select;
pub mod serve;
pub mod session;
pub mod shown;
pub mod spire;
pub mod store;
pub mod tour;
