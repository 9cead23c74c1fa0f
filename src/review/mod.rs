//! TokenReview for the tokens of many clusters.

pub mod decide;
