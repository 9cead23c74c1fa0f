//! Pruning and defaulting of custom resources.

use serde_json::Value;

use super::{Schema, Shape};

/// Removes unknown fields, and nulls that are not allowed.
pub fn prune(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Value::Object(map)) => {
            map.retain(|name, value| {
                let known = fields.known.get(name);
                if known.is_none() && !fields.keeps_unknown {
                    unknown.push(joined(path, name));
                    return false;
                }
                let forbidden_null = |field: &Schema| !field.nullable && field.default.is_none();
                !(value.is_null() && known.is_some_and(forbidden_null))
            });
            for (name, value) in map {
                if let Some(field) = fields.known.get(name) {
                    prune(field, value, &joined(path, name), unknown);
                }
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for (name, value) in map {
                prune(values, value, &joined(path, name), unknown);
            }
        }
        (Shape::Array(items, _), Value::Array(list)) => {
            for (at, item) in list.iter_mut().enumerate() {
                prune(items, item, &format!("{path}[{at}]"), unknown);
            }
        }
        (Shape::Integer | Shape::Number | Shape::IntOrString, value @ Value::Number(_)) => {
            // Go writes a float without a fraction as an integer.
            if let Some(whole) = value.as_f64().and_then(whole) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation)]
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Fills in defaults.
pub fn default(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Value::Object(map)) => {
            for (name, field) in &fields.known {
                match (map.get_mut(name), &field.default) {
                    (None, Some(default)) => {
                        map.insert(name.clone(), default.clone());
                    }
                    (Some(value), Some(default)) if value.is_null() && !field.nullable => {
                        *value = default.clone();
                    }
                    _ => {}
                }
                if let Some(value) = map.get_mut(name) {
                    self::default(field, value);
                }
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| default(values, value));
        }
        (Shape::Array(items, _), Value::Array(list)) => {
            list.iter_mut().for_each(|item| default(items, item));
        }
        _ => {}
    }
}
