//! What the injector remembers of the cluster: Routes and Secrets, reads that Routes share, and which
//! watches are current.

pub mod index;
pub mod secret_reads;
pub mod watch_health;
pub(crate) mod write_backoffs;
