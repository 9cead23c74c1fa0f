//! Merges the wanted object into the live one. Pure.
//!
//! It is a three-way merge of the live object, the wanted one, and the fields that we wrote last time, which
//! the annotation `trustplane.dev/fields` lists. Our fields are restored, those that we no longer want are
//! removed, and everybody else's stay. Server-side apply would do the same, but is a request each time; this
//! knows beforehand whether there is anything to write.

use serde_json::{Map, Value, json};

use crate::names::{FIELDS_ANNOTATION, LAST_VALID_SPEC_ANNOTATION};

type Fields = Map<String, Value>;

/// Immutable fields: Kubernetes refuses every change.
const ONLY_AT_CREATION: [&str; 2] = ["/spec/volumeClaimTemplates", "/spec/podManagementPolicy"];

/// The object to send for a creation.
pub fn creation(wanted: &Value) -> Value {
    annotated(wanted.clone())
}

/// The merge patch that turns the live object into the wanted one; none if nothing differs.
pub fn patch(live: &Value, wanted: &Value) -> Option<Value> {
    let (mut wanted, mut owned) = (annotated(wanted.clone()), owned(live).unwrap_or_default());
    for pointer in ONLY_AT_CREATION {
        take(&mut wanted, pointer);
        take(&mut owned, pointer);
    }
    let result = merged("", Some(live), Some(&wanted), Some(&owned)).unwrap_or_default();
    let mut patch = difference("", live, &result)?;
    for field in ["uid", "resourceVersion"] {
        patch["metadata"][field] = live["metadata"][field].clone();
    }
    Some(patch)
}

/// Applies a merge patch (RFC 7396).
pub fn patched(live: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut fields = live.as_object().cloned().unwrap_or_default();
    for (name, change) in changes {
        match change {
            Value::Null => fields.remove(name),
            change => {
                let before = fields.get(name).unwrap_or(&Value::Null);
                let after = patched(before, change);
                fields.insert(name.clone(), after)
            }
        };
    }
    fields.into()
}

/// The paths of the fields in a patch, for people: `spec.host`, `data.server.conf`.
pub fn named(patch: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(value, &path, found);
            }),
            _ => found.push(path.to_owned()),
        }
    }
    let mut found = Vec::new();
    walk(patch, "", &mut found);
    let bookkeeping = [FIELDS_ANNOTATION, LAST_VALID_SPEC_ANNOTATION]
        .map(|name| format!("metadata.annotations.{name}"));
    found.retain(|path| {
        !["metadata.uid", "metadata.resourceVersion"].contains(&&**path)
            && !bookkeeping.contains(path)
    });
    found
}

/// Adds the annotation that lists our fields.
fn annotated(mut wanted: Value) -> Value {
    let note = shape("", &wanted).to_string();
    wanted["metadata"]["annotations"][FIELDS_ANNOTATION] = json!(note);
    wanted
}

fn owned(live: &Value) -> Option<Value> {
    let note = live["metadata"]["annotations"][FIELDS_ANNOTATION].as_str()?;
    serde_json::from_str(note).ok()
}

/// The names of the fields without their values; 0 where we own all of it.
fn shape(field: &str, value: &Value) -> Value {
    match (value, key_of(field)) {
        (Value::Object(fields), _) if !fields.is_empty() => {
            fields.iter().map(|(name, value)| (name.clone(), shape(name, value))).collect()
        }
        (Value::Array(items), Some(key)) => {
            items.iter().filter_map(|item| Some((name_of(item, key)?, shape("", item)))).collect()
        }
        _ => json!(0),
    }
}

/// The keys of lists whose items have a name: others may add items. Any other list is owned as a whole.
fn key_of(field: &str) -> Option<&'static str> {
    match field {
        "ports" | "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// Fields that exclude each other: ours replaces somebody else's.
fn is_alternative(field: &str, name: &str) -> bool {
    match field {
        "volumes" | "env" => name != "name",
        "valueFrom" => true,
        "livenessProbe" | "readinessProbe" => {
            ["exec", "grpc", "httpGet", "tcpSocket"].contains(&name)
        }
        _ => false,
    }
}

/// Kubernetes refuses a Service with the same port twice, whatever the names.
fn is_same_port(field: &str, ours: &Value, theirs: &Value) -> bool {
    fn number_and_protocol(item: &Value) -> Option<(u64, &str)> {
        Some((item["port"].as_u64()?, item["protocol"].as_str().unwrap_or("TCP")))
    }
    let ours = number_and_protocol(ours);
    field == "ports" && ours.is_some() && ours == number_and_protocol(theirs)
}

fn name_of(item: &Value, key: &str) -> Option<String> {
    item[key].as_str().map(str::to_owned)
}

fn merged(
    field: &str,
    live: Option<&Value>,
    wanted: Option<&Value>,
    owned: Option<&Value>,
) -> Option<Value> {
    let key = key_of(field);
    let (live_fields, owned_fields) =
        (live.and_then(Value::as_object), owned.and_then(Value::as_object));
    let live_items = live.and_then(Value::as_array);
    match (wanted, key) {
        (Some(Value::Object(wanted)), _) => {
            Some(merged_fields(field, live_fields, wanted, owned_fields).into())
        }
        (Some(Value::Array(wanted)), Some(key)) => {
            Some(merged_items((field, key), live_items, wanted, owned_fields).into())
        }
        (Some(wanted), _) => Some(wanted.clone()),
        (None, key) => match (live_fields, live_items, owned_fields, key) {
            (Some(fields), _, Some(owned), _) => {
                let rest = merged_fields(field, Some(fields), &Map::new(), Some(owned));
                (!rest.is_empty()).then(|| rest.into())
            }
            (_, Some(items), Some(owned), Some(key)) => {
                let rest = merged_items((field, key), Some(items), &[], Some(owned));
                (!rest.is_empty()).then(|| rest.into())
            }
            _ if owned.is_some() => None,
            _ => live.cloned(),
        },
    }
}

fn merged_fields(
    field: &str,
    live: Option<&Fields>,
    wanted: &Fields,
    owned: Option<&Fields>,
) -> Fields {
    let mut result = live.cloned().unwrap_or_default();
    if wanted.keys().any(|name| is_alternative(field, name)) {
        result.retain(|name, _| !is_alternative(field, name) || wanted.contains_key(name));
    }
    let ours = owned.into_iter().flat_map(Map::keys);
    for name in wanted.keys().chain(ours) {
        let existing = live.and_then(|live| live.get(name));
        let owned = owned.and_then(|owned| owned.get(name));
        match merged(name, existing, wanted.get(name), owned) {
            Some(value) => result.insert(name.clone(), value),
            None => result.remove(name),
        };
    }
    result
}

fn merged_items(
    (field, key): (&str, &str),
    live: Option<&Vec<Value>>,
    wanted: &[Value],
    owned: Option<&Fields>,
) -> Vec<Value> {
    let live = live.map(Vec::as_slice).unwrap_or_default();
    let find = |items: &[Value], name: &str| {
        items.iter().find(|item| item[key].as_str() == Some(name)).cloned()
    };
    let owned_item = |name: &str| owned.and_then(|owned| owned.get(name));
    let kept = live.iter().filter_map(|existing| {
        let name = name_of(existing, key).unwrap_or_default();
        match find(wanted, &name) {
            Some(item) => merged(field, Some(existing), Some(&item), owned_item(&name)),
            None if wanted.iter().any(|ours| is_same_port(field, ours, existing)) => None,
            None => owned_item(&name).is_none().then(|| existing.clone()),
        }
    });
    let added = wanted
        .iter()
        .filter(|item| name_of(item, key).is_none_or(|name| find(live, &name).is_none()));
    kept.chain(added.cloned()).collect()
}

/// The merge patch from one to the other (RFC 7396).
fn difference(field: &str, from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return (!is_same(field, from, to)).then(|| to.clone());
    };
    // All values in these two are quantities, which the API server rewrites in its own form.
    let field_of = |name| if ["limits", "requests"].contains(&field) { "quantity" } else { name };
    let mut patch = Map::new();
    for (name, after) in after {
        let changed = match before.get(name) {
            Some(before) => difference(field_of(name), before, after),
            None => Some(after.clone()),
        };
        patch.extend(changed.map(|changed| (name.clone(), changed)));
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    patch.extend(gone.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then(|| patch.into())
}

fn is_same(field: &str, from: &Value, to: &Value) -> bool {
    match (from, to) {
        (Value::Array(from), Value::Array(to)) if key_of(field).is_some() => {
            from.len() == to.len()
                && from.iter().zip(to).all(|(from, to)| difference("", from, to).is_none())
        }
        _ if field == "quantity" => quantity(from) == quantity(to),
        _ => from == to,
    }
}

const BILLION: i128 = 1_000_000_000;

/// In thousandths; the text itself if it can't be parsed.
fn quantity(value: &Value) -> Result<i128, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let billionths: i128 = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => BILLION,
        "k" => BILLION * 1_000,
        "M" => BILLION * 1_000_000,
        "G" => BILLION * BILLION,
        "T" => BILLION * BILLION * 1_000,
        "P" => BILLION * BILLION * 1_000_000,
        "E" => BILLION * BILLION * BILLION,
        "Ki" => BILLION << 10,
        "Mi" => BILLION << 20,
        "Gi" => BILLION << 30,
        "Ti" => BILLION << 40,
        "Pi" => BILLION << 50,
        "Ei" => BILLION << 60,
        unit => match power_of_ten(unit) {
            Some(power) => power,
            None => return Err(text),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX));
    let parsed = format!("{whole}{fraction}").parse::<i128>().ok();
    match (parsed.and_then(|number| number.checked_mul(billionths)), scale) {
        // The API server keeps thousandths, and rounds up.
        (Some(number), Some(scale)) => Ok((number / scale + 999_999) / 1_000_000),
        _ => Err(text),
    }
}

/// Of an exponent such as `e3`, in billionths; none where there is no whole number of them.
fn power_of_ten(unit: &str) -> Option<i128> {
    let exponent: i32 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    10_i128.checked_pow(exponent.checked_add(9)?.try_into().ok()?)
}

fn take(value: &mut Value, pointer: &str) {
    if let Some((parent, name)) = pointer.rsplit_once('/')
        && let Some(fields) = value.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        fields.remove(name);
    }
}

#[cfg(test)]
mod tests;
