//! Reads JSON and notes fields that stand there twice: of those the last one counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value, and the paths of fields that stand there twice.
pub(super) fn read(bytes: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let node = Node { path: String::new(), duplicates: &mut duplicates };
    let value = node.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates))
}

struct Node<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            let node = Node { path, duplicates: &mut *self.duplicates };
            match items.next_element_seed(node)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = match self.path.as_str() {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            if map.contains_key(&name) {
                self.duplicates.push(path.clone());
            }
            let node = Node { path, duplicates: &mut *self.duplicates };
            let value = fields.next_value_seed(node)?;
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
    fn a_field_that_stands_there_twice_is_told_and_the_last_one_counts() {
        let text = br#"{"a":[{"b":1,"b":2}],"c":null,"a2":1.5,"c":"x"}"#;
        let (value, duplicates) = read(text).unwrap();
        assert_eq!(value, json!({ "a": [{ "b": 2 }], "c": "x", "a2": 1.5 }));
        assert_eq!(duplicates, ["a[0].b", "c"]);
        assert!(read(b"{} x").is_err());
    }
}
