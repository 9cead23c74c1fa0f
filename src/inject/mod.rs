//! Job inject: the certificate of a TLS Secret into the Routes that ask for it.
//!
//! `decide` is pure: `facts` reads a Route, `plan` decides, `messages` words it. `act` uses it and
//! `cache`: `reconcile` brings one Route into its state, and only `apply` changes Routes. `cache` keeps
//! what the watches and reads brought. `run` connects watches, queue and workers; `inventory` reads
//! every Route once, for commands.

pub mod act;
pub mod cache;
pub mod decide;
#[cfg(test)]
mod fixtures;
pub(crate) mod inventory;
pub(crate) mod metrics;
pub mod run;
