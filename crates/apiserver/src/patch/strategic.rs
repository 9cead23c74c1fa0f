//! Strategic merge patches, for built-in kinds: lists are merged by a key of their entries, and
//! directives express what a merge can't.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{List, Schema, Shape};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

type Object = Map<String, Value>;

pub(super) fn merge_map(
    schema: Option<&Schema>,
    original: &mut Object,
    mut patch: Object,
) -> Result<(), PatchError> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            *original = patch;
            return Ok(());
        }
        Some(Value::String(directive)) if directive == "delete" => {
            original.clear();
            return Ok(());
        }
        Some(other) => return Err(PatchError::Failed(format!("unknown patch type: {other}"))),
    }
    retain_keys(original, &mut patch)?;
    merge_ordered_lists(schema, original, &mut patch)?;
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_from(original, list, &change)?;
            continue;
        }
        let field = schema.and_then(|schema| schema.field(&key));
        match (original.get_mut(&key), change) {
            (_, Value::Null) => {
                original.remove(&key);
            }
            (Some(Value::Object(original)), Value::Object(change)) => {
                merge_map(field, original, change)?;
            }
            (Some(Value::Array(original)), Value::Array(change)) => {
                *original = merge_list(field, std::mem::take(original), change)?;
            }
            (_, change) => match without_directives(without_nulls(change)) {
                Some(value) => {
                    original.insert(key, value);
                }
                None => {
                    original.remove(&key);
                }
            },
        }
    }
    Ok(())
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(PatchError::bad(RETAIN)) };
    let kept: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let exempt = |key: &str| key.starts_with(ORDER) || key.starts_with(DELETE_FROM);
    let stray = |(key, value): (&String, &Value)| {
        !value.is_null() && !exempt(key) && !kept.contains(key.as_str())
    };
    if patch.iter().any(stray) {
        return Err(PatchError::bad(RETAIN));
    }
    original.retain(|key, _| kept.contains(key.as_str()));
    Ok(())
}

/// Lists whose order is part of the patch.
fn merge_ordered_lists(
    schema: Option<&Schema>,
    original: &mut Object,
    patch: &mut Object,
) -> Result<(), PatchError> {
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in orders {
        let Some(Value::Array(order)) = patch.remove(&key) else {
            return Err(PatchError::bad(&key));
        };
        let name = &key[ORDER.len()..];
        let field = schema.and_then(|schema| schema.field(name));
        let merge_key = merge_key(field);
        let server = match original.get(name) {
            None => None,
            Some(Value::Array(list)) => Some(list.clone()),
            Some(_) => return Err(PatchError::bad(name)),
        };
        let change = match patch.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::Array(list)) => Some(list),
            Some(_) => return Err(PatchError::bad(name)),
        };
        let server_order = server.clone().unwrap_or_default();
        let merged = match (server, change) {
            (None, None) => continue,
            (Some(server), None) => server,
            (None, Some(change)) => match without_directives(Value::Array(change)) {
                Some(Value::Array(list)) => list,
                _ => continue,
            },
            (Some(server), Some(change)) => {
                in_order_of(merge_key, &change, &order)?;
                merge_list(field, server, change)?
            }
        };
        let sorted = sorted(merged, &order, &server_order, merge_key);
        original.insert(name.to_owned(), sorted.into());
    }
    Ok(())
}

/// The order must contain the entries of the patch, in their order.
fn in_order_of(
    merge_key: Option<&str>,
    change: &[Value],
    order: &[Value],
) -> Result<(), PatchError> {
    let mut left = order.iter();
    let entries = change.iter().filter(|entry| entry.get(DIRECTIVE).is_none());
    for entry in entries {
        if order.is_empty() || !left.any(|one| same(merge_key, one, entry)) {
            let why = "the order in the patch list doesn't match the $setElementOrder list";
            return Err(PatchError::Failed(why.to_owned()));
        }
    }
    Ok(())
}

fn delete_from(original: &mut Object, list: &str, change: &Value) -> Result<(), PatchError> {
    let Value::Array(gone) = change else { return Err(PatchError::bad(DELETE_FROM)) };
    if let Some(Value::Array(list)) = original.get_mut(list) {
        list.retain(|value| !gone.contains(value));
    }
    Ok(())
}

fn merge_key(field: Option<&Schema>) -> Option<&str> {
    match &field?.shape {
        Shape::Array(_, List::Map(keys)) => keys.first().map(String::as_str),
        _ => None,
    }
}

fn merge_list(
    field: Option<&Schema>,
    mut original: Vec<Value>,
    change: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    let (items, kind) = match field.map(|field| &field.shape) {
        Some(Shape::Array(items, kind)) => (Some(&**items), kind),
        _ => (None, &List::Atomic),
    };
    let key = match kind {
        List::Atomic => return Ok(change),
        List::Set => None,
        List::Map(keys) => keys.first().map(String::as_str),
    };
    let server = original.clone();
    let Some(key) = key else {
        let mut merged: Vec<Value> = Vec::new();
        for value in original.iter().chain(&change) {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(sorted(merged, &change, &server, None));
    };
    let (mut entries, mut replaces) = (Vec::new(), false);
    for entry in change {
        match entry.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            None => entries.push(entry),
            Some("delete") => {
                let gone = entry.get(key).ok_or_else(|| PatchError::no_key(key))?;
                original.retain(|one| one.get(key) != Some(gone));
            }
            Some("replace") => replaces = true,
            Some(other) => return Err(PatchError::Failed(format!("unknown patch type: {other}"))),
        }
    }
    if replaces {
        return Ok(entries);
    }
    let order = entries.clone();
    for entry in entries {
        let Value::Object(entry) = entry else { return Err(PatchError::no_key(key)) };
        let value = entry.get(key).ok_or_else(|| PatchError::no_key(key))?;
        match original.iter_mut().find(|one| one.get(key) == Some(value)) {
            Some(Value::Object(found)) => merge_map(items, found, entry)?,
            _ => original.push(entry.into()),
        }
    }
    Ok(sorted(original, &order, &server, Some(key)))
}

fn same(key: Option<&str>, one: &Value, other: &Value) -> bool {
    match key {
        Some(key) => one.get(key).is_some() && one.get(key) == other.get(key),
        None => one == other,
    }
}

/// Entries of the patch in its order, the others as near as possible to their old position.
fn sorted(merged: Vec<Value>, order: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let position =
        |list: &[Value], value: &Value| list.iter().position(|one| same(key, one, value));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|value| position(order, value).is_some());
    named.sort_by_key(|value| position(order, value));
    others.sort_by_key(|value| position(server, value).unwrap_or(usize::MAX));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let next = match (others.peek(), named.peek()) {
            (None, None) => return all,
            (Some(_), None) => others.next(),
            (None, Some(_)) => named.next(),
            (Some(other), Some(name)) => match (position(server, other), position(server, name)) {
                (Some(left), Some(right)) if left < right => others.next(),
                _ => named.next(),
            },
        };
        all.extend(next);
    }
}

/// Removes directives from a new value.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let fields = map.into_iter();
            let fields = fields.filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(list) => Some(list.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        other => other,
    }
}
