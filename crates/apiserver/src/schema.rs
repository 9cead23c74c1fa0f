//! Schemas of objects: read from CRDs, and for the built-in kinds from k8s-openapi. Pure.
//!
//! `decode` reads built-in kinds like Go's decoder: unknown fields and zero values of optional
//! fields are dropped, and a wrong type is a bad request. Custom resources are pruned, defaulted
//! and validated instead, and a wrong type is an invalid object.

mod cel;
mod decode;
mod defaults;
mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

pub use self::{
    cel::Rule,
    decode::{DecodeError, decode},
    defaults::{default, prune},
    validate::validate,
};

/// Type and limits of a value.
#[derive(Debug, Default)]
pub struct Schema {
    pub shape: Shape,
    /// Whether null is allowed.
    pub nullable: bool,
    /// How a zero value is encoded.
    pub zero: Zero,
    /// The default.
    pub default: Option<Value>,
    /// Allowed values.
    pub enumeration: Vec<Value>,
    /// Pattern of strings.
    pub pattern: Option<Regex>,
    /// `date-time`, `int32` and the like.
    pub format: String,
    /// Minimum and maximum of characters, items or properties.
    pub size: (Option<u64>, Option<u64>),
    /// Minimum and maximum of numbers.
    pub range: (Option<f64>, Option<f64>),
    /// CEL rules.
    pub rules: Vec<Rule>,
}

/// The type of a value.
#[derive(Debug, Default)]
pub enum Shape {
    #[default]
    Any,
    /// Named fields.
    Object(Fields),
    /// A map with values of one type.
    Map(Box<Schema>),
    Array(Box<Schema>, List),
    Text,
    /// Bytes in base64.
    Bytes,
    /// A time, to the second.
    Time,
    /// A time, to the microsecond.
    MicroTime,
    Integer,
    Number,
    Boolean,
    /// An integer or a string.
    IntOrString,
}

/// Fields of an object.
#[derive(Debug, Default)]
pub struct Fields {
    pub known: BTreeMap<String, Schema>,
    /// Required fields.
    pub required: Vec<String>,
    /// Whether unknown fields are kept.
    pub keeps_unknown: bool,
}

/// How a list is merged, and what must be unique in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum List {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Unique values.
    Set,
    /// Unique combinations of these keys.
    Map(Vec<String>),
}

/// How Go's encoder treats a zero value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zero {
    /// Omitted, as with `omitempty`.
    #[default]
    Dropped,
    /// Kept if it was given, as for a pointer.
    Kept,
    /// Always encoded.
    Shown,
}

/// Definitions for `$ref`, and Go properties of their fields.
pub struct Library<'a> {
    pub definitions: &'a Map<String, Value>,
    /// How a field of a definition encodes its zero value.
    pub zero: fn(&str, &str) -> Option<Zero>,
    /// How a list field of a definition is merged.
    pub list: fn(&str, &str) -> List,
}

/// An unsupported schema.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the schema: {0}")]
pub struct SchemaError(String);

impl Schema {
    /// Reads a CRD's schema.
    pub fn structural(source: &Value) -> Result<Self, SchemaError> {
        let library =
            Library { definitions: &Map::new(), zero: |_, _| None, list: |_, _| List::Atomic };
        Self::read(source, "", &library)
    }

    /// Reads a definition of a library.
    pub fn of_library(name: &str, library: &Library<'_>) -> Result<Self, SchemaError> {
        let definition = library.definitions.get(name);
        let definition = definition.ok_or_else(|| SchemaError(format!("no definition {name}")))?;
        Self::read(definition, name, library)
    }

    fn read(source: &Value, within: &str, library: &Library<'_>) -> Result<Self, SchemaError> {
        // A reference with a description is inside an `allOf`.
        let reference = source["$ref"].as_str().or_else(|| source["allOf"][0]["$ref"].as_str());
        if let Some(name) = reference.and_then(|path| path.rsplit('/').next()) {
            return match name.rsplit('.').next() {
                Some("MicroTime") => Ok(Self { shape: Shape::MicroTime, ..Self::default() }),
                Some("Quantity") => Ok(Self {
                    shape: Shape::Text,
                    format: "quantity".to_owned(),
                    ..Self::default()
                }),
                _ => Self::of_library(name, library),
            };
        }
        let bound = |names: [&str; 3]| names.iter().find_map(|name| source[*name].as_u64());
        let pattern = source["pattern"].as_str().map(Regex::new).transpose();
        Ok(Self {
            shape: Shape::read(source, within, library)?,
            nullable: source["nullable"] == true,
            zero: Zero::Dropped,
            default: source.get("default").cloned(),
            enumeration: source["enum"].as_array().cloned().unwrap_or_default(),
            pattern: pattern.map_err(|error| SchemaError(error.to_string()))?,
            format: source["format"].as_str().unwrap_or_default().to_owned(),
            size: (
                bound(["minLength", "minItems", "minProperties"]),
                bound(["maxLength", "maxItems", "maxProperties"]),
            ),
            range: (source["minimum"].as_f64(), source["maximum"].as_f64()),
            rules: Rule::read_all(&source["x-kubernetes-validations"]).map_err(SchemaError)?,
        })
    }

    /// The schema of a field of this object.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        match &self.shape {
            Shape::Object(fields) => fields.known.get(name),
            Shape::Map(values) => Some(values),
            _ => None,
        }
    }
}

impl Shape {
    fn read(source: &Value, within: &str, library: &Library<'_>) -> Result<Self, SchemaError> {
        if source["x-kubernetes-int-or-string"] == true {
            return Ok(Self::IntOrString);
        }
        let child = |value: &Value| Ok(Box::new(Schema::read(value, "", library)?));
        Ok(match source["type"].as_str() {
            Some("object") => match source.get("additionalProperties") {
                Some(values) if values.is_object() => Self::Map(child(values)?),
                _ => Self::Object(Fields::read(source, within, library)?),
            },
            Some("array") => Self::Array(child(&source["items"])?, List::read(source)),
            Some("string") => match source["format"].as_str() {
                Some("byte") => Self::Bytes,
                Some("date-time") => Self::Time,
                _ => Self::Text,
            },
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Any,
        })
    }
}

impl Fields {
    fn read(source: &Value, within: &str, library: &Library<'_>) -> Result<Self, SchemaError> {
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let required = texts(&source["required"]);
        let mut known = BTreeMap::new();
        for (name, property) in source["properties"].as_object().into_iter().flatten() {
            let mut schema = Schema::read(property, "", library)?;
            schema.zero = (library.zero)(within, name).unwrap_or_else(|| {
                if required.contains(name) { Zero::Shown } else { Zero::Dropped }
            });
            if let (Shape::Array(_, kind), false) =
                (&mut schema.shape, library.definitions.is_empty())
            {
                *kind = (library.list)(within, name);
            }
            known.insert(name.clone(), schema);
        }
        // An object without properties is open in k8s-openapi, and empty in a CRD.
        let open = source.get("properties").is_none() && !library.definitions.is_empty();
        let keeps_unknown = open || source["x-kubernetes-preserve-unknown-fields"] == true;
        Ok(Self { known, required, keeps_unknown })
    }
}

impl List {
    fn read(source: &Value) -> Self {
        let keys = source["x-kubernetes-list-map-keys"].as_array();
        match source["x-kubernetes-list-type"].as_str() {
            Some("set") => Self::Set,
            Some("map") => Self::Map(
                keys.into_iter()
                    .flatten()
                    .filter_map(|key| key.as_str().map(str::to_owned))
                    .collect(),
            ),
            _ => Self::Atomic,
        }
    }
}
