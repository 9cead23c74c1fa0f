//! Validates custom resources. Values are quoted only if they are no secret.

use serde_json::Value;

use super::{List, Rule, Schema, Shape};
use crate::api_error::Cause;

/// Adds all problems of the object. Unchanged values are not validated again.
pub fn validate(schema: &Schema, object: &Value, before: Option<&Value>, causes: &mut Vec<Cause>) {
    check(schema, object, before, "", causes);
    if !causes.iter().any(hides_the_rest) {
        check_rules(schema, object, before, "", causes);
    } else if has_rules(schema) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.push(Cause::invalid("<nil>", "null", why));
    }
}

/// Rules are only evaluated for objects of the right shape and size.
fn hides_the_rest(cause: &Cause) -> bool {
    let reasons = [
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ];
    reasons.contains(&cause.reason)
}

fn check(
    schema: &Schema,
    value: &Value,
    before: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if before == Some(value) || value.is_null() && schema.nullable {
        return;
    }
    if schema.format == "int32" && value.is_number() {
        check_small_integer(value, path, causes);
    } else if let Some(cause) = wrong_type(&schema.shape, value, path) {
        causes.push(cause);
        causes.extend(not_in_set(schema, value, path));
        return;
    }
    check_limits(schema, value, path, causes);
    match (&schema.shape, value) {
        (Shape::Object(fields), Value::Object(map)) => {
            for (name, value) in map {
                if let Some(field) = fields.known.get(name) {
                    let before = before.and_then(|before| before.get(name));
                    check(field, value, before, &joined(path, name), causes);
                }
            }
            for name in fields.required.iter().filter(|name| !map.contains_key(*name)) {
                causes.push(Cause::required(joined(path, name), ""));
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for (name, value) in map {
                let before = before.and_then(|before| before.get(name));
                check(values, value, before, &joined(path, name), causes);
            }
        }
        (Shape::Array(items, kind), Value::Array(list)) => {
            check_unique(kind, list, path, causes);
            for (at, item) in list.iter().enumerate() {
                let before = counterpart(kind, item, at, before);
                check(items, item, before, &format!("{path}[{at}]"), causes);
            }
        }
        _ => {}
    }
}

/// The corresponding entry of the old list, in lists with keys.
fn counterpart<'a>(
    kind: &List,
    item: &Value,
    _at: usize,
    before: Option<&'a Value>,
) -> Option<&'a Value> {
    let List::Map(keys) = kind else { return None };
    before?.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

fn check_rules(
    schema: &Schema,
    value: &Value,
    before: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if before == Some(value) || value.is_null() {
        return;
    }
    for (rule, failure) in Rule::broken(&schema.rules, value, before) {
        // At the root the path is empty, and the rule's own begins with a dot.
        let blamed = format!("{path}{}", rule.field);
        causes.push(match failure {
            None => Cause::invalid(blamed.trim_start_matches('.'), "", &rule.message),
            Some(why) => Cause::invalid(path, "", format!("rule evaluation error: {why}")),
        });
    }
    match (&schema.shape, value) {
        (Shape::Object(_) | Shape::Map(_), Value::Object(map)) => {
            for (name, value) in map {
                if let Some(field) = schema.field(name) {
                    let before = before.and_then(|before| before.get(name));
                    check_rules(field, value, before, &joined(path, name), causes);
                }
            }
        }
        (Shape::Array(items, kind), Value::Array(list)) => {
            for (at, item) in list.iter().enumerate() {
                let before = counterpart(kind, item, at, before);
                check_rules(items, item, before, &format!("{path}[{at}]"), causes);
            }
        }
        _ => {}
    }
}

fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || match &schema.shape {
            Shape::Object(fields) => fields.known.values().any(has_rules),
            Shape::Map(child) | Shape::Array(child, _) => has_rules(child),
            _ => false,
        }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn wrong_type(shape: &Shape, value: &Value, path: &str) -> Option<Cause> {
    let (wanted, fits) = match shape {
        Shape::Any => return None,
        Shape::Object(_) | Shape::Map(_) => ("object", value.is_object()),
        Shape::Array(..) => ("array", value.is_array()),
        Shape::Text | Shape::Bytes | Shape::Time | Shape::MicroTime => {
            ("string", value.is_string())
        }
        Shape::Integer => ("integer", is_integer(value)),
        Shape::Number => ("number", value.is_number()),
        Shape::Boolean => ("boolean", value.is_boolean()),
        Shape::IntOrString => ("integer,string", is_integer(value) || value.is_string()),
    };
    if fits {
        return None;
    }
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let why = format!("{path} in body must be of type {wanted}: {found:?}");
    Some(Cause::wrong_type(path, &format!("{found:?}"), why))
}

/// Like Go: 1.0 is one, too.
/// Kubernetes validates these twice.
fn check_small_integer(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) {
        return;
    }
    let why = format!("Checked value must be of type integer with format int32 in {path}");
    causes.push(Cause::invalid("<nil>", "\"\"", why));
    if value.as_i64().is_none() {
        let why = format!("{path} in body must be of type int32: \"float64\"");
        causes.push(Cause::wrong_type(path, "\"float64\"", why));
    }
}

fn is_integer(value: &Value) -> bool {
    value.as_i64().is_some() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn not_in_set(schema: &Schema, value: &Value, path: &str) -> Option<Cause> {
    let fits = schema.enumeration.is_empty() || schema.enumeration.contains(value);
    let known: Vec<&str> = schema.enumeration.iter().filter_map(Value::as_str).collect();
    (!fits).then(|| Cause::unsupported(path, &value.to_string(), &known))
}

fn check_limits(schema: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    causes.extend(not_in_set(schema, value, path));
    let (unit, size) = match value {
        Value::String(text) => ("chars", text.chars().count()),
        Value::Array(list) => ("items", list.len()),
        Value::Object(map) => ("properties", map.len()),
        _ => ("", 0),
    };
    if let (Some(least), true) = (schema.size.0, !unit.is_empty())
        && (size as u64) < least
    {
        causes.push(match unit {
            "chars" => {
                let why = format!("{path} in body should be at least {least} chars long");
                Cause::invalid(path, "", why)
            }
            _ => {
                let why = format!("{path} in body should have at least {least} {unit}");
                Cause::invalid(path, &size.to_string(), why)
            }
        });
        return;
    }
    if let (Some(most), true) = (schema.size.1, !unit.is_empty())
        && (size as u64) > most
    {
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        match unit {
            "chars" => causes.push(Cause::too_long(path, limit)),
            _ => causes.push(Cause::too_many(path, size, limit)),
        }
    }
    let mut refuse = |shown: &str, why: String| causes.push(Cause::invalid(path, shown, why));
    if let (Some(pattern), Some(text)) = (&schema.pattern, value.as_str())
        && !pattern.is_match(text)
    {
        refuse("", format!("{path} in body should match '{}'", pattern.as_str()));
    }
    if let Some(number) = value.as_f64() {
        let shown = value.to_string();
        if let Some(least) = schema.range.0.filter(|least| number < *least) {
            refuse(&shown, format!("{path} in body should be greater than or equal to {least}"));
        }
        if let Some(most) = schema.range.1.filter(|most| number > *most) {
            refuse(&shown, format!("{path} in body should be less than or equal to {most}"));
        }
    }
    if let Some(text) = value.as_str()
        && matches!(schema.shape, Shape::Time)
        && chrono::DateTime::parse_from_rfc3339(text).is_err()
    {
        let why = format!("{path} in body must be of type date-time");
        causes.push(Cause::wrong_type(path, "", why));
    }
}

fn check_unique(kind: &List, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let key_of = |item: &Value| match kind {
        List::Atomic => None,
        List::Set => Some(item.to_string()),
        List::Map(keys) => {
            let shown = keys.iter().filter_map(|key| Some((key, item.get(key)?)));
            let shown: serde_json::Map<_, _> =
                shown.map(|(key, value)| (key.clone(), value.clone())).collect();
            Some(Value::Object(shown).to_string())
        }
    };
    let mut seen = std::collections::HashSet::new();
    for (at, item) in list.iter().enumerate() {
        if let Some(key) = key_of(item)
            && !seen.insert(key.clone())
        {
            causes.push(Cause::duplicate(format!("{path}[{at}]"), &key));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_about_the_whole_object_blames_a_field_by_the_path_that_it_names() {
        let text = json!({ "type": "string" });
        let schema = Schema::structural(&json!({
            "type": "object",
            "properties": { "spec": { "type": "object", "properties": { "host": text } } },
            "x-kubernetes-validations": [
                { "rule": "has(self.spec.host)", "message": "name a host", "fieldPath": ".spec.host" },
            ],
        }));
        let mut causes = Vec::new();
        validate(&schema.unwrap(), &json!({ "spec": {} }), None, &mut causes);
        let blamed: Vec<_> = causes.iter().map(|cause| (&*cause.field, &*cause.message)).collect();
        assert_eq!(blamed, [("spec.host", "Invalid value: name a host")]);
    }
}
