//! Converts a built-in kind like Go's decoder and encoder together.

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};

use super::{Schema, Shape, Zero};

/// Like Go, ignores the unused bits of the last character.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A value of the wrong type. Names the path but never the value, which may be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another JSON type.
    #[error("json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")]
    Type { found: &'static str, path: String, wanted: &'static str },
    #[error("illegal base64 data at input byte {at}")]
    Base64 {
        /// The first wrong byte.
        at: usize,
    },
    #[error("parsing time in field {path} failed")]
    Time { path: String },
}

/// Converts the value to the schema, and notes the paths of unknown fields.
pub fn decode(
    schema: &Schema,
    value: Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, DecodeError> {
    let wrong = |found: &Value, wanted| {
        Err(DecodeError::Type { found: name_of(found), path: path.to_owned(), wanted })
    };
    if value.is_null() {
        return Ok(zero_of(schema));
    }
    match (&schema.shape, value) {
        (Shape::Any, value) => Ok(value),
        (Shape::Object(_), Value::Object(map)) => decode_fields(schema, map, path, unknown),
        (Shape::Map(values), Value::Object(map)) => {
            let entries = map.into_iter().map(|(key, value)| {
                let value = decode(values, value, &format!("{path}.{key}"), unknown)?;
                Ok((key, value))
            });
            Ok(Value::Object(entries.collect::<Result<Map<_, _>, _>>()?))
        }
        (Shape::Array(items, _), Value::Array(list)) => {
            let decoded = list
                .into_iter()
                .enumerate()
                .map(|(at, item)| decode(items, item, &format!("{path}[{at}]"), unknown));
            Ok(Value::Array(decoded.collect::<Result<_, _>>()?))
        }
        (Shape::Text, value @ Value::String(_)) => Ok(value),
        // Quantities may be written as numbers.
        (Shape::Text, Value::Number(number)) if schema.format == "quantity" => {
            Ok(number.to_string().into())
        }
        (Shape::Bytes, Value::String(text)) => bytes(text),
        (Shape::Time, Value::String(text)) => time(&text, path, SecondsFormat::Secs),
        (Shape::MicroTime, Value::String(text)) => {
            let (_, fraction) = text.split_once('.').unwrap_or_default();
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits != 6 {
                return Err(DecodeError::Time { path: path.to_owned() });
            }
            time(&text, path, SecondsFormat::Micros)
        }
        (Shape::Integer, Value::Number(number)) => match number.as_i64() {
            Some(small) if schema.format != "int32" || i32::try_from(small).is_ok() => {
                Ok(small.into())
            }
            _ => wrong(&Value::Number(number), "int32"),
        },
        (Shape::Number, value @ Value::Number(_)) => Ok(value),
        (Shape::Boolean, value @ Value::Bool(_)) => Ok(value),
        (Shape::IntOrString, value @ (Value::Number(_) | Value::String(_))) => Ok(value),
        (shape, other) => wrong(&other, wanted(shape)),
    }
}

fn decode_fields(
    schema: &Schema,
    map: Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, DecodeError> {
    let Shape::Object(fields) = &schema.shape else { return Ok(Value::Object(map)) };
    let mut decoded = Map::new();
    for (name, value) in map {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match fields.known.get(&name) {
            Some(field) => {
                let given = !value.is_null();
                let value = decode(field, value, &at, unknown)?;
                let is_kept = given && (field.zero == Zero::Kept || !says_nothing(field, &value));
                if is_kept || field.zero == Zero::Shown {
                    decoded.insert(name, value);
                }
            }
            None if fields.keeps_unknown => {
                decoded.insert(name, value);
            }
            None => unknown.push(at),
        }
    }
    for (name, field) in &fields.known {
        if field.zero == Zero::Shown && !decoded.contains_key(name) {
            decoded.insert(name.clone(), zero_of(field));
        }
    }
    Ok(Value::Object(decoded))
}

/// Empty structs are kept, because in Go they are a struct or a pointer to one.
fn says_nothing(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && matches!(schema.shape, Shape::Map(_)),
    }
}

fn zero_of(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Text | Shape::Bytes => "".into(),
        Shape::Integer | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::Boolean => false.into(),
        Shape::Object(fields) => {
            let shown = fields.known.iter().filter(|(_, field)| field.zero == Zero::Shown);
            Value::Object(shown.map(|(name, field)| (name.clone(), zero_of(field))).collect())
        }
        Shape::Any | Shape::Map(_) | Shape::Array(..) | Shape::Time | Shape::MicroTime => {
            Value::Null
        }
    }
}

fn bytes(text: String) -> Result<Value, DecodeError> {
    use base64::DecodeError as Bad;
    let clean: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    match LENIENT.decode(&clean) {
        Ok(bytes) => Ok(LENIENT.encode(bytes).into()),
        Err(Bad::InvalidByte(at, _) | Bad::InvalidLastSymbol(at, _)) => {
            Err(DecodeError::Base64 { at })
        }
        Err(Bad::InvalidLength(_) | Bad::InvalidPadding) => {
            Err(DecodeError::Base64 { at: text.len() })
        }
    }
}

fn time(text: &str, path: &str, precision: SecondsFormat) -> Result<Value, DecodeError> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|_| DecodeError::Time { path: path.to_owned() })?;
    Ok(time.with_timezone(&Utc).to_rfc3339_opts(precision, true).into())
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wanted(shape: &Shape) -> &'static str {
    match shape {
        Shape::Any => "any",
        Shape::Object(_) => "struct",
        Shape::Map(_) => "map",
        Shape::Array(..) => "slice",
        Shape::Text | Shape::IntOrString => "string",
        Shape::Bytes => "[]byte",
        Shape::Time | Shape::MicroTime => "time",
        Shape::Integer => "int",
        Shape::Number => "float64",
        Shape::Boolean => "bool",
    }
}
