//! The state of the cluster as the injector knows it: Routes, Secrets, shared reads and watch health.

pub mod index;
pub mod refusals;
pub mod secret_reads;
pub mod watch_health;
pub(crate) mod write_backoffs;
