//! Examples of the manual can be copied.

use serde_json::Value;

use super::with;
use crate::{on_both, only::Turn};

const MANUAL: &str = include_str!("../../../docs/federate-reference.md");

on_both! {
    every_example_of_the_manual_is_accepted,
}

fn examples() -> Vec<Value> {
    let blocks = MANUAL.split("```yaml\n").skip(1);
    let yaml = blocks.map(|rest| rest.split("```").next().expect("an end"));
    yaml.map(|text| serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{why}\n{text}")))
        .collect()
}

async fn every_example_of_the_manual_is_accepted(turn: Turn) {
    // Those for kustomize are no part of an object.
    let of_object = |example: &Value| example.get("patches").is_none();
    let mut examples = examples().into_iter().filter(of_object);
    let whole = examples.next().expect("a SpireServer");
    turn.would_create(&whole).await.expect("the first example is an object");
    let mut tried = 0;
    for example in examples {
        // The others are parts of its federation.
        for (field, value) in example.as_object().expect("fields") {
            let object = with(whole.clone(), &format!("/spec/federation/{field}"), value.clone());
            turn.would_create(&object).await.unwrap_or_else(|why| panic!("{object}\n{why}"));
            tried += 1;
        }
    }
    assert!(tried >= 3, "there are {tried} more examples");
}
