//! Each test is a sentence about a pair, and names what the team that made it would hear.

mod authority;
mod chain;
mod go;
mod keys;
mod material;
mod texts;
mod warnings;

use super::{Pair, Problem, judge};

/// The problems of a pair as the user reads them.
fn refusals(certificate: &str, key: &str) -> Vec<String> {
    match judge(certificate.as_bytes(), key.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    }
}

#[track_caller]
fn accepted(certificate: &str, key: &str) -> Pair {
    judge(certificate.as_bytes(), key.as_bytes()).expect("a pair that the router would serve")
}
