//! TokenReview for the tokens of many clusters.

pub mod audit;
pub mod callers;
pub mod decide;
pub mod forward;
pub mod keys;
pub mod metrics;
#[cfg(test)]
mod random_tests;
mod remembered;
pub mod reviewer;
pub mod serve;
#[cfg(test)]
mod testing;
