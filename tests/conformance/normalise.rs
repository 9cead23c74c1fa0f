//! Normalises answers: replaces uids, resourceVersions, times, generated names, tokens and keys, which
//! differ between servers.
//!
//! Each uid, resourceVersion, generated name, token and key's id becomes the number of its first appearance. Both
//! sides count the same answers in the same order, so an unchanged resourceVersion or a reused uid
//! is still a difference.
//!
//! Removed entirely: managedFields (the sandbox keeps none: see differences.rs), the
//! resourceVersion of lists and bookmarks (the real server makes writes of its own), and continue
//! tokens. Messages are compared, except those of decoders about an unreadable body, in which the
//! real server names Go types and quotes the body.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::side::Answer;

/// The numbers of one side so far.
#[derive(Clone, Default)]
pub struct Numbering {
    seen: HashMap<(&'static str, String), usize>,
    names: Vec<(String, String)>,
}

impl Numbering {
    /// Normalises an answer. `prefix` is the call's generateName, to find the generated name in a
    /// refusal.
    pub fn answer(&mut self, answer: &Answer, prefix: Option<&str>) -> Answer {
        let mut answer = answer.clone();
        if let (Some(prefix), Some(name)) = (prefix, answer.body["details"]["name"].as_str()) {
            self.record_name(prefix, name);
        }
        self.record_names(&answer.body);
        self.object("", &mut answer.body);
        if answer.code == 409 {
            forget_etcd(&mut answer.body);
        }
        if answer.code == 422 {
            sort_causes(&mut answer.body);
        }
        if let Some(Value::String(message)) = answer.body.get_mut("message") {
            *message = without_decoder(message);
        }
        for warning in &mut answer.warnings {
            *warning = self.text(warning);
        }
        answer
    }

    /// Normalises an event of a watch.
    pub fn event(&mut self, event: &Value) -> Value {
        let mut event = event.clone();
        self.record_names(&event);
        self.object("", &mut event);
        event
    }

    fn object(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let is_list = fields.get("kind").and_then(Value::as_str).is_some_and(is_list);
                if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                    metadata.remove("managedFields");
                    if is_list {
                        blank(metadata, "resourceVersion", is_version);
                        blank(metadata, "continue", |token| !token.is_empty());
                    }
                }
                // Sorted, because the numbers must not depend on the order of fields.
                let mut names: Vec<_> = fields.keys().cloned().collect();
                names.sort();
                for name in names {
                    self.object(&name, &mut fields[&name]);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.object(key, item)),
            Value::String(text) => *text = self.string(key, text),
            _ => {}
        }
    }

    fn string(&mut self, key: &str, text: &str) -> String {
        match key {
            "resourceVersion" if is_version(text) => self.number("rv", text),
            "creationTimestamp" | "deletionTimestamp" | "expirationTimestamp" if is_time(text) => {
                "TIME".to_owned()
            }
            "kid" => self.number("key", text),
            "x" | "y" if is_coordinate(text) => "COORDINATE".to_owned(),
            "jwks_uri" => path_of(text),
            "cells" if is_age(text) => "AGE".to_owned(),
            _ => self.text(text),
        }
    }

    fn record_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let text = |name: &str| fields.get(name).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name")) {
                    self.record_name(prefix, name);
                }
                fields.values().for_each(|field| self.record_names(field));
            }
            Value::Array(items) => items.iter().for_each(|item| self.record_names(item)),
            _ => {}
        }
    }

    fn record_name(&mut self, prefix: &str, name: &str) {
        // The server truncates long prefixes to make room for its five characters.
        let cut = name.len().saturating_sub(5);
        let known = self.names.iter().any(|(other, _)| other == name);
        if cut > 0 && !known && name.is_char_boundary(cut) && prefix.starts_with(&name[..cut]) {
            let number = self.number("name", name);
            self.names.push((name.to_owned(), format!("{}{number}", &name[..cut])));
        }
    }

    /// Replaces uids and generated names anywhere in a text.
    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, number) in &self.names {
            text = text.replace(name, number);
        }
        while let Some(found) = token_in(&text) {
            let number = self.number("token", &text[found.clone()]);
            text.replace_range(found, &number);
        }
        while let Some(start) = (0..text.len()).find(|at| starts_with_uuid(&text.as_bytes()[*at..]))
        {
            let number = self.number("uid", &text[start..start + UUID]);
            text.replace_range(start..start + UUID, &number);
        }
        if text.contains("ResourceVersion in ") {
            text = self.versions_in(&text);
        }
        if text.contains("esource version: ") {
            text = text.replace(|character: char| character.is_ascii_digit(), "");
        }
        text
    }

    fn versions_in(&mut self, text: &str) -> String {
        let words = text.split(' ').map(|word| {
            let digits = word.trim_matches(|letter| "(),.".contains(letter));
            if is_version(digits) { self.number("rv", digits) } else { word.to_owned() }
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn number(&mut self, what: &'static str, text: &str) -> String {
        let next = self.seen.keys().filter(|(other, _)| *other == what).count() + 1;
        let number = *self.seen.entry((what, text.to_owned())).or_insert(next);
        format!("<{what} {number}>")
    }
}

/// Causes are sorted, because the server has them in the order of a Go map; its message repeats
/// them.
fn sort_causes(status: &mut Value) {
    if let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") {
        for cause in causes.iter_mut() {
            if let Some(Value::String(message)) = cause.get_mut("message") {
                *message = without_decoder(&without_whole_object(message));
            }
        }
        causes.sort_by_key(|cause| {
            let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
            // Without the value that it may quote.
            let why = text("message").rsplit(": ").next().unwrap_or_default().to_owned();
            (text("field"), text("reason"), why)
        });
        // Some rules are checked twice.
        causes.dedup();
    }
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(end) = message.find(" is invalid: ")
    {
        message.truncate(end);
    }
}

/// Some conflicts contain etcd's key of the object.
fn forget_etcd(status: &mut Value) {
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((before, rest)) = message.split_once("StorageError: invalid object")
        && let Some((_, after)) = rest.split_once("AdditionalErrorMsg: ")
    {
        *message = format!("{before}{after}");
    }
}

/// For an undecodable body the server quotes all of it, including managedFields.
fn without_whole_object(message: &str) -> String {
    let quoted = message.find(": \"{").zip(message.rfind("}\": "));
    let Some((start, end)) = quoted else { return message.to_owned() };
    format!("{}: OBJECT: {}", &message[..start], &message[end + 4..])
}

/// Cuts a message before the decoder's own text. Errors about unknown fields are kept.
fn without_decoder(message: &str) -> String {
    if message.contains("strict decoding error") {
        return message.to_owned();
    }
    let undecodable = [" cannot be handled as a ", "the object provided is unrecognized"];
    if undecodable.iter().any(|phrase| message.contains(phrase)) {
        return "the body cannot be decoded".to_owned();
    }
    for phrase in ["continue key is not valid", "unknown patch type", "is registered for version"] {
        if let Some(start) = message.find(phrase) {
            return message[..start + phrase.len()].to_owned();
        }
    }
    let words = [
        "cannot restore",
        "cannot convert",
        "unrecognized type",
        "unexpected end of JSON",
        "invalid character",
        "json: cannot",
        "parsing time ",
        "illegal base64",
        "json parse error",
        "yaml: ",
        "decoding error",
    ];
    let start = words.iter().filter_map(|words| message.find(words)).min();
    match start {
        Some(start) => format!("{}…", &message[..start]),
        None => message.to_owned(),
    }
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List") || kind == "Table"
}

fn blank(
    fields: &mut serde_json::Map<String, Value>,
    name: &str,
    is_plausible: impl Fn(&str) -> bool,
) {
    if let Some(value) = fields.get_mut(name)
        && value.as_str().is_some_and(is_plausible)
    {
        *value = "SOME".into();
    }
}

/// Header and claims at least; both are JSON, which begins with a brace.
fn token_in(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find("eyJ")?;
    let part = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let end = text[start..].find(|letter| !part(letter)).map_or(text.len(), |end| start + end);
    text[start..end].contains('.').then_some(start..end)
}

/// Of a key on the curve P-256.
fn is_coordinate(text: &str) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

/// An address without the host.
fn path_of(address: &str) -> String {
    let host = address.strip_prefix("https://").unwrap_or_default();
    host.find('/').map_or_else(|| address.to_owned(), |start| host[start..].to_owned())
}

const UUID: usize = 36;

fn starts_with_uuid(text: &[u8]) -> bool {
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() >= UUID && text[..UUID].iter().enumerate().all(fits)
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// In UTC with seconds, as servers write times.
fn is_time(text: &str) -> bool {
    text.len() == 20 && text.ends_with('Z') && chrono::DateTime::parse_from_rfc3339(text).is_ok()
}

/// An age as in tables.
fn is_age(text: &str) -> bool {
    let seconds = text.strip_suffix('s').unwrap_or_default();
    is_version(seconds) && seconds.len() <= 3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_servers_numbers_agree_where_the_relations_between_their_answers_do() {
        let object =
            |uid: &str, rv: &str| json!({ "metadata": { "uid": uid, "resourceVersion": rv } });
        let (one, two) =
            ("0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e", "11111111-7a2b-4f3c-8d51-6f1a2b3c4d5e");
        let (mut left, mut right) = (Numbering::default(), Numbering::default());
        assert_eq!(left.event(&object(one, "7")), right.event(&object(two, "900")));
        assert_eq!(left.event(&object(one, "8")), right.event(&object(two, "903")));
        assert_ne!(left.event(&object(one, "8")), right.event(&object(two, "904")));
    }

    #[test]
    fn a_generated_name_is_recognised_everywhere() {
        let made = |name: &str| json!({ "metadata": { "generateName": "g-", "name": name } });
        let said = |name: &str| json!({ "message": format!("secrets \"{name}\" not found") });
        let (mut left, mut right) = (Numbering::default(), Numbering::default());
        assert_eq!(left.event(&made("g-abcde")), right.event(&made("g-xyz12")));
        assert_eq!(left.event(&said("g-abcde")), right.event(&said("g-xyz12")));
        assert_ne!(left.event(&said("g-abcde")), right.event(&said("g-other")));
    }
}
