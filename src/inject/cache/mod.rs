//! The state of the cluster as the injector knows it: Routes, Secrets, shared reads and watch health.

pub(crate) mod index;
pub(crate) mod refusals;
pub mod secret_reads;
pub(crate) mod watch_health;
pub(crate) mod write_backoffs;
