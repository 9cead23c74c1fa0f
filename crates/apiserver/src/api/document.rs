//! JSON parser that reports duplicate fields, of which only the last one counts.

use std::cell::RefCell;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value, and the paths of duplicate fields.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    // For bytes that are not UTF-8 the slower reader makes the error.
    let Ok(text) = std::str::from_utf8(bytes) else { return read(bytes) };
    let value = text.parse::<Value>()?;
    if fields_of(&value) == colons(text) { Ok((value, Vec::new())) } else { read(bytes) }
}

/// Number of fields in the value.
fn fields_of(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(fields_of).sum::<usize>(),
        Value::Array(list) => list.iter().map(fields_of).sum(),
        _ => 0,
    }
}

/// Number of colons outside of strings: one for each field, duplicates included.
fn colons(text: &str) -> usize {
    let (mut count, mut inside) = (0, false);
    for part in text.split('"') {
        let backslashes = part.len() - part.trim_end_matches('\\').len();
        if !inside {
            count += part.matches(':').count();
            inside = true;
        } else if backslashes % 2 == 0 {
            inside = false;
        }
    }
    count
}

fn read(bytes: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let notes = Notes::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Noting(&notes).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, notes.twice.into_inner()))
}

#[derive(Default)]
struct Notes {
    here: RefCell<Vec<String>>,
    twice: RefCell<Vec<String>>,
}

impl Notes {
    fn enter(&self, step: String) {
        self.here.borrow_mut().push(step);
    }

    fn leave(&self) {
        self.here.borrow_mut().pop();
    }

    /// Notes that the current field is a duplicate.
    fn twice(&self) {
        let path = self.here.borrow().concat();
        self.twice.borrow_mut().push(path.trim_start_matches('.').to_owned());
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
            self.0.enter(format!("[{}]", list.len()));
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
            self.0.enter(format!(".{name}"));
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
    fn quotes_and_colons_inside_of_strings_are_no_fields() {
        let text = br#"{"a:\"b\\":":\\\":","c":{"d":":"}}"#;
        assert_eq!(colons(std::str::from_utf8(text).unwrap()), 3);
        assert_eq!(parse(text).unwrap().1, Vec::<String>::new());
    }

    #[test]
    fn the_last_of_two_fields_counts_and_both_are_noticed() {
        let text = br#"{"a":{"b":[{"c":1,"c":2}]},"d":null,"d":true}"#;
        let (value, twice) = parse(text).unwrap();
        assert_eq!(value, json!({ "a": { "b": [{ "c": 2 }] }, "d": true }));
        assert_eq!(twice, ["a.b[0].c", "d"]);
    }

    #[test]
    fn the_reader_accepts_and_refuses_the_same_documents_as_serde_json() {
        let text = br#"{"n":[1,-2,1.5,1e3,18446744073709551615],"t":"\u00fc\n","e":{},"l":[]}"#;
        let (value, twice) = parse(text).unwrap();
        assert_eq!((value, twice), (serde_json::from_slice(text).unwrap(), vec![]));
        for broken in [&b"{"[..], b"{} x", b"", b"{\"a\" 1}"] {
            assert!(parse(broken).is_err());
        }
    }
}
