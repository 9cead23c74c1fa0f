//! Creates, and the metadata that all kinds share.

use http::Method;
use serde_json::{Value, json};

use super::{Generator, Kind};
use crate::call::{Body, Call};

impl Generator {
    pub fn create(&mut self, kind: &Kind) -> Call {
        let collection = self.collection(kind);
        let object = self.object(kind);
        let call = Call::post(collection, object);
        match self.rng.u32(0..100) {
            0..62 => call,
            62..68 => self.with_odd_metadata(call),
            68..74 => self.with_unknown_fields(call),
            74..79 => self.with_generated_name(kind, call),
            79..83 => self.with_wrong_type(call),
            83..87 => self.with_wrong_place(kind, call),
            87..92 => self.with_odd_body(kind, call),
            92..94 => Call { body: Body::Text(yaml_of(&call)), ..call }
                .header("content-type", "application/yaml"),
            _ => self.dry_run(call),
        }
    }

    /// An object that the server usually accepts.
    pub fn object(&mut self, kind: &Kind) -> Value {
        let mut object = (kind.content)(self);
        object["apiVersion"] = kind.api_version.into();
        object["kind"] = kind.kind.into();
        let mut metadata = json!({ "name": self.name(kind) });
        if self.chance(60) {
            metadata["labels"] = self.labels();
        }
        if self.chance(25) {
            metadata["annotations"] = json!({ "note": self.pick(&["one", "two", ""]) });
        }
        if self.chance(8) {
            metadata["finalizers"] = json!(["example.com/hold"]);
        }
        object["metadata"] = metadata;
        object
    }

    pub fn labels(&mut self) -> Value {
        self.one_of(vec![
            json!({ "app": "web" }),
            json!({ "app": "db" }),
            json!({ "app": "web", "tier": "front" }),
            json!({ "tier": "front", "size": "3" }),
        ])
    }

    fn with_odd_metadata(&mut self, call: Call) -> Call {
        let metadata = self.odd_metadata();
        changed(call, |object| {
            for (name, value) in metadata.as_object().into_iter().flatten() {
                object["metadata"][name] = value.clone();
            }
        })
    }

    pub fn odd_metadata(&mut self) -> Value {
        let long = "x".repeat(254);
        self.one_of(vec![
            json!({ "name": "Upper" }),
            json!({ "name": "" }),
            json!({ "name": null }),
            json!({ "name": "a/b" }),
            json!({ "name": ".." }),
            json!({ "name": "a_b" }),
            json!({ "name": long }),
            json!({ "name": 7 }),
            json!({ "labels": { "app": "not a value" } }),
            json!({ "labels": { "not a key": "x", "a/b/c": "y" } }),
            json!({ "labels": { "app": 7 } }),
            json!({ "labels": { "app": null } }),
            json!({ "labels": { "app": "" } }),
            json!({ "labels": null, "annotations": null, "finalizers": null, "ownerReferences": null }),
            json!({ "labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": [] }),
            json!({ "annotations": { "not a key!": "x" } }),
            json!({ "annotations": { "CAPS.example.com/Key": "x" } }),
            json!({ "annotations": { "a": ["list"] } }),
            json!({ "finalizers": ["no-slash"] }),
            json!({ "finalizers": ["example.com/hold", "example.com/hold"] }),
            json!({ "finalizers": ["not valid/é"] }),
            json!({ "finalizers": ["orphan", "foregroundDeletion"], "name": "Upper" }),
            json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Secret", "name": "x" }] }),
            json!({ "ownerReferences": [{ "apiVersion": "", "kind": "", "name": "", "uid": "" }] }),
            json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u" }] }),
            json!({ "ownerReferences": [
                { "apiVersion": "v1", "kind": "A", "name": "x", "uid": "u", "controller": true },
                { "apiVersion": "v1", "kind": "A", "name": "y", "uid": "v", "controller": true },
            ] }),
            json!({ "resourceVersion": "1" }),
            json!({ "resourceVersion": "abc" }),
            json!({ "uid": "mine", "generation": 7, "selfLink": "/x" }),
            json!({ "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7 }),
            json!({ "creationTimestamp": null }),
            json!({ "creationTimestamp": "noon" }),
            json!({ "generation": -1 }),
            json!({ "generateName": "unused-" }),
            json!({ "clusterName": "old" }),
        ])
    }

    fn with_unknown_fields(&mut self, call: Call) -> Call {
        let place = self.pick(&[
            "/unknown",
            "/metadata/unknown",
            "/spec/unknown",
            "/spec/to/unknown",
            "/spec/tls/deep/unknown",
            "/Data",
        ]);
        let call = changed(call, |object| {
            let target = place.split('/').skip(1).fold(object, |target, field| {
                if !target.is_object() {
                    *target = json!({});
                }
                &mut target[field]
            });
            *target = json!({ "x": 1 });
        });
        self.sometimes(75, call, Self::field_validation)
    }

    fn with_generated_name(&mut self, kind: &Kind, call: Call) -> Call {
        self.generated += 1;
        let prefix = kind.prefix(self.generated - 1);
        let prefix = match self.rng.u32(0..8) {
            0 => "Upper-".to_owned(),
            1 => format!("{prefix}{}-", "x".repeat(260)),
            2 => format!("{prefix}a b"),
            _ => prefix,
        };
        changed(call, |object| {
            object["metadata"].as_object_mut().expect("metadata").remove("name");
            object["metadata"]["generateName"] = prefix.clone().into();
        })
    }

    fn with_wrong_type(&mut self, call: Call) -> Call {
        let (field, value) = match self.rng.u32(0..8) {
            0 => ("kind", json!("Pod")),
            1 => ("kind", json!("Nonsense")),
            2 => ("kind", json!(null)),
            3 => ("apiVersion", json!("v2")),
            4 => ("apiVersion", json!("apps/v1")),
            5 => ("apiVersion", json!(null)),
            6 => ("kind", json!("SecretList")),
            _ => ("apiVersion", json!("a/b/c")),
        };
        let both = self.chance(20);
        changed(call, |object| {
            object[field] = value.clone();
            if both {
                object["apiVersion"] = Value::Null;
                object["kind"] = Value::Null;
            }
        })
    }

    fn with_wrong_place(&mut self, kind: &Kind, call: Call) -> Call {
        match self.rng.u32(0..4) {
            0 => Call { path: kind.collection("no-such-namespace"), ..call },
            1 => Call { path: kind.everywhere(), ..call },
            2 => changed(call, |object| object["metadata"]["namespace"] = "${b}".into()),
            _ => changed(call, |object| object["metadata"]["namespace"] = "${a}".into()),
        }
    }

    /// A body that does not match its content type, or is no object.
    pub fn with_odd_body(&mut self, kind: &Kind, call: Call) -> Call {
        let (version, name) = (kind.api_version, kind.kind);
        let texts = [
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
            "[]".to_owned(),
            "7".to_owned(),
            "\"text\"".to_owned(),
            "{}".to_owned(),
            "not json at all".to_owned(),
            format!(
                "{{\"apiVersion\":\"{version}\",\"kind\":\"{name}\",\"metadata\":{{\"name\":\"a\",\"name\":\"b\"}}}}"
            ),
            format!(
                "{{\"apiVersion\":\"{version}\",\"kind\":\"{name}\",\"metadata\":{{\"name\":\"a\"}}}} trailing"
            ),
            format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{name}\",\"metadata\":[]}}"),
            format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{name}\"}}"),
            format!("{{\"apiVersion\":7,\"kind\":\"{name}\"}}"),
        ];
        let text = texts[self.rng.usize(0..texts.len())].clone();
        let call = match self.rng.u32(0..8) {
            0 => call.header("content-type", "text/plain"),
            1 => call.header("content-type", "application/xml"),
            2 => call.header("content-type", ""),
            3 => call.header("content-type", "application/json; charset=utf-8"),
            _ => Call { body: Body::Text(text), ..call },
        };
        self.sometimes(30, call, Self::field_validation)
    }
}

/// The call with another object in its body.
pub fn changed(call: Call, change: impl FnOnce(&mut Value)) -> Call {
    let Body::Json(mut object) = call.body else { return call };
    change(&mut object);
    Call { body: Body::Json(object), ..call }
}

/// The body as block YAML at the top level; the rest is JSON, which is YAML too.
fn yaml_of(call: &Call) -> String {
    debug_assert_eq!(call.method, Method::POST);
    let Body::Json(Value::Object(fields)) = &call.body else { return String::new() };
    fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}
