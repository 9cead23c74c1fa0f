//! TokenReview for the tokens of many clusters.

pub mod decide;
pub mod forward;
pub mod keys;
pub mod reviewer;
pub mod serve;
#[cfg(test)]
mod testing;
