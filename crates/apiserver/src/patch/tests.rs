use serde_json::json;

use super::*;
use crate::kinds;

fn strategic_on(kind: &Kind, object: Value, change: Value) -> Value {
    let mut object = object;
    strategic(kind, &mut object, &change).unwrap();
    object
}

#[test]
fn a_merge_patch_changes_what_it_names_and_takes_out_what_is_null() {
    let mut object = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
    merge(&mut object, &json!({ "a": { "b": null, "e": { "f": null } }, "d": [2] }));
    assert_eq!(object, json!({ "a": { "c": 2, "e": {} }, "d": [2] }));
}

#[test]
fn ports_of_a_service_are_merged_by_their_number() {
    let ports = |list: Value| json!({ "spec": { "ports": list } });
    let merged = strategic_on(
        kinds::service(),
        ports(json!([{ "port": 80, "name": "web" }, { "port": 443 }])),
        ports(json!([{ "port": 80, "protocol": "TCP" }, { "port": 8080 }])),
    );
    let expected = json!([
        { "port": 80, "name": "web", "protocol": "TCP" }, { "port": 8080 }, { "port": 443 },
    ]);
    assert_eq!(merged, ports(expected));
}

#[test]
fn directives_delete_an_entry_by_its_key_and_replace_a_list() {
    let account = |list: Value| json!({ "secrets": list });
    let old = account(json!([{ "name": "a" }, { "name": "b" }]));
    let change = account(json!([{ "name": "a", "$patch": "delete" }]));
    let kind = kinds::service_account();
    assert_eq!(strategic_on(kind, old.clone(), change), account(json!([{ "name": "b" }])));
    let change = account(json!([{ "$patch": "replace" }, { "name": "c" }]));
    assert_eq!(strategic_on(kind, old, change), account(json!([{ "name": "c" }])));
}

#[test]
fn finalizers_are_a_set_from_which_values_can_be_deleted_and_whose_order_can_be_set() {
    let meta = |list: Value| json!({ "metadata": { "finalizers": list } });
    let kind = kinds::secret();
    let change = meta(json!(["c"]));
    assert_eq!(strategic_on(kind, meta(json!(["a", "b"])), change), meta(json!(["c", "a", "b"])));
    let change = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } });
    assert_eq!(strategic_on(kind, meta(json!(["a", "b"])), change), meta(json!(["b"])));
    let change = json!({ "metadata": { "$setElementOrder/finalizers": ["b", "a"] } });
    assert_eq!(strategic_on(kind, meta(json!(["a", "b"])), change), meta(json!(["b", "a"])));
}

#[test]
fn directives_replace_or_empty_a_map() {
    let data = |map: Value| json!({ "data": map });
    let old = data(json!({ "a": "1", "b": "2" }));
    let kind = kinds::config_map();
    let change = data(json!({ "$patch": "replace", "c": "3" }));
    assert_eq!(strategic_on(kind, old.clone(), change), data(json!({ "c": "3" })));
    assert_eq!(
        strategic_on(kind, old.clone(), data(json!({ "$patch": "delete" }))),
        data(json!({}))
    );
    let change = data(json!({ "$retainKeys": ["a"], "a": "9" }));
    assert_eq!(strategic_on(kind, old, change), data(json!({ "a": "9" })));
}
