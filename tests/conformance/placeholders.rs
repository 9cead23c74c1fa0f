//! Remembers one side's answers, to fill in the placeholders of later calls.

use std::collections::HashMap;

use http::Request;
use serde_json::Value;

use crate::call::{Body, Call};
use crate::side::Answer;
use crate::tokens;

#[derive(Default)]
pub struct Placeholders {
    /// Makes the namespaces of this sequence unique.
    number: usize,
    /// Every seen state of each object, by path.
    objects: HashMap<String, Vec<Value>>,
    /// Metadata of the last list, by path.
    lists: HashMap<String, Value>,
    /// Generated names, by prefix.
    names: HashMap<String, String>,
    /// The last token of each account, by the path where it was issued.
    tokens: HashMap<String, String>,
}

impl Placeholders {
    pub fn of(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// The name of a namespace of this sequence.
    pub fn namespace(&self, letter: &str) -> String {
        format!("agree-{}-{letter}", self.number)
    }

    /// The call with placeholders filled in.
    pub fn request(&self, call: &Call) -> Request<Vec<u8>> {
        let mut uri = self.fill(&call.path);
        for (index, (name, value)) in call.query.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(&format!("{name}={}", percent_encoded(&self.fill(value))));
        }
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        for (name, value) in &call.headers {
            request = request.header(*name, *value);
        }
        request.body(self.body(call)).expect("a request")
    }

    fn body(&self, call: &Call) -> Vec<u8> {
        match &call.body {
            Body::Nothing => Vec::new(),
            Body::Text(text) => self.fill(text).into_bytes(),
            Body::Json(body) => self.fill(&body.to_string()).into_bytes(),
            Body::Seen(change, otherwise) => {
                let path = object_path(&self.fill(&call.path));
                let seen = self.objects.get(&path).and_then(|states| states.last());
                let mut body = seen.unwrap_or(otherwise).clone();
                let filled = self.fill(&change.to_string());
                merge(&mut body, serde_json::from_str(&filled).expect("still JSON"));
                self.fill(&body.to_string()).into_bytes()
            }
        }
    }

    /// Fills in placeholders.
    pub fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for letter in ["a", "b", "c", "gen"] {
            text = text.replace(&format!("${{{letter}}}"), &self.namespace(letter));
        }
        // Innermost first.
        while let Some(start) = text.rfind("${") {
            let end = start + text[start..].find('}').expect("a placeholder ends");
            let value = self.lookup(&text[start + 2..end]);
            text.replace_range(start..=end, &value);
        }
        text
    }

    fn lookup(&self, placeholder: &str) -> String {
        let (what, of) = placeholder.split_once(' ').expect("a placeholder of two words");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let field = |object: &Value, name: &str| text(&object["metadata"][name]);
        let states = self.objects.get(of).map(Vec::as_slice).unwrap_or_default();
        let list = self.lists.get(of);
        let found = match what {
            "rv" => states.last().and_then(|object| field(object, "resourceVersion")),
            "stale" => states.first().and_then(|object| field(object, "resourceVersion")),
            "uid" => states.last().and_then(|object| field(object, "uid")),
            "list" => list.and_then(|list| text(&list["resourceVersion"])),
            "continue" => list.and_then(|list| text(&list["continue"])),
            "name" => self.names.get(of).cloned(),
            "token" => self.tokens.get(of).cloned(),
            _ => self.tokens.get(of).map(|token| tokens::altered(what, token)),
        };
        let absent = match what {
            "uid" => "no-such-uid",
            "name" => "no-such-name",
            "continue" => "",
            "token" => "no-such-token",
            // Watches from 0 start with the existing objects on both sides.
            _ => "0",
        };
        found.unwrap_or_else(|| absent.to_owned())
    }

    /// Remembers an answer for later calls.
    pub fn record(&mut self, call: &Call, answer: &Answer) {
        let (path, body) = (object_path(&self.fill(&call.path)), &answer.body);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if !answer.is_success() || call.query("dryRun").is_some() {
            return;
        }
        if body["items"].is_array() {
            self.lists.insert(path, body["metadata"].clone());
            return;
        }
        if let Some(token) = text(&body["status"]["token"]) {
            self.tokens.insert(path, token);
            return;
        }
        let Some(name) = text(&body["metadata"]["name"]) else { return };
        if let Some(prefix) = text(&body["metadata"]["generateName"]) {
            self.names.entry(prefix).or_insert_with(|| name.clone());
        }
        let path = if call.method == http::Method::POST { format!("{path}/{name}") } else { path };
        if path.ends_with(&format!("/{name}")) {
            self.objects.entry(path).or_default().push(body.clone());
        }
    }
}

/// The object's path, without a subresource.
fn object_path(path: &str) -> String {
    let object = path.strip_suffix("/status").or_else(|| path.strip_suffix("/finalize"));
    object.unwrap_or(path).to_owned()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let encode =
        |byte: u8| if plain(&byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}
