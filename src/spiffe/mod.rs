//! SPIFFE: IDs, bundles, and whether an SVID proves an ID. Pure: no client, no clock (the time is
//! an argument), no log; knows nothing of Kubernetes. Total: every input has an answer, none
//! panics.

pub mod bundle;
mod certificate;
pub mod chain;
pub mod id;
pub mod jwt;
pub mod key;
pub mod pattern;
pub mod svid;
#[cfg(test)]
pub(crate) mod testing;

pub use certificate::{Flaw, Summary};
