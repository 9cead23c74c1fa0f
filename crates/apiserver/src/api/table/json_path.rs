//! The subset of JSONPath that columns use: `.field`, `[0]`, `[?(@.field=="text")]`.

use serde_json::Value;

/// The first value that the path leads to.
pub(super) fn first<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
    let mut values = vec![object];
    for step in steps(path) {
        values = values.into_iter().flat_map(|value| follow(&step, value)).collect();
    }
    values.into_iter().find(|value| !value.is_null())
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
    All,
    Where { field: &'a str, text: &'a str },
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').unwrap_or(inside.len());
            steps.push(bracket(&inside[..end]));
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            rest = rest.trim_start_matches('.');
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Field(&rest[..end]));
            rest = &rest[end..];
        }
    }
    steps
}

fn bracket(inside: &str) -> Step<'_> {
    let condition = inside.strip_prefix("?(@.").and_then(|text| text.strip_suffix(')'));
    match condition.and_then(|condition| condition.split_once("==")) {
        Some((field, text)) => {
            Step::Where { field: field.trim(), text: text.trim().trim_matches(['"', '\'']) }
        }
        None => match inside.parse() {
            Ok(index) => Step::Index(index),
            Err(_) if inside == "*" => Step::All,
            Err(_) => Step::Field(inside.trim_matches(['"', '\''])),
        },
    }
}

fn follow<'a>(step: &Step<'_>, value: &'a Value) -> Vec<&'a Value> {
    let list = || value.as_array().into_iter().flatten();
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => value.get(index).into_iter().collect(),
        Step::All => list().collect(),
        Step::Where { field, text } => list().filter(|item| item[*field] == **text).collect(),
    }
}
