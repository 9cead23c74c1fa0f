//! The syntax of names, labels and keys. Pure. Each function returns the problems as messages.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const DATA_KEY: &str = "[-._a-zA-Z0-9]+";

/// The syntax of a kind's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Labels with dots between them, up to 253 letters.
    Subdomain,
    /// One label, up to 63 letters.
    Label,
    /// Anything that can be one step of a path.
    PathSegment,
}

macro_rules! whole {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| {
            // The patterns are constants, and the tests use each of them.
            #[allow(clippy::unwrap_used)]
            Regex::new(&format!("^(?:{})$", $pattern)).unwrap()
        });
    };
}
whole!(IS_LABEL, LABEL);
whole!(IS_SUBDOMAIN, SUBDOMAIN);
whole!(IS_QUALIFIED, QUALIFIED);
whole!(IS_LABEL_VALUE, LABEL_VALUE);
whole!(IS_DATA_KEY, DATA_KEY);

impl Syntax {
    /// The problems of a name.
    pub fn problems(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// The problems of a `generateName`.
    pub fn prefix_problems(self, prefix: &str) -> Vec<String> {
        match self {
            Self::PathSegment => path_segment(prefix),
            _ => match prefix.strip_suffix('-') {
                Some(short) if !short.is_empty() => self.problems(&format!("{short}a")),
                _ => self.problems(prefix),
            },
        }
    }
}

fn too_long(limit: usize, unit: &str) -> String {
    format!("must be no more than {limit} {unit}")
}

fn explain(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|one| format!("'{one}'")).collect();
    // Two blanks, as in Kubernetes.
    let examples = examples.join(",  or ");
    format!("{message} (e.g. {examples}, regex used for validation is '{pattern}')")
}

/// A DNS subdomain, RFC 1123.
pub fn subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(too_long(253, "characters"));
    }
    if !IS_SUBDOMAIN.is_match(name) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        problems.push(explain(message, SUBDOMAIN, &["example.com"]));
    }
    problems
}

/// A DNS label, RFC 1123.
pub fn label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63, "characters"));
    }
    if !IS_LABEL.is_match(name) {
        if IS_SUBDOMAIN.is_match(name) {
            problems.push("must not contain dots".to_owned());
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            problems.push(explain(message, LABEL, &["my-name", "123-abc"]));
        }
    }
    problems
}

/// One step of a path.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ['/', '%'].into_iter().filter(|letter| name.contains(*letter));
    forbidden.map(|letter| format!("may not contain '{letter}'")).collect()
}

/// `prefix/name` as keys of labels and annotations are.
pub fn qualified_name(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            let message = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
            let why = explain(message, QUALIFIED, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "{why} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            problems.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !IS_QUALIFIED.is_match(name) {
        let message = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        problems.push(explain(message, QUALIFIED, &["MyName", "my.name", "123-abc"]));
    }
    problems
}

/// A label's value.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_long(63, "bytes"));
    }
    if !IS_LABEL_VALUE.is_match(value) {
        let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        problems.push(explain(message, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// A key in a ConfigMap or Secret.
pub fn data_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push(too_long(253, "characters"));
    }
    if !IS_DATA_KEY.is_match(key) {
        let message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        problems.push(explain(message, DATA_KEY, &["key.name", "KEY_NAME", "key-name"]));
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}
