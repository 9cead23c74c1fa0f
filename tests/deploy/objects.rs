//! Manifests as objects, so that two ways to write the same thing are the same.

use std::collections::BTreeMap;

use serde_json::Value;

/// Objects by kind, namespace and name.
pub type Objects = BTreeMap<String, Value>;

/// The objects of a text with YAML documents.
pub fn objects(text: &str) -> Objects {
    let mut found = Objects::new();
    for document in text.split("\n---\n") {
        let object: Value =
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}"));
        if object.is_object() {
            let twice = found.insert(name_of(&object), object);
            assert!(twice.is_none(), "twice: {}", name_of(&twice.unwrap_or_default()));
        }
    }
    found
}

/// Such as `Role shop/trustplane-inject`.
pub fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let place = match &metadata["namespace"] {
        Value::Null => String::new(),
        namespace => format!("{}/", text(namespace)),
    };
    format!("{} {place}{}", text(&object["kind"]), text(&metadata["name"]))
}

/// Without what helm puts on every object to know it again.
pub fn without_helms_own(mut objects: Objects) -> Objects {
    let helms_own = |name: &String| {
        name.starts_with("helm.sh/")
            || name == "app.kubernetes.io/managed-by"
            || name == "app.kubernetes.io/instance"
    };
    for object in objects.values_mut() {
        for marks in ["labels", "annotations"] {
            let Some(found) = object["metadata"][marks].as_object_mut() else { continue };
            found.retain(|name, _| !helms_own(name));
            if found.is_empty() {
                object["metadata"].as_object_mut().expect("it holds the marks").remove(marks);
            }
        }
    }
    objects
}

/// What is not the same in both, a line for each; with the place where two objects part.
pub fn differences(left: &Objects, right: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for (name, object) in left {
        match right.get(name) {
            None => found.push(format!("only left: {name}")),
            Some(other) => compare(name, object, other, &mut found),
        }
    }
    found.extend(
        right
            .keys()
            .filter(|name| !left.contains_key(*name))
            .map(|name| format!("only right: {name}")),
    );
    found
}

fn compare(place: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(here), Value::Object(there)) => {
            let mut fields: Vec<&String> = here.keys().chain(there.keys()).collect();
            fields.sort();
            fields.dedup();
            for field in fields {
                compare(&format!("{place}.{field}"), &left[field], &right[field], found);
            }
        }
        (Value::Array(here), Value::Array(there)) if here.len() == there.len() => {
            for (index, (here, there)) in here.iter().zip(there).enumerate() {
                compare(&format!("{place}[{index}]"), here, there, found);
            }
        }
        _ if left != right => found.push(format!("{place}: {left} is not {right}")),
        _ => {}
    }
}

#[test]
fn a_difference_is_named_wherever_it_is() {
    let left = objects(
        "kind: A\nmetadata: {name: a}\nspec: {list: [1, 2]}\n---\nkind: B\nmetadata: {name: b}",
    );
    let right = objects("kind: A\nmetadata: {name: a}\nspec: {list: [1, 3], more: x}");
    assert_eq!(
        differences(&left, &right),
        ["A a.spec.list[1]: 2 is not 3", "A a.spec.more: null is not \"x\"", "only left: B b"]
    );
}
