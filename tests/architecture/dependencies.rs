//! Promise: docs/dependencies.md has a line for every crate that we name, and says what it is for.

use std::{collections::BTreeSet, fs, path::Path};

const MANIFESTS: [&str; 3] =
    ["Cargo.toml", "crates/apiserver/Cargo.toml", "crates/testkit/Cargo.toml"];
/// Part of the tests itself.
const OURS: [&str; 1] = ["testkit"];

fn text_of(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("readable")
}

/// The crates in the tables of a manifest that end with `dependencies`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            is_inside = table.trim_end_matches(']').ends_with("dependencies");
        } else if is_inside && line.starts_with(|c: char| c.is_ascii_lowercase()) {
            let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
            found.extend(line.split(is_end).next().map(str::to_owned));
        }
    }
    found
}

/// The crates in the first column of the page's tables.
fn explained(page: &str) -> BTreeSet<String> {
    let column = |line: &str| line.strip_prefix('|')?.split('|').next().map(str::to_owned);
    let cells: String = page.lines().filter_map(column).collect();
    cells.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_dependency_has_its_line_in_the_docs() {
    let explained = explained(&text_of("docs/dependencies.md"));
    let all = MANIFESTS.iter().flat_map(|path| dependencies(&text_of(path)));
    let missing: Vec<_> =
        all.filter(|it| !explained.contains(it) && !OURS.contains(&it.as_str())).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_dependency_without_a_line_is_found() {
    let manifest = "[package]\nname = \"a\"\n\n[dev-dependencies]\n# A comment.\nbytes = \"1\"\n\
                    serde.workspace = true\n\n[lints]\nworkspace = true\n";
    let found: Vec<_> = dependencies(manifest).into_iter().collect();
    assert_eq!(found, ["bytes", "serde"]);
    let page = "| crate | what for |\n|---|---|\n| `serde`, `tower` | `bytes` of objects |\n";
    let explained: Vec<_> = explained(page).into_iter().collect();
    assert_eq!(explained, ["serde", "tower"]);
}
