//! Label and field selectors. Pure.

mod labels;

use std::borrow::Cow;

use serde_json::Value;

use super::{api_error::ApiError, kinds::Kind};

/// The selection of a list or watch.
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
    /// Paths; the first with a text counts.
    places: Vec<String>,
    equal: bool,
    value: String,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector` of a request.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = labels::parse(labels).map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields: parse_fields(fields)? })
    }

    /// Resolves it for a kind, if its fields are selectable.
    pub fn of(mut self, kind: &Kind) -> Result<Self, ApiError> {
        for requirement in &mut self.fields {
            let field = requirement.places.join("");
            requirement.places = match kind.selectable(&field) {
                Some(places) => places,
                None => return Err(ApiError::bad_request(kind.unselectable(&field))),
            };
        }
        Ok(self)
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object, in its stored shape, is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|one| one.matches(labels))
            && self.fields.iter().all(|one| one.matches(object))
    }

    /// The name in the field selector, if any.
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

fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    let terms = split_unescaped(text).into_iter().filter(|term| !term.is_empty());
    let parse = |term: &str| {
        let Some((field, operator, value)) = split_term(term) else {
            let why = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(ApiError::bad_request(why));
        };
        let value = unescape(value).map_err(ApiError::bad_request)?;
        Ok(FieldRequirement { places: vec![field.to_owned()], equal: operator != "!=", value })
    };
    let mut requirements = terms.map(parse).collect::<Result<Vec<_>, _>>()?;
    // A lone operator selects everything.
    requirements.retain(|one| one.places != [""] || !one.value.is_empty());
    Ok(requirements)
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let operator = ["!=", "==", "="].into_iter().find(|sign| term[at..].starts_with(sign))?;
        Some((&term[..at], operator, &term[at + operator.len()..]))
    })
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

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                _ => return Err("invalid field selector: invalid escape sequence".to_owned()),
            },
            ',' | '=' => return Err("invalid field selector: unescaped character".to_owned()),
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn selects(labels: &str, fields: &str) -> bool {
        let object = json!({
            "metadata": { "name": "shop-tls", "namespace": "web", "labels": { "tier": "front", "n": "7" } },
            "type": "kubernetes.io/tls",
        });
        selector(labels, fields).unwrap().matches(&object)
    }

    fn selector(labels: &str, fields: &str) -> Result<Selector, ApiError> {
        Selector::parse(labels, fields)?.of(kinds::secret())
    }

    #[test]
    fn labels_are_selected_by_value_set_presence_and_size() {
        let hits = [
            "",
            "tier",
            "tier=front",
            "tier==front",
            "tier!=back",
            "!other",
            "tier in (a, front)",
            "tier notin (a,b)",
            "other notin (a)",
            "n>6",
            "n<8",
            "tier,n=7,!x",
        ];
        let misses =
            ["other", "tier=back", "tier!=front", "!tier", "tier in (a)", "n>7", "tier=front,n=8"];
        assert!(hits.iter().all(|labels| selects(labels, "")));
        assert!(!misses.iter().any(|labels| selects(labels, "")));
    }

    #[test]
    fn fields_are_selected_by_what_the_kind_offers() {
        assert!(selects("", "metadata.name=shop-tls,type==kubernetes.io/tls"));
        assert!(selects("", "type!=Opaque"));
        assert!(!selects("", "metadata.namespace=other"));
        let error = selector("", "data.x=1").unwrap_err();
        assert_eq!((error.code, error.reason), (400, "BadRequest"));
        assert_eq!(error.message, "field label not supported: data.x");
    }

    #[test]
    fn an_invalid_selector_is_a_bad_request() {
        for labels in ["a b", "a in b", "=", "a/b/c=d", "a=b c", "a>b"] {
            assert_eq!(selector(labels, "").unwrap_err().code, 400);
        }
        for fields in ["metadata.name", "metadata.name=a\\"] {
            assert_eq!(selector("", fields).unwrap_err().code, 400);
        }
    }
}
