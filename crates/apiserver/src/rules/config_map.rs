//! ConfigMaps.

use serde_json::Value;

use super::{LARGEST, data_keys, decoded_length, finalizer_names, kept_immutable};
use crate::api_error::Cause;

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (data, binary) = (&object["data"], &object["binaryData"]);
    data_keys(data, "data", &mut causes);
    for key in data.as_object().into_iter().flat_map(|data| data.keys()) {
        if binary.get(key).is_some() {
            let why = "duplicate of key present in binaryData";
            causes.push(Cause::invalid(format!("data[{key}]"), &format!("{key:?}"), why));
        }
    }
    data_keys(binary, "binaryData", &mut causes);
    let texts = |value: &Value, length: fn(&str) -> usize| -> usize {
        let values = value.as_object().into_iter().flat_map(|data| data.values());
        values.filter_map(Value::as_str).map(length).sum()
    };
    if texts(data, str::len) + texts(binary, decoded_length) > LARGEST {
        causes.push(Cause::too_long("[]", LARGEST));
    }
    causes
}

pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes = kept_immutable(object, current, &["data", "binaryData"]);
    causes.extend(validate(object));
    causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    causes
}
