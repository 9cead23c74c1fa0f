//! Job federate: SPIRE servers that trust each other, from a SpireServer object.
//!
//! `decide` is pure: `validate` judges the spec, `render` says which objects it asks for, `merge` lays them
//! over those in the cluster, `conditions` reports. `act` reads and writes, and `apply` alone changes the
//! rendered objects. `cache` keeps the bundles that the next leader needs. `run` connects watches and work.

pub mod act;
mod cache;
pub mod decide;
pub mod metrics;
pub mod run;
