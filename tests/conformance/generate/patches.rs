//! Patches of all three kinds.

use serde_json::{Value, json};

use super::{Generator, Kind};
use crate::call::{Body, Call};

const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Generator {
    pub fn patch(&mut self, kind: &Kind) -> Call {
        let path = self.object_path(kind);
        let call = match self.rng.u32(0..100) {
            0..45 => {
                let change = self.merge_patch(kind, &path);
                Call::merge(path, change)
            }
            45..67 => {
                let operations = self.json_patch(kind, &path);
                Call::patch(JSON, path, operations)
            }
            67..84 => {
                let change = self.strategic_patch(kind, &path);
                Call::patch(STRATEGIC, path, change)
            }
            84..94 => self.status_patch(kind, &path),
            _ => self.misshapen_patch(&path),
        };
        let call = self.sometimes(4, call, Self::dry_run);
        self.sometimes(6, call, Self::field_validation)
    }

    fn merge_patch(&mut self, kind: &Kind, path: &str) -> Value {
        let mut change = match self.rng.u32(0..10) {
            0..5 => (kind.change)(self),
            5..7 => self.metadata_change(),
            7 => json!({ "metadata": self.odd_metadata() }),
            8 => json!({}),
            _ => json!({ "metadata": { "finalizers": null } }),
        };
        match self.rng.u32(0..12) {
            0 => change["metadata"]["resourceVersion"] = format!("${{rv {path}}}").into(),
            1 => change["metadata"]["resourceVersion"] = format!("${{stale {path}}}").into(),
            2 => change["metadata"]["uid"] = format!("${{uid {path}}}").into(),
            3 => change["metadata"]["uid"] = "other".into(),
            4 => change["unknown"] = json!({ "x": 1 }),
            _ => {}
        }
        change
    }

    fn metadata_change(&mut self) -> Value {
        self.one_of(vec![
            json!({ "metadata": { "labels": { "app": "web" } } }),
            json!({ "metadata": { "labels": { "app": "db", "tier": null } } }),
            json!({ "metadata": { "labels": null } }),
            json!({ "metadata": { "annotations": { "note": "patched" } } }),
            json!({ "metadata": { "annotations": null } }),
            json!({ "metadata": { "annotations": { "note": null, "more": "x" } } }),
            json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
            json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } }),
            json!({ "metadata": { "finalizers": [] } }),
            json!({ "metadata": { "name": "other" } }),
            json!({ "metadata": { "namespace": "other" } }),
            json!({ "metadata": { "generation": 99 } }),
            json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } }),
            json!({ "metadata": { "creationTimestamp": null } }),
            json!({ "metadata": { "deletionTimestamp": "2020-01-01T00:00:00Z" } }),
            json!({ "metadata": { "uid": null } }),
            json!({ "metadata": { "resourceVersion": null } }),
            json!({ "metadata": { "resourceVersion": "" } }),
            json!({ "metadata": { "resourceVersion": "abc" } }),
            json!({ "metadata": null }),
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Secret", "name": "x" }] } }),
        ])
    }

    fn json_patch(&mut self, kind: &Kind, path: &str) -> Value {
        let version = format!("${{rv {path}}}");
        let stale = format!("${{stale {path}}}");
        let mut operations = vec![
            json!({ "op": "add", "path": "/metadata/labels", "value": { "app": "json" } }),
            json!({ "op": "add", "path": "/metadata/labels/app", "value": "web" }),
            json!({ "op": "replace", "path": "/metadata/labels/app", "value": "db" }),
            json!({ "op": "remove", "path": "/metadata/labels/app" }),
            json!({ "op": "remove", "path": "/metadata/finalizers" }),
            json!({ "op": "remove", "path": "/metadata/finalizers/0" }),
            json!({ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold" }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": { "a~b/c": "x" } }),
            json!({ "op": "replace", "path": "/metadata/annotations/a~0b~1c", "value": "y" }),
            json!({ "op": "test", "path": "/metadata/name", "value": "a" }),
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version }),
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": stale }),
            json!({ "op": "test", "path": "/metadata/labels/app", "value": "web" }),
            json!({ "op": "test", "path": "/no/such", "value": null }),
            json!({ "op": "copy", "from": "/metadata/name", "path": "/metadata/labels/name" }),
            json!({ "op": "move", "from": "/metadata/labels", "path": "/metadata/annotations" }),
            json!({ "op": "replace", "path": "/metadata/name", "value": "other" }),
            json!({ "op": "replace", "path": "/no/such/place", "value": 1 }),
            json!({ "op": "add", "path": "/unknown", "value": 1 }),
            json!({ "op": "leap", "path": "/metadata" }),
            json!({ "op": "add", "path": "no-slash", "value": 1 }),
            json!({ "op": "add", "path": "/metadata/labels/x" }),
            json!({ "op": "remove" }),
        ];
        operations.extend(match kind.kind {
            "Route" => vec![
                json!({ "op": "replace", "path": "/spec/host", "value": "b.example.com" }),
                json!({ "op": "add", "path": "/spec/tls", "value": { "termination": "edge" } }),
                json!({ "op": "remove", "path": "/spec/tls" }),
                json!({ "op": "replace", "path": "/spec/to/weight", "value": 300 }),
                json!({ "op": "remove", "path": "/spec/to/weight" }),
                json!({ "op": "add", "path": "/spec/alternateBackends", "value": [{ "name": "x" }] }),
                json!({ "op": "add", "path": "/spec/alternateBackends/0", "value": { "name": "y" } }),
                json!({ "op": "add", "path": "/spec/alternateBackends/9", "value": { "name": "z" } }),
            ],
            "Secret" | "ConfigMap" => vec![
                json!({ "op": "add", "path": "/data/a", "value": "eA==" }),
                json!({ "op": "replace", "path": "/data/a", "value": "eQ==" }),
                json!({ "op": "remove", "path": "/data" }),
                json!({ "op": "test", "path": "/data/a", "value": "eA==" }),
                json!({ "op": "add", "path": "/immutable", "value": true }),
            ],
            "Lease" => vec![
                json!({ "op": "replace", "path": "/spec/holderIdentity", "value": "json" }),
                json!({ "op": "add", "path": "/spec/leaseDurationSeconds", "value": 20 }),
                json!({ "op": "test", "path": "/spec/leaseTransitions", "value": 1 }),
            ],
            _ => vec![json!({ "op": "replace", "path": "/reason", "value": "Json" })],
        });
        let count = self.rng.usize(0..4);
        (0..count).map(|_| operations[self.rng.usize(0..operations.len())].clone()).collect()
    }

    fn strategic_patch(&mut self, kind: &Kind, path: &str) -> Value {
        match self.rng.u32(0..10) {
            0..5 => self.merge_patch(kind, path),
            _ => self.one_of(vec![
                json!({ "metadata": { "labels": { "$patch": "replace", "only": "this" } } }),
                json!({ "metadata": { "labels": { "$patch": "delete" } } }),
                json!({ "metadata": { "finalizers": ["example.com/second"] } }),
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/hold"] } }),
                json!({ "metadata": { "$setElementOrder/finalizers": ["example.com/second", "example.com/hold"], "finalizers": ["example.com/second"] } }),
                json!({ "metadata": { "annotations": { "note": "strategic", "gone": null } } }),
                json!({ "data": { "$patch": "replace", "z": "eg==" } }),
                json!({ "data": { "$retainKeys": ["a"], "a": "eA==" } }),
                json!({ "$patch": "delete" }),
                json!({ "$patch": "odd" }),
                json!({ "metadata": { "labels": { "$patch": 7 } } }),
            ]),
        }
    }

    fn status_patch(&mut self, kind: &Kind, path: &str) -> Call {
        let status = match kind.kind {
            "Route" => self.route_status(),
            _ => json!({ "phase": self.pick(&["Active", "Terminating"]) }),
        };
        let mut change = json!({ "status": status });
        if self.chance(30) {
            change["spec"] = json!({ "host": "ignored.example.com" });
        }
        if self.chance(30) {
            change["metadata"] = self.one_of(vec![
                json!({ "resourceVersion": format!("${{rv {path}}}") }),
                json!({ "resourceVersion": format!("${{stale {path}}}") }),
                json!({ "labels": { "by": "status" }, "annotations": { "by": "status" } }),
            ]);
        }
        match self.rng.u32(0..8) {
            0 => Call::patch(
                JSON,
                format!("{path}/status"),
                json!([{ "op": "add", "path": "/status", "value": status }]),
            ),
            1 => Call::patch(STRATEGIC, format!("{path}/status"), change),
            _ => Call::merge(format!("{path}/status"), change),
        }
    }

    fn misshapen_patch(&mut self, path: &str) -> Call {
        let kind = ["application/merge-patch+json", JSON, STRATEGIC][self.rng.usize(0..3)];
        let texts = [
            "",
            "{",
            "null",
            "[]",
            "7",
            "\"x\"",
            "[7]",
            "[{}]",
            "[{\"op\":7}]",
            "{} x",
            "{\"metadata\":7}",
            "{\"metadata\":{\"labels\":7}}",
        ];
        let text = self.pick(&texts).to_owned();
        let call = Call::patch(kind, path, Value::Null);
        match self.rng.u32(0..5) {
            0 => call.header("content-type", "application/json"),
            1 => call.header("content-type", "text/plain"),
            _ => Call { body: Body::Text(text), ..call },
        }
    }
}
