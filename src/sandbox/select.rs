//! Label and field selectors. Pure.

use std::borrow::Cow;

use serde_json::Value;

use super::{kinds::Kind, refusal::Refusal};

/// Which objects a list or watch is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    /// Dotted; the first that holds a text counts.
    places: Vec<String>,
    equal: bool,
    value: String,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector` of a request about this kind.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let fields = parse_fields(kind, fields)?;
        let labels = parse_labels(labels)
            .map_err(|why| Refusal::bad_request(format!("unable to parse requirement: {why}")))?;
        Ok(Self { labels, fields })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object, in the shape that it is stored in, is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|one| one.matches(labels))
            && self.fields.iter().all(|one| one.matches(object))
    }

    /// The name that a field selector narrows to, if it does.
    pub fn only_name(&self) -> Option<&str> {
        let name = |one: &&FieldRequirement| one.equal && one.places == ["metadata.name"];
        self.fields.iter().find(name).map(|one| one.value.as_str())
    }
}

impl Requirement {
    fn matches(&self, labels: &Value) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(limit) => number().is_some_and(|number| number > *limit),
            Test::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let texts = self.places.iter().map(|place| text_at(object, place));
        let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        (text == self.value) == self.equal
    }
}

fn text_at<'a>(object: &'a Value, place: &str) -> Cow<'a, str> {
    match place.split('.').try_fold(object, |value, step| value.get(step)) {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldRequirement>, Refusal> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text).into_iter().filter(|term| !term.is_empty()) {
        let parsed = ["!=", "==", "="].iter().find_map(|operator| {
            let (field, value) = term.split_once(operator)?;
            Some((field, *operator != "!=", value))
        });
        let Some((field, equal, value)) = parsed else {
            let why = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(Refusal::bad_request(why));
        };
        let Some(places) = kind.selectable(field) else {
            let why = format!("field label not supported: {field}");
            return Err(Refusal::bad_request(why));
        };
        let value = unescape(value).ok_or_else(|| {
            Refusal::bad_request(format!(
                "invalid field selector: invalid escape sequence in {field}"
            ))
        })?;
        requirements.push(FieldRequirement { places, equal, value });
    }
    Ok(requirements)
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.push(letters.next().filter(|next| matches!(next, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let terms = split_outside_parentheses(text);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).map(parse_label).collect()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_label(term: &str) -> Result<Requirement, String> {
    let requirement = |key: &str, test| {
        let key = key.trim();
        match super::names::qualified_name(key).first() {
            Some(why) => Err(format!("key: Invalid value: {key:?}: {why}")),
            None => Ok(Requirement { key: key.to_owned(), test }),
        }
    };
    if let Some(key) = term.strip_prefix('!') {
        return requirement(key, Test::Absent);
    }
    for (operator, positive) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = term.split_once(operator) {
            let values = label_values([value])?;
            return requirement(key, if positive { Test::In(values) } else { Test::NotIn(values) });
        }
    }
    let number = |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is no number"));
    if let Some((key, limit)) = term.split_once('>') {
        return requirement(key, Test::Above(number(limit)?));
    }
    if let Some((key, limit)) = term.split_once('<') {
        return requirement(key, Test::Below(number(limit)?));
    }
    match term.split_once(char::is_whitespace) {
        None => requirement(term, Test::Exists),
        Some((key, rest)) => {
            let (operator, list) = rest.trim().split_once('(').ok_or_else(|| {
                format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", rest.trim())
            })?;
            let list = list.trim_end().strip_suffix(')').ok_or("found '', expected: ',' or ')'")?;
            let values = label_values(list.split(','))?;
            match operator.trim() {
                "in" => requirement(key, Test::In(values)),
                "notin" => requirement(key, Test::NotIn(values)),
                other => Err(format!("found '{other}', expected: in, notin")),
            }
        }
    }
}

fn label_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>, String> {
    let check = |value: &str| {
        let value = value.trim();
        match super::names::label_value(value).first() {
            Some(why) => Err(format!("values[0][0]: Invalid value: {value:?}: {why}")),
            None => Ok(value.to_owned()),
        }
    };
    values.into_iter().map(check).collect()
}
