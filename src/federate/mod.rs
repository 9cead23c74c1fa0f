//! Job federate: SPIRE servers that trust each other, from a SpireServer object.
//!
//! `decide` is pure: `validate` judges the spec, `render` makes the objects, `merge` merges them into the
//! live ones, `conditions` reports. `act` reads and writes, and only its `apply` changes the rendered
//! objects. `cache` stores the bundles that the next leader needs. `run` has the watches and the loop.

pub mod act;
mod cache;
pub mod decide;
pub mod metrics;
pub mod run;
