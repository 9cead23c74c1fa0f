//! The known members of a bundle document, each still as text.
//!
//! A document may be hostile, and a JSON tree takes many times the memory of its text. So no tree is
//! built of unknown members, and only one key is parsed at a time.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The known members. Others may be there, and none may be required.
#[derive(Default)]
pub(super) struct Document<'a> {
    pub keys: Option<Vec<&'a RawValue>>,
    pub sequence: Option<&'a RawValue>,
    pub refresh_hint: Option<&'a RawValue>,
    /// Whether another parser takes an unknown member for a known one.
    pub is_ambiguous: bool,
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
                "keys" => take(&mut map, "keys", &mut document.keys)?,
                "spiffe_sequence" => take(&mut map, "spiffe_sequence", &mut document.sequence)?,
                "spiffe_refresh_hint" => {
                    take(&mut map, "spiffe_refresh_hint", &mut document.refresh_hint)?;
                }
                name => {
                    document.is_ambiguous |= is_alias(name, &MEMBERS);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(document)
    }
}

/// With two members of the same name, it is unclear which counts.
fn take<'de, M: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut M,
    name: &'static str,
    member: &mut Option<T>,
) -> Result<(), M::Error> {
    if member.is_some() {
        return Err(M::Error::duplicate_field(name));
    }
    *member = map.next_value()?;
    Ok(())
}
