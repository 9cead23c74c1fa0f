//! Promise: every rule of SPIFFE that docs/spiffe.md lists has a test, and every test that it names exists.

use std::collections::{BTreeMap, BTreeSet};

use super::source::read_all;

/// Those about the Workload API have a W in front.
fn expected() -> BTreeSet<String> {
    let workload_api = (1..=11).map(|number| format!("W{number}"));
    (1..=49).map(|number| number.to_string()).chain(workload_api).collect()
}

/// The tests of each rule in a table of the page.
fn mapped(page: &str) -> BTreeMap<String, Vec<String>> {
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let (rule, tests) = (*cells.get(1)?, cells.get(3)?);
        rule.trim_start_matches('W').parse::<u32>().ok()?;
        let names = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((rule.to_owned(), names))
    };
    page.lines().filter_map(row).collect()
}

/// What is wrong with a page, given the tests that exist.
fn faults(page: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mapped = mapped(page);
    let mut faults = Vec::new();
    for rule in expected() {
        if mapped.get(&rule).is_none_or(Vec::is_empty) {
            faults.push(format!("rule {rule} has no test"));
        }
    }
    for (rule, names) in &mapped {
        let missing = names.iter().filter(|name| !exists(name));
        faults.extend(missing.map(|name| format!("rule {rule}: there is no test {name}")));
    }
    faults
}

#[test]
fn every_rule_of_spiffe_has_a_test_that_exists() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/spiffe.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sources = read_all(&["src", "tests"]);
    let exists = |name: &str| {
        let definition = format!("fn {name}(");
        sources.iter().any(|source| source.code.contains(&definition))
    };
    let faults = faults(&page, exists);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_rule_without_a_test_and_a_test_that_does_not_exist_are_found() {
    let rows: String = expected().into_iter().map(|n| format!("| {n} | a | `t` |\n")).collect();
    assert_eq!(faults(&rows, |_| true), Vec::<String>::new());
    let without = rows.replace("| 34 | a | `t` |", "| 34 | a | |");
    assert_eq!(faults(&without, |_| true), ["rule 34 has no test"]);
    let renamed = rows.replace("| W2 | a | `t` |", "| W2 | a | `t`, `u` |");
    assert_eq!(faults(&renamed, |name| name == "t"), ["rule W2: there is no test u"]);
}
