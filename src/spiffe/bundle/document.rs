//! The known members of a bundle document, each still as text.
//!
//! A document may be hostile, and a JSON tree takes many times the memory of its text. So no tree is
//! built of unknown members, and only one key is parsed at a time.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// The known members. Others may be there, and none may be required.
#[derive(Default)]
pub(super) struct Document<'a> {
    pub keys: Option<Vec<&'a RawValue>>,
    pub sequence: Option<&'a RawValue>,
    pub refresh_hint: Option<&'a RawValue>,
    /// Whether another parser takes an unknown member for a known one.
    pub is_ambiguous: bool,
    /// A known member that is there more than once, so that it is unclear which counts.
    pub twice: Option<&'static str>,
}

/// As deep as Go's `encoding/json` reads.
const DEEPEST: usize = 10_000;

/// Whether JSON is nested deeper than others read it. serde_json limits only what it keeps.
pub(super) fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > DEEPEST
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

const MEMBERS: [&str; 3] = ["keys", "spiffe_sequence", "spiffe_refresh_hint"];

/// Whether Go's `encoding/json`, by which SPIRE reads a bundle, takes the name for one of these although
/// it is written in another way: it folds case, and the last member wins.
pub(super) fn is_alias(name: &str, members: &[&str]) -> bool {
    let folded = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    members.iter().any(|member| *member != name && member.chars().eq(name.chars().map(folded)))
}

impl<'de> Deserialize<'de> for Document<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What serde derives would take a list for an object.
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Document<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bundle document")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Document<'de>, M::Error> {
        let mut document = Document::default();
        while let Some(name) = map.next_key::<String>()? {
            match &*name {
                "keys" if document.keys.is_none() => document.keys = map.next_value()?,
                "spiffe_sequence" if document.sequence.is_none() => {
                    document.sequence = map.next_value()?;
                }
                "spiffe_refresh_hint" if document.refresh_hint.is_none() => {
                    document.refresh_hint = map.next_value()?;
                }
                name => {
                    let again = MEMBERS.into_iter().find(|member| *member == name);
                    document.twice = document.twice.or(again);
                    document.is_ambiguous |= is_alias(name, &MEMBERS);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(document)
    }
}

/// One key. Go's reader of keys refuses a member that is there twice, and serde would take the last.
pub(super) fn key(text: &RawValue) -> serde_json::Result<Value> {
    match text.get().starts_with('{') {
        true => serde_json::from_str::<Key>(text.get()).map(|key| key.0),
        false => serde_json::from_str(text.get()),
    }
}

struct Key(Value);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Key, M::Error> {
        let mut key = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if key.insert(name, value).is_some() {
                return Err(M::Error::custom("a member is there twice"));
            }
        }
        Ok(Key(key.into()))
    }
}
