//! TokenReview for the tokens of many clusters.

pub mod act;
mod answer;
pub mod audit;
pub mod callers;
pub mod clients;
pub mod config_file;
pub mod credentials;
pub mod decide;
pub mod forward;
pub mod generation;
pub mod inspect;
pub mod keys;
pub mod metrics;
pub mod pages;
#[cfg(test)]
mod random_tests;
pub mod register;
mod remembered;
pub mod reviewer;
pub mod run;
pub mod serve;
#[cfg(test)]
mod testing;
