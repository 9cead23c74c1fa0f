//! Resource requests and limits of the server's containers.
//!
//! The API server computes with every digit of an exponent: one of ten digits keeps it busy for minutes and
//! fills its memory, each time that we write the StatefulSet.

use super::{Problem, labels, pattern::pattern};
use crate::api::spire_server::SpireServerSpec;

pattern!(AMOUNT, r"^[0-9]+(\.[0-9]*)?(([KMGTPE]i)|[numkMGTPE]|([eE][-+]?[0-9]{1,2}))?$");
pub const AMOUNT_SAYS: &str = "write an amount such as 500m, \"1\" or 512Mi";
/// In characters.
const LONGEST: usize = 32;

pub fn problems(spec: &SpireServerSpec) -> Vec<Problem> {
    let resources = spec.resources.iter();
    let amounts = resources.flat_map(|it| [("limits", &it.limits), ("requests", &it.requests)]);
    let amounts = amounts.flat_map(|(map, amounts)| {
        amounts.iter().flatten().map(move |(name, amount)| (map, name, &amount.0))
    });
    let wrong = amounts.filter(|(.., amount)| amount.len() > LONGEST || !AMOUNT.accepts(amount));
    wrong
        .map(|(map, name, _)| labels::problem(&format!("resources.{map}"), name, AMOUNT_SAYS))
        .collect()
}
