//! Updates: read, change, write, and every way to get that wrong.

use serde_json::{Value, json};

use super::creates::changed;
use super::{Generator, Kind};
use crate::call::{Body, Call};

impl Generator {
    pub fn update(&mut self, kind: &Kind) -> Call {
        let path = self.object_path(kind);
        let call = match self.rng.u32(0..100) {
            0..50 => self.read_and_changed(kind, &path),
            50..65 => self.overwritten(kind, &path, None),
            65..75 => self.overwritten(kind, &path, Some("rv")),
            75..82 => self.overwritten(kind, &path, Some("stale")),
            82..87 => self.mismatched(kind, &path),
            87..90 => {
                let call = self.overwritten(kind, &path, None);
                self.with_odd_body(kind, call)
            }
            _ => self.status_update(kind, &path),
        };
        let call = self.sometimes(4, call, Self::dry_run);
        self.sometimes(5, call, Self::field_validation)
    }

    fn read_and_changed(&mut self, kind: &Kind, path: &str) -> Call {
        let change = match self.rng.u32(0..10) {
            0..4 => (kind.change)(self),
            4 => json!({}),
            5 => json!({ "metadata": { "labels": self.labels() } }),
            6 => json!({ "metadata": { "finalizers": null } }),
            7 => json!({ "metadata": self.odd_metadata() }),
            8 => {
                json!({ "metadata": { "annotations": { "note": "new" }, "finalizers": ["example.com/hold"] } })
            }
            _ => json!({ "metadata": { "uid": "other" } }),
        };
        let otherwise = self.object(kind);
        let call = Call::put(path, Value::Null);
        Call { body: Body::Seen(change, otherwise), ..call }
    }

    fn overwritten(&mut self, kind: &Kind, path: &str, version: Option<&str>) -> Call {
        let mut object = self.object(kind);
        object["metadata"]["name"] = path.rsplit('/').next().unwrap_or_default().into();
        if let Some(which) = version {
            object["metadata"]["resourceVersion"] = format!("${{{which} {path}}}").into();
        }
        if self.chance(15) {
            object["metadata"]["uid"] = format!("${{uid {path}}}").into();
        }
        Call::put(path, object)
    }

    fn mismatched(&mut self, kind: &Kind, path: &str) -> Call {
        let call = self.overwritten(kind, path, None);
        let (field, value) = match self.rng.u32(0..6) {
            0 => ("name", json!("other")),
            1 => ("namespace", json!("default")),
            2 => ("uid", json!("other")),
            3 => ("resourceVersion", json!("abc")),
            4 => ("resourceVersion", json!("99999999")),
            _ => ("name", json!(null)),
        };
        let wrong_kind = self.chance(20);
        changed(call, |object| {
            object["metadata"][field] = value;
            if wrong_kind {
                object["kind"] = "Pod".into();
            }
        })
    }

    fn status_update(&mut self, kind: &Kind, path: &str) -> Call {
        let status = match kind.kind {
            "Route" => self.route_status(),
            _ => json!({ "phase": self.pick(&["Active", "Terminating", ""]) }),
        };
        // Only the status may change, whatever else is sent.
        let change = match self.rng.u32(0..3) {
            0 => json!({ "status": status }),
            1 => {
                json!({ "status": status, "spec": { "host": "ignored.example.com" }, "metadata": { "labels": { "by": "status" } } })
            }
            _ => json!({ "status": status, "metadata": { "resourceVersion": null } }),
        };
        let otherwise = self.object(kind);
        let call = Call::put(format!("{path}/status"), Value::Null);
        Call { body: Body::Seen(change, otherwise), ..call }
    }
}
