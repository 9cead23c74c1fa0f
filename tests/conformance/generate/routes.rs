//! Contents of Routes: pruning, defaults, enumerations, patterns and rules of our CRD.

use serde_json::{Value, json};

use super::Generator;

impl Generator {
    pub fn route(&mut self) -> Value {
        let mut spec = json!({ "host": self.pick(&["a.example.com", "b.example.com"]), "to": { "kind": "Service", "name": self.pick(&["web", "shop"]) } });
        match self.rng.u32(0..20) {
            0..4 => {}
            4..7 => {
                spec["tls"] = json!({ "termination": "edge", "certificate": "not a certificate", "key": "not a key" })
            }
            7 => spec["tls"] = self.tls(),
            8 => spec["tls"] = json!({}),
            9 => spec["to"] = self.target(),
            10 => spec["port"] = self.port(),
            11 => spec["alternateBackends"] = self.backends(),
            12 => spec["httpHeaders"] = self.headers(),
            13 => spec["host"] = self.host(),
            14 => spec["path"] = self.pick(&["/p", "", "p", "/p/q"]).into(),
            15 => {
                spec["tls"] = json!({ "termination": "passthrough" });
                spec["path"] = "/p".into();
                spec["httpHeaders"] = self.headers();
            }
            16 => spec["wildcardPolicy"] = self.pick(&["None", "Subdomain", "", "Some"]).into(),
            17 => {
                spec = json!({ "to": { "name": "web" }, "wildcardPolicy": "Subdomain", "subdomain": self.pick(&["x", "x.y", "-x", ""]) })
            }
            18 => spec["more"] = json!({ "than": "known" }),
            _ => return self.misshapen_route(),
        }
        match self.rng.u32(0..10) {
            0 => json!({ "spec": spec, "status": self.route_status() }),
            _ => json!({ "spec": spec }),
        }
    }

    fn misshapen_route(&mut self) -> Value {
        self.one_of(vec![
            json!({}),
            json!({ "spec": {} }),
            json!({ "spec": null }),
            json!({ "spec": [] }),
            json!({ "spec": "to" }),
            json!({ "spec": { "to": null } }),
            json!({ "spec": { "to": { "name": "web" }, "tls": null } }),
            json!({ "spec": { "to": { "name": "web" }, "tls": { "termination": null } } }),
            json!({ "spec": { "to": { "name": "web", "weight": null } } }),
            json!({ "spec": { "to": { "name": "web" }, "host": 7 } }),
            json!({ "spec": { "to": { "name": "web" }, "tls": { "termination": 7, "key": [] } } }),
            json!({ "spec": { "to": { "name": "web" }, "host": "no host", "path": "nor path" } }),
        ])
    }

    fn tls(&mut self) -> Value {
        self.one_of(vec![
            json!({ "termination": "reencrypt", "destinationCACertificate": "text" }),
            json!({ "termination": "edge", "destinationCACertificate": "text" }),
            json!({ "termination": "passthrough", "certificate": "text" }),
            json!({ "termination": "passthrough", "certificate": "", "key": "" }),
            json!({ "termination": "passthrough", "insecureEdgeTerminationPolicy": "Allow" }),
            json!({ "termination": "edge", "insecureEdgeTerminationPolicy": "Redirect" }),
            json!({ "termination": "edge", "insecureEdgeTerminationPolicy": "Maybe" }),
            json!({ "termination": "Edge" }),
            json!({ "termination": "edge", "externalCertificate": { "name": "s" } }),
            json!({ "termination": "edge", "externalCertificate": { "name": "s", "kind": "Secret" }, "certificate": "text" }),
            json!({ "certificate": "text", "unknown": true }),
        ])
    }

    fn target(&mut self) -> Value {
        self.one_of(vec![
            json!({ "name": "web" }),
            json!({ "kind": "", "name": "web" }),
            json!({ "kind": "Pod", "name": "web" }),
            json!({ "kind": "Service", "name": "" }),
            json!({ "kind": "Service" }),
            json!({ "name": "web", "weight": 0 }),
            json!({ "name": "web", "weight": 257 }),
            json!({ "name": "web", "weight": -1 }),
            json!({ "name": "web", "weight": 1.5 }),
            json!({ "name": "web", "weight": "1" }),
            json!({ "name": "web", "weight": 3_000_000_000_u64 }),
        ])
    }

    fn port(&mut self) -> Value {
        self.one_of(vec![
            json!({ "targetPort": 8080 }),
            json!({ "targetPort": "http" }),
            json!({ "targetPort": 0 }),
            json!({ "targetPort": "" }),
            json!({ "targetPort": true }),
            json!({ "targetPort": 1.5 }),
            json!({}),
            json!({ "targetPort": null }),
        ])
    }

    fn backends(&mut self) -> Value {
        self.one_of(vec![
            json!([{ "name": "x" }]),
            json!([{ "name": "x", "weight": 1 }, { "name": "y", "kind": "Service", "more": 1 }]),
            json!([{ "kind": "Pod", "name": "" }]),
            json!([{ "name": "x" }, { "name": "x" }, { "name": "x" }, { "name": "x" }]),
            json!([null]),
            json!([]),
            json!({}),
        ])
    }

    fn headers(&mut self) -> Value {
        let set = |name: &str, value: &str| json!({ "name": name, "action": { "type": "Set", "set": { "value": value } } });
        let delete = |name: &str| json!({ "name": name, "action": { "type": "Delete" } });
        self.one_of(vec![
            json!({ "actions": { "request": [set("X-A", "plain"), delete("X-B")] } }),
            json!({ "actions": { "response": [set("X-A", "%[res.hdr(X-B),lower]")] } }),
            json!({ "actions": { "request": [set("X-A", "%[src]")] } }),
            json!({ "actions": { "request": [set("X-A", "1"), set("X-A", "2")] } }),
            json!({ "actions": { "request": [delete("Set-Cookie"), delete("b c")] } }),
            json!({ "actions": { "request": [{ "name": "X-A", "action": { "type": "Set" } }] } }),
            json!({ "actions": { "request": [{ "name": "X-A", "action": { "type": "Append", "set": {} } }] } }),
            json!({ "actions": { "request": [{ "action": {} }, { "name": "" }] } }),
            json!({ "actions": {}, "more": [] }),
            json!({}),
        ])
    }

    fn host(&mut self) -> Value {
        let long = format!("{}.example.com", "x".repeat(250));
        let choices = ["UPPER.example.com", "", "a..b", "-a", "a_b", "*.example.com", &long];
        choices[self.rng.usize(0..choices.len())].into()
    }

    pub fn route_status(&mut self) -> Value {
        self.one_of(vec![
            json!({ "ingress": [{ "host": "a.example.com", "routerName": "default", "conditions": [{ "type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z" }] }] }),
            json!({ "certificate": [{ "type": "Managed", "status": "True", "reason": "SecretInjected" }, { "type": "Default", "status": "False" }] }),
            json!({ "certificate": [{ "type": "Managed", "status": "True" }, { "type": "Default", "status": "True" }] }),
            json!({ "certificate": [{ "type": "Managed", "status": "True" }, { "type": "Managed", "status": "False" }] }),
            json!({ "certificate": [{ "type": "Odd", "status": "Maybe" }, {}] }),
            json!({ "certificate": [], "unknown": 1 }),
            json!({ "ingress": [{ "conditions": [{ "type": "Admitted", "status": "True", "lastTransitionTime": "noon" }] }] }),
            json!({ "ingress": null }),
            json!({}),
            json!(null),
        ])
    }

    pub fn route_change(&mut self) -> Value {
        match self.rng.u32(0..12) {
            0 => json!({ "spec": { "tls": self.tls() } }),
            1 => json!({ "spec": { "to": self.target() } }),
            2 => json!({ "spec": { "port": self.port() } }),
            3 => json!({ "spec": { "httpHeaders": self.headers() } }),
            4 => json!({ "spec": { "host": self.host() } }),
            5 => json!({ "spec": { "alternateBackends": self.backends() } }),
            // Has no effect here. A body that violates the schema's lists would corrupt the real
            // server's managedFields: see differences.rs.
            6 => json!({ "status": { "certificate": [{ "type": "Managed", "status": "True" }] } }),
            _ => self.one_of(vec![
                json!({ "spec": { "tls": { "certificate": "new", "key": "new" } } }),
                json!({ "spec": { "tls": { "certificate": null, "key": null } }, "metadata": { "annotations": { "note": null } } }),
                json!({ "spec": { "tls": null } }),
                json!({ "spec": { "host": "b.example.com" } }),
                json!({ "spec": { "to": { "weight": null } } }),
                json!({ "spec": { "to": null } }),
                json!({ "spec": null }),
                json!({ "spec": { "unknown": { "deep": 1 } }, "top": 1 }),
                json!({ "spec": { "path": "/new" } }),
                json!({ "spec": { "wildcardPolicy": null, "to": { "kind": null } } }),
            ]),
        }
    }
}
