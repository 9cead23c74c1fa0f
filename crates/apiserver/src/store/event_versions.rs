//! Converts between the two versions of Event, one in each group. Events are stored in the older
//! one.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::kinds::{self, Kind};

const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
/// Fields that the older version shows even if empty.
const ALWAYS_SHOWN: [&str; 2] = ["reportingComponent", "reportingInstance"];

/// Converts from the stored shape.
pub fn from_stored<'a>(kind: &Kind, object: &'a Value) -> Cow<'a, Value> {
    match object.as_object() {
        Some(fields) if kind == kinds::new_event() => {
            let mut newer = renamed(fields.clone(), |(old, new)| (old, new));
            for name in ["reportingController", "reportingInstance"] {
                if newer.get(name).is_some_and(|value| value == "") {
                    newer.remove(name);
                }
            }
            newer.insert("apiVersion".into(), kind.api_version().into());
            Cow::Owned(Value::Object(newer))
        }
        _ => Cow::Borrowed(object),
    }
}

/// Converts to the stored shape.
pub fn to_stored(kind: &Kind, object: Value) -> Value {
    match object {
        Value::Object(fields) if kind == kinds::new_event() => {
            let mut older = renamed(fields, |(old, new)| (new, old));
            for name in ALWAYS_SHOWN {
                older.entry(name).or_insert_with(|| "".into());
            }
            older.insert("apiVersion".into(), kinds::event().api_version().into());
            Value::Object(older)
        }
        other => other,
    }
}

type Pair = (&'static str, &'static str);

fn renamed(mut fields: Map<String, Value>, direction: fn(Pair) -> Pair) -> Map<String, Value> {
    for (from, to) in FIELDS.map(direction) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields
}
