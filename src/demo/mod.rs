//! trustplane on one machine without a cluster: `trustplane sandbox` and `trustplane demo`.
//!
//! `api_server` is the cluster, `serve` puts it on a port, `edge` takes the place of a router,
//! `spire` that of SPIRE servers and agents, `session` runs them together with the injector, and
//! `tour` walks a visitor through a job.

pub mod api_server;
pub mod authority;
pub mod certificate_summary;
pub mod edge;
pub mod kubeconfig;
pub mod loopback;
pub mod private_folder;
pub mod serve;
pub mod session;
pub mod spire;
pub mod tour;
