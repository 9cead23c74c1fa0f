//! JSON whose doubled fields are noticed: of two with the same name only the last one counts.

use std::cell::{Cell, RefCell};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value, and the paths of fields that occur twice.
pub(super) fn parse(text: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let notes = Notes::default();
    let value = read(text, &notes)?;
    if !notes.doubled.get() {
        return Ok((value, Vec::new()));
    }
    // Rare, so the paths are worth a second reading.
    let notes = Notes { paths: Some(RefCell::default()), ..Notes::default() };
    let value = read(text, &notes)?;
    let paths = notes.paths.map(|paths| paths.into_inner().found).unwrap_or_default();
    Ok((value, paths))
}

fn read(text: &[u8], notes: &Notes) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Noting(notes).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Default)]
struct Notes {
    doubled: Cell<bool>,
    paths: Option<RefCell<Paths>>,
}

#[derive(Default)]
struct Paths {
    here: Vec<String>,
    found: Vec<String>,
}

impl Notes {
    fn enter(&self, step: impl FnOnce() -> String) {
        if let Some(paths) = &self.paths {
            paths.borrow_mut().here.push(step());
        }
    }

    fn leave(&self) {
        if let Some(paths) = &self.paths {
            paths.borrow_mut().here.pop();
        }
    }

    /// The field that was just entered is there already.
    fn twice(&self) {
        self.doubled.set(true);
        if let Some(paths) = &self.paths {
            let mut paths = paths.borrow_mut();
            let path = paths.here.join("");
            paths.found.push(path.trim_start_matches('.').to_owned());
        }
    }
}

#[derive(Clone, Copy)]
struct Noting<'a>(&'a Notes);

impl<'de> DeserializeSeed<'de> for Noting<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noting<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.0.enter(|| format!("[{}]", list.len()));
            let item = items.next_element_seed(self)?;
            self.0.leave();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            self.0.enter(|| format!(".{name}"));
            if map.contains_key(&name) {
                self.0.twice();
            }
            let value = entries.next_value_seed(self)?;
            self.0.leave();
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_two_fields_counts_and_both_are_noticed() {
        let text = br#"{"a":{"b":[{"c":1,"c":2}]},"d":null,"d":true}"#;
        let (value, twice) = parse(text).unwrap();
        assert_eq!(value, json!({ "a": { "b": [{ "c": 2 }] }, "d": true }));
        assert_eq!(twice, ["a.b[0].c", "d"]);
    }

    #[test]
    fn what_serde_json_reads_is_read_alike_and_what_it_refuses_is_refused() {
        let text = br#"{"n":[1,-2,1.5,1e3,18446744073709551615],"t":"\u00fc\n","e":{},"l":[]}"#;
        let (value, twice) = parse(text).unwrap();
        assert_eq!((value, twice), (serde_json::from_slice(text).unwrap(), vec![]));
        for broken in [&b"{"[..], b"{} x", b"", b"{\"a\" 1}"] {
            assert!(parse(broken).is_err());
        }
    }
}
