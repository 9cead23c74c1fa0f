//! The difference of two objects in lines of YAML, as kubectl prints them. Pure.

use serde_json::{Map, Value, json};

use crate::names::{FIELDS_ANNOTATION, LAST_VALID_SPEC_ANNOTATION};

/// Lines of context around a change.
const AROUND: usize = 3;
/// Beyond this size, all lines are shown as replaced.
const MOST_PAIRS: usize = 4_000_000;
/// The database's connection string within `server.conf`.
const CONNECTION: &str = "/plugins/DataStore/0/sql/plugin_data/connection_string";
const CONF: &str = "server.conf";

/// Lines that begin with `+`, `-` or a space; empty if nothing visible differs.
pub fn between(before: &Value, after: &Value) -> Vec<String> {
    let same = connection(before) == connection(after);
    let to = shown(after, if same || before.is_null() { "(hidden)" } else { "(hidden, another)" });
    if before.is_null() {
        return yaml(&to).into_iter().map(|line| format!("+ {line}")).collect();
    }
    let (from, to) = (yaml(&shown(before, "(hidden)")), yaml(&to));
    near_changes(marked(&from, &to))
}

fn configuration(object: &Value) -> Option<Value> {
    serde_json::from_str(object["data"][CONF].as_str()?).ok()
}

fn connection(object: &Value) -> Option<Value> {
    configuration(object)?.pointer(CONNECTION).cloned()
}

/// Removes what the API server adds, our own annotations, and the database's password.
fn shown(object: &Value, instead: &str) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"] {
            metadata.remove(name);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(FIELDS_ANNOTATION);
            annotations.remove(LAST_VALID_SPEC_ANNOTATION);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    if object["data"][CONF].is_string() {
        object["data"][CONF] = match configuration(&object) {
            Some(mut conf) => {
                if let Some(connection) = conf.pointer_mut(CONNECTION) {
                    *connection = json!(instead);
                }
                json!(format!("{conf:#}\n"))
            }
            None => json!("(not shown: it is not what trustplane writes)"),
        };
    }
    object
}

/// Similar to kubectl's output.
fn yaml(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) if !fields.is_empty() => fields_of(fields),
        Value::Array(items) if !items.is_empty() => items.iter().flat_map(item).collect(),
        scalar => vec![text(scalar)],
    }
}

fn fields_of(fields: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                lines.push(format!("{name}:"));
                lines.extend(yaml(value).into_iter().map(|line| format!("  {line}")));
            }
            Value::Array(items) if !items.is_empty() => {
                lines.push(format!("{name}:"));
                lines.extend(yaml(value));
            }
            Value::String(text) if text.contains('\n') => {
                lines.push(format!("{name}: |"));
                lines.extend(text.lines().map(|line| format!("  {line}")));
            }
            scalar => lines.push(format!("{name}: {}", text(scalar))),
        }
    }
    lines
}

fn item(value: &Value) -> Vec<String> {
    let mut lines = yaml(value);
    for (number, line) in lines.iter_mut().enumerate() {
        *line = format!("{}{line}", if number == 0 { "- " } else { "  " });
    }
    lines
}

fn text(scalar: &Value) -> String {
    match scalar {
        Value::String(text) if !is_ambiguous(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether YAML would read an unquoted text as something other than a string.
fn is_ambiguous(text: &str) -> bool {
    text.is_empty()
        || serde_json::from_str::<Value>(text).is_ok()
        || text.starts_with(['-', '[', '{', '"', '\'', '&', '*', '!', '|', '>', '%', '@', '`'])
        || text.contains(": ")
        || text.contains(" #")
}

type Marked<'a> = Vec<(char, &'a str)>;

/// The lines of both, with common ones once.
fn marked<'a>(from: &'a [String], to: &'a [String]) -> Marked<'a> {
    let same = |pair: &(&String, &String)| pair.0 == pair.1;
    let head = from.iter().zip(to).take_while(same).count();
    let (rest_from, rest_to) = (&from[head..], &to[head..]);
    let tail = rest_from.iter().rev().zip(rest_to.iter().rev()).take_while(same).count();
    let middle_from = &rest_from[..rest_from.len() - tail];
    let middle_to = &rest_to[..rest_to.len() - tail];
    let kept = |lines: &'a [String]| lines.iter().map(|line| (' ', line.as_str()));
    let mut all: Marked<'a> = kept(&from[..head]).collect();
    all.extend(compared(middle_from, middle_to));
    all.extend(kept(&from[from.len() - tail..]));
    all
}

/// By the longest common subsequence.
fn compared<'a>(from: &'a [String], to: &'a [String]) -> Marked<'a> {
    let removed = |lines: &'a [String]| lines.iter().map(|line| ('-', line.as_str()));
    let added = |lines: &'a [String]| lines.iter().map(|line| ('+', line.as_str()));
    if from.len().saturating_mul(to.len()) > MOST_PAIRS {
        return removed(from).chain(added(to)).collect();
    }
    // longest[i][j]: the length for from[i..] and to[j..].
    let mut longest = vec![vec![0_usize; to.len() + 1]; from.len() + 1];
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            longest[i][j] = match from[i] == to[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut all, mut i, mut j) = (Marked::new(), 0, 0);
    while i < from.len() && j < to.len() {
        if from[i] == to[j] {
            all.push((' ', &from[i]));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            all.push(('-', &from[i]));
            i += 1;
        } else {
            all.push(('+', &to[j]));
            j += 1;
        }
    }
    all.extend(removed(&from[i..]));
    all.extend(added(&to[j..]));
    all
}

/// The changes with a few lines around each; `...` where lines are left out.
fn near_changes(all: Marked<'_>) -> Vec<String> {
    let changes: Vec<_> = (0..all.len()).filter(|&at| all[at].0 != ' ').collect();
    let is_near = |at: usize| changes.iter().any(|&change| change.abs_diff(at) <= AROUND);
    let mut lines = Vec::new();
    let mut last = None;
    for (at, (mark, line)) in all.iter().enumerate().filter(|(at, _)| is_near(*at)) {
        if last.map_or(at > 0, |last| at > last + 1) {
            lines.push("  ...".to_owned());
        }
        lines.push(format!("{mark} {line}"));
        last = Some(at);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it_and_no_others() {
        let list: Vec<_> = (0..20).map(|number| format!("line-{number}")).collect();
        let mut other = list.clone();
        other[10] = "changed".to_owned();
        other.push("new".to_owned());
        let lines = between(&json!({ "spec": list }), &json!({ "spec": other }));
        assert_eq!(
            lines,
            [
                "  ...",
                "  - line-7",
                "  - line-8",
                "  - line-9",
                "- - line-10",
                "+ - changed",
                "  - line-11",
                "  - line-12",
                "  - line-13",
                "  ...",
                "  - line-17",
                "  - line-18",
                "  - line-19",
                "+ - new",
            ]
        );
    }

    #[test]
    fn what_only_the_api_server_and_we_ourselves_write_is_no_difference() {
        let live = json!({
            "metadata": {
                "name": "a", "uid": "1", "resourceVersion": "7",
                "annotations": { FIELDS_ANNOTATION: "{}", LAST_VALID_SPEC_ANNOTATION: "{}" },
            },
            "status": { "ready": true },
        });
        assert_eq!(between(&live, &json!({ "metadata": { "name": "a" } })), [""; 0]);
    }

    #[test]
    fn objects_read_as_kubectl_prints_them() {
        let object = json!({
            "data": { "f": "one\ntwo\n" }, "n": "1", "on": true,
            "ports": [{ "name": "a", "port": 1 }, "x"], "z": {},
        });
        assert_eq!(
            yaml(&object),
            [
                "data:",
                "  f: |",
                "    one",
                "    two",
                "n: \"1\"",
                "on: true",
                "ports:",
                "- name: a",
                "  port: 1",
                "- x",
                "z: {}",
            ]
        );
    }
}
