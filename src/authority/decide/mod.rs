//! Decisions of the authority. Pure: no client, no clock, no log.

pub mod agent;
pub mod audit;
pub mod ca;
pub mod challenge;
pub mod eligibility;
pub mod endpoint;
pub mod import;
pub mod join;
pub mod join_audit;
pub mod problem;
pub mod request;
pub mod summary;
pub mod sync;
#[cfg(test)]
pub(crate) mod testing;
mod time;
