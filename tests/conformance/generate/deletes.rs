//! Deletes of one object and of many.

use serde_json::{Value, json};

use super::{Generator, Kind};
use crate::call::{Body, Call};

impl Generator {
    pub fn delete(&mut self, kind: &Kind) -> Call {
        let path = self.object_path(kind);
        let call = Call::delete(path.clone());
        // In a real cluster another process deletes a namespace's content: see lifecycle.rs.
        if !kind.namespaced {
            return match self.rng.u32(0..3) {
                0 => call.with("dryRun", "All"),
                1 => call.json(json!({ "preconditions": { "uid": "other" } })),
                _ => call.json(json!({ "preconditions": { "resourceVersion": "1" } })),
            };
        }
        match self.rng.u32(0..100) {
            0..60 => call,
            60..75 => self.with_preconditions(&path, call),
            75..90 => self.with_propagation(call),
            90..95 => self.with_odd_options(call),
            _ => self.dry_run(call),
        }
    }

    fn with_preconditions(&mut self, path: &str, call: Call) -> Call {
        let preconditions = self.one_of(vec![
            json!({ "uid": format!("${{uid {path}}}") }),
            json!({ "uid": "other" }),
            json!({ "resourceVersion": format!("${{rv {path}}}") }),
            json!({ "resourceVersion": format!("${{stale {path}}}") }),
            json!({ "uid": format!("${{uid {path}}}"), "resourceVersion": format!("${{rv {path}}}") }),
            json!({ "uid": "" }),
            json!({}),
        ]);
        call.json(json!({ "preconditions": preconditions }))
    }

    fn with_propagation(&mut self, call: Call) -> Call {
        match self.rng.u32(0..9) {
            0 => call.with("propagationPolicy", "Foreground"),
            1 => call.with("propagationPolicy", "Background"),
            2 => call.with("propagationPolicy", "Orphan"),
            3 => call.with("propagationPolicy", "Sideways"),
            4 => call.json(json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground" })),
            5 => call.json(json!({ "kind": "DeleteOptions", "apiVersion": "v1", "orphanDependents": true })),
            6 => call.json(json!({ "orphanDependents": false, "propagationPolicy": "Foreground" })),
            7 => call.json(json!({ "propagationPolicy": "Background" })),
            _ => call.with("orphanDependents", "false"),
        }
    }

    fn with_odd_options(&mut self, call: Call) -> Call {
        match self.rng.u32(0..8) {
            0 => call.json(json!({ "gracePeriodSeconds": 0 })),
            1 => call.with("gracePeriodSeconds", "30"),
            2 => call.with("gracePeriodSeconds", "soon"),
            3 => call.json(json!({ "apiVersion": "v1", "kind": "Secret" })),
            4 => call.json(json!({ "unknown": 1, "dryRun": ["All"] })),
            5 => call.json(json!({ "dryRun": ["Some"] })),
            6 => Call { body: Body::Text("{".to_owned()), ..call.json(Value::Null) },
            _ => call.json(json!({ "gracePeriodSeconds": -1 })),
        }
    }

    pub fn delete_collection(&mut self, kind: &Kind) -> Call {
        let call = Call::delete(self.collection(kind));
        match self.rng.u32(0..10) {
            0..5 => call.with("labelSelector", self.pick(&["app=web", "app=db", "tier", "!app"])),
            5 => call.with("fieldSelector", self.pick(&["metadata.name=a", "metadata.name!=a"])),
            6 => call.with("labelSelector", "app=web").with("dryRun", "All"),
            7 => call.with("labelSelector", "a b"),
            // The garbage collector of a real cluster deletes objects in any order.
            8 => call.with("labelSelector", "app=web").with("propagationPolicy", "Background"),
            _ => call,
        }
    }
}
