//! Contents of objects other than Routes, mostly valid.

use serde_json::{Value, json};

use super::Generator;

const TIMES: &[&str] = &[
    "2026-01-02T03:04:05.678901Z",
    "2026-01-02T03:04:05.000000Z",
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05.6Z",
    "2026-01-02T05:04:05.678901+02:00",
];
const BAD_TIMES: &[&str] = &["yesterday", "2026-01-02", "2026-01-02T03:04:05", ""];

impl Generator {
    pub fn secret(&mut self) -> Value {
        let data = self.secret_data();
        match self.rng.u32(0..24) {
            0..6 => json!({ "data": data }),
            6..8 => json!({ "type": "Opaque", "data": data, "stringData": { "a": "clear", "n": "" } }),
            8..11 => json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "Y2VydA==", "tls.key": "bm90IGEga2V5" } }),
            11 => json!({ "type": "kubernetes.io/tls", "stringData": { "tls.crt": "", "tls.key": "" } }),
            12 => self.one_of(vec![
                json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "Y2VydA==" } }),
                json!({ "type": "kubernetes.io/tls", "data": { "tls.key": "Y2VydA==" } }),
                json!({ "type": "kubernetes.io/tls" }),
            ]),
            13 => json!({ "immutable": true, "data": data }),
            14 => json!({ "immutable": false, "stringData": { "b": "clear" } }),
            15 => self.one_of(vec![
                json!({ "type": "kubernetes.io/basic-auth", "stringData": { "username": "u" } }),
                json!({ "type": "kubernetes.io/basic-auth", "stringData": { "user": "u" } }),
                json!({ "type": "kubernetes.io/ssh-auth", "stringData": { "ssh-privatekey": "none" } }),
                json!({ "type": "kubernetes.io/ssh-auth", "stringData": { "ssh": "none" } }),
                json!({ "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": "{\"auths\":{}}" } }),
                json!({ "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": "not json" } }),
                json!({ "type": "kubernetes.io/dockerconfigjson", "data": {} }),
                json!({ "type": "kubernetes.io/dockercfg", "stringData": { ".dockercfg": "{}" } }),
                json!({ "type": "kubernetes.io/dockercfg" }),
            ]),
            16 => self.one_of(vec![
                json!({ "type": "kubernetes.io/service-account-token" }),
                json!({ "type": "example.com/own", "data": { "x": "eA==" } }),
                json!({ "type": "bootstrap.kubernetes.io/token" }),
                json!({ "type": "" }),
            ]),
            17 => self.one_of(vec![
                json!({ "data": { "a/b": "eA==" } }),
                json!({ "data": { "..": "eA==" } }),
                json!({ "data": { "": "eA==" } }),
                json!({ "data": { "..x": "eA==", "b c": "eA==" } }),
                json!({ "stringData": { "a b": "x" } }),
            ]),
            18 => self.one_of(vec![
                json!({ "data": { "a": "not base64!" } }),
                json!({ "data": { "a": "eA" } }),
                json!({ "data": { "a": 7 } }),
                json!({ "data": "eA==" }),
                json!({ "data": ["eA=="] }),
                json!({ "stringData": { "a": 7 } }),
                json!({ "immutable": "yes" }),
                json!({ "type": 7 }),
            ]),
            19 => json!({ "data": { "a": null, "b": "" } }),
            20 => json!({ "data": null, "stringData": null, "immutable": null, "type": null }),
            21 => json!({}),
            _ => json!({ "stringData": { "a": "clear", "b": "text" } }),
        }
    }

    fn secret_data(&mut self) -> Value {
        self.one_of(vec![
            json!({ "a": "eA==" }),
            json!({ "a": "eQ==", "b": "eg==" }),
            json!({ "b": "" }),
            json!({}),
        ])
    }

    pub fn secret_change(&mut self) -> Value {
        self.one_of(vec![
            json!({ "data": { "a": "eHg=" } }),
            json!({ "data": { "a": null } }),
            json!({ "data": { "c": "eQ==" } }),
            json!({ "data": null }),
            json!({ "stringData": { "a": "other" } }),
            json!({ "stringData": { "d": "more" }, "data": { "a": "eA==" } }),
            json!({ "type": "Opaque" }),
            json!({ "type": "kubernetes.io/tls" }),
            json!({ "type": "example.com/own" }),
            json!({ "type": null }),
            json!({ "immutable": true }),
            json!({ "immutable": false }),
            json!({ "immutable": null }),
            json!({ "immutable": true, "data": { "a": "eHl6" } }),
            json!({ "data": { "tls.crt": "bmV3" } }),
            json!({ "data": { "tls.key": null } }),
            json!({ "data": { "a": "%%%" } }),
            json!({ "data": { "a/b": "eA==" } }),
            json!({ "data": { "a": 1 } }),
        ])
    }

    pub fn config_map(&mut self) -> Value {
        match self.rng.u32(0..16) {
            0..6 => json!({ "data": { "a": "one", "b": "" } }),
            6..8 => json!({ "data": { "a": "one" }, "binaryData": { "c": "eA==" } }),
            8 => json!({ "data": { "a": "one" }, "immutable": true }),
            9 => json!({ "data": { "a": "one" }, "binaryData": { "a": "eA==" } }),
            10 => json!({ "data": { "a/b": "x", "..": "y" } }),
            11 => json!({ "binaryData": { "a b": "eA==" } }),
            12 => self.one_of(vec![
                json!({ "data": { "a": 1 } }),
                json!({ "data": ["a"] }),
                json!({ "binaryData": { "a": "!" } }),
                json!({ "immutable": 1 }),
            ]),
            13 => json!({ "data": { "a": null } }),
            _ => json!({}),
        }
    }

    pub fn config_map_change(&mut self) -> Value {
        self.one_of(vec![
            json!({ "data": { "a": "two" } }),
            json!({ "data": { "a": null, "z": "zed" } }),
            json!({ "data": null }),
            json!({ "binaryData": { "c": "eXk=" } }),
            json!({ "binaryData": { "a": "eXk=" } }),
            json!({ "immutable": true }),
            json!({ "immutable": null }),
            json!({ "data": { "a": true } }),
            json!({ "data": { "no/slash": "x" } }),
        ])
    }

    pub fn lease(&mut self) -> Value {
        let (acquired, renewed) = (self.pick(TIMES), self.pick(TIMES));
        match self.rng.u32(0..16) {
            0..8 => json!({ "spec": {
                "holderIdentity": self.pick(&["one", "two"]), "leaseDurationSeconds": 15,
                "acquireTime": acquired, "renewTime": renewed, "leaseTransitions": self.rng.u32(0..3),
            } }),
            8 => json!({ "spec": {} }),
            9 => json!({}),
            10 => {
                json!({ "spec": { "leaseDurationSeconds": self.one_of(vec![json!(0), json!(-1), json!("15"), json!(1.5), json!(4_294_967_296_u64)]) } })
            }
            11 => {
                json!({ "spec": { "leaseTransitions": -1, "leaseDurationSeconds": 0, "holderIdentity": "" } })
            }
            12 => json!({ "spec": { "renewTime": self.pick(BAD_TIMES) } }),
            13 => json!({ "spec": { "renewTime": null, "acquireTime": acquired } }),
            14 => json!({ "spec": { "holderIdentity": 7 } }),
            _ => json!({ "spec": { "preferredHolder": "three" } }),
        }
    }

    pub fn lease_change(&mut self) -> Value {
        let time = self.pick(TIMES);
        self.one_of(vec![
            json!({ "spec": { "renewTime": time } }),
            json!({ "spec": { "renewTime": null } }),
            json!({ "spec": { "holderIdentity": "three", "leaseTransitions": 4 } }),
            json!({ "spec": { "holderIdentity": "" } }),
            json!({ "spec": { "leaseDurationSeconds": 30 } }),
            json!({ "spec": { "leaseDurationSeconds": 0 } }),
            json!({ "spec": { "leaseTransitions": -3 } }),
            json!({ "spec": null }),
        ])
    }

    /// An Event as client-go's old recorder writes it, or the new one through the old group.
    pub fn core_event(&mut self) -> Value {
        let namespace = self.pick(&["${a}", "${a}", "${a}", "${b}", "", "default"]);
        let about = json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "name": self.pick(&["a", "b"]), "namespace": namespace, "uid": "u-1" });
        match self.rng.u32(0..12) {
            0..5 => json!({
                "involvedObject": about, "reason": self.pick(&["Injected", "Other"]), "message": "words", "type": self.pick(&["Normal", "Warning"]),
                "count": 1, "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z", "source": { "component": "x" },
            }),
            5..8 => json!({
                "involvedObject": about, "reason": "Injected", "message": "words", "type": "Normal", "action": "Inject", "eventTime": self.pick(TIMES),
                "reportingComponent": self.pick(&["trustplane.dev/injector", "trustplane.dev/injector", "", "a b/c/d"]), "reportingInstance": "i-1",
            }),
            8 => json!({ "involvedObject": about, "type": "Odd", "eventTime": self.pick(TIMES) }),
            9 => {
                json!({ "involvedObject": about, "series": { "count": 2, "lastObservedTime": self.pick(TIMES) }, "eventTime": self.pick(TIMES), "reportingComponent": "a/b", "reportingInstance": "c", "action": "d", "reason": "e", "type": "Normal" })
            }
            10 => json!({ "message": "about nothing" }),
            _ => self.one_of(vec![
                json!({ "involvedObject": "a" }),
                json!({ "involvedObject": about, "firstTimestamp": "now" }),
                json!({ "involvedObject": about, "count": "one" }),
            ]),
        }
    }

    pub fn core_event_change(&mut self) -> Value {
        self.one_of(vec![
            json!({ "count": 2, "lastTimestamp": "2026-02-02T03:04:05Z" }),
            json!({ "message": "other words" }),
            json!({ "involvedObject": { "name": "c" } }),
            json!({ "series": { "count": 3, "lastObservedTime": "2026-01-02T03:04:05.000001Z" } }),
            json!({ "series": { "count": 1 } }),
            json!({ "type": "Odd" }),
            json!({ "reason": null }),
            json!({ "eventTime": "2026-05-02T03:04:05.000001Z" }),
            json!({ "count": -1 }),
        ])
    }

    /// An Event as the controllers write it.
    pub fn event(&mut self) -> Value {
        let namespace = self.pick(&["${a}", "${a}", "${a}", "${b}", ""]);
        let about = json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "name": self.pick(&["a", "b"]), "namespace": namespace, "uid": "u-1" });
        let whole = json!({
            "regarding": about, "reason": self.pick(&["Injected", "Refused"]), "note": "words", "type": self.pick(&["Normal", "Warning"]),
            "action": "Inject", "eventTime": self.pick(TIMES), "reportingController": "trustplane.dev/injector", "reportingInstance": "injector-1",
        });
        let without = |field: &str| {
            let mut event = whole.clone();
            event.as_object_mut().expect("an object").remove(field);
            event
        };
        let with = |field: &str, value: Value| {
            let mut event = whole.clone();
            event[field] = value;
            event
        };
        match self.rng.u32(0..20) {
            0..9 => whole,
            9 => with("series", json!({ "count": 2, "lastObservedTime": self.pick(TIMES) })),
            10 => with("series", json!({ "count": self.rng.u32(0..2) })),
            11 => with("note", "x".repeat(1025).into()),
            12 => with("reportingController", self.pick(&["no-slash", "a/b/c", "a b/c"]).into()),
            13 => with("type", self.pick(&["Odd", "", "normal"]).into()),
            14 => with("deprecatedCount", 3.into()),
            15 => with("deprecatedSource", json!({ "component": "x" })),
            16 => with("reason", "r".repeat(129).into()),
            17 => with("eventTime", self.pick(BAD_TIMES).into()),
            _ => {
                let field = self.pick(&[
                    "eventTime",
                    "reportingController",
                    "reportingInstance",
                    "action",
                    "reason",
                    "type",
                    "regarding",
                    "note",
                ]);
                without(field)
            }
        }
    }

    pub fn event_change(&mut self) -> Value {
        let time = self.pick(TIMES);
        self.one_of(vec![
            json!({ "series": { "count": 2, "lastObservedTime": time } }),
            json!({ "series": { "count": 3, "lastObservedTime": "2026-03-02T03:04:05.000001Z" } }),
            json!({ "series": null }),
            json!({ "note": "other words" }),
            json!({ "reason": "Refused" }),
            json!({ "regarding": { "name": "c" } }),
            json!({ "related": { "kind": "Secret", "name": "s" } }),
            json!({ "eventTime": "2026-05-02T03:04:05.000001Z" }),
            json!({ "series": { "count": 1 } }),
            json!({ "deprecatedCount": 4 }),
        ])
    }

    pub fn namespace(&mut self) -> Value {
        self.one_of(vec![
            json!({}),
            json!({ "spec": {} }),
            json!({ "spec": { "finalizers": ["kubernetes"] } }),
            json!({ "spec": { "finalizers": [] } }),
            json!({ "spec": { "finalizers": ["no-slash"] } }),
            json!({ "status": { "phase": "Terminating" } }),
            json!({ "spec": { "finalizers": "kubernetes" } }),
        ])
    }

    pub fn namespace_change(&mut self) -> Value {
        self.one_of(vec![
            json!({ "metadata": { "labels": { "team": "one" } } }),
            json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": null } } }),
            json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "other" } } }),
            json!({ "spec": { "finalizers": [] } }),
            json!({ "spec": null }),
            json!({ "status": { "phase": "Terminating" } }),
            json!({ "status": { "conditions": [{ "type": "X", "status": "True" }] } }),
            json!({ "status": { "phase": "Odd" } }),
        ])
    }
}
