//! A second implementation of the table in docs/inject.md, on Routes as JSON.
//!
//! Independent of the product's code: merge patch (RFC 7386), marker, row and write are implemented
//! again.

use chrono::{DateTime, Utc};
use openssl::sha::Sha256;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use trustplane::{
    api::route::{CertificateCondition, Route},
    inject::decide::{
        facts::RouteFacts,
        plan::{OnInvalid, Policy},
        secret_state::SecretState,
        write::Write,
    },
    tls::{Pair, RULES},
};

pub const MARKER: &str = "trustplane.dev/injected";
pub const SOURCE: &str = "trustplane.dev/injected-from";
pub const ASKS: &str = "route.openshift.io/tls-secret-name";

/// The marker of docs/inject.md: a digest of the length-prefixed uid, certificate and key.
pub fn marker(uid: &str, certificate: &str, key: &str) -> String {
    let digest = |parts: &[&str]| {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hex::encode(hash.finish())
    };
    format!("v1:{}:{}", digest(&[uid, certificate, key]), digest(&[uid, key]))
}

/// The injected-from annotation for a pair with this marker.
pub fn source(uid: &str, version: &str, marker: &str) -> String {
    format!("v1:{uid}:{version}:{RULES}:{}", &marker[3..19])
}

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The Secret that the annotation names.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    pub seen: &'a SecretState,
    /// The pair, if it is usable.
    pub pair: Option<&'a Pair>,
    /// Certificate and key, if the router would refuse them for any Route.
    pub refused: Option<(&'a str, &'a str)>,
    /// Whether the annotation can be the name of a Secret.
    pub named: bool,
}

#[derive(Clone, PartialEq)]
pub struct Model(pub Value);

impl Model {
    pub fn facts(&self) -> RouteFacts {
        let route = Route::deserialize(&self.0).unwrap();
        RouteFacts::read(&route)
    }

    fn text(&self, path: &str) -> &str {
        self.0.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn certificate(&self) -> &str {
        self.text("/spec/tls/certificate")
    }

    pub fn key(&self) -> &str {
        self.text("/spec/tls/key")
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.0["metadata"]["annotations"].get(name).and_then(Value::as_str)
    }

    pub fn has_marker(&self) -> bool {
        self.annotation(MARKER).is_some()
    }

    pub fn is_annotated(&self) -> bool {
        self.annotation(ASKS).is_some_and(|name| !name.is_empty())
    }

    pub fn has_conditions(&self) -> bool {
        self.0
            .pointer("/status/certificate")
            .and_then(Value::as_array)
            .is_some_and(|all| !all.is_empty())
    }

    pub fn conditions(&self) -> Vec<CertificateCondition> {
        let stored = self.0.pointer("/status/certificate").cloned().unwrap_or_else(|| json!([]));
        serde_json::from_value(stored).unwrap()
    }

    /// The pair is ours if and only if the marker matches it.
    pub fn is_ours(&self) -> bool {
        self.annotation(MARKER) == Some(&marker(self.uid(), self.certificate(), self.key()))
    }

    /// A key without a certificate that matches the second half of the marker.
    pub fn is_our_key_left_over(&self) -> bool {
        let wanted = marker(self.uid(), "", self.key());
        let second = |marker: &str| marker.rsplit(':').next().unwrap_or_default().to_owned();
        let is_hex = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit());
        let well_formed = |marker: &str| {
            marker.len() == wanted.len()
                && marker.starts_with("v1:")
                && marker[3..].split(':').all(is_hex)
        };
        !self.key().is_empty()
            && self
                .annotation(MARKER)
                .is_some_and(|marker| well_formed(marker) && second(marker) == second(&wanted))
    }

    /// The first row of the table that matches.
    pub fn row(&self, requested: Requested<'_>) -> &'static str {
        let Some(tls) = self.0["spec"].get("tls") else {
            return if self.is_left_alone() { "1" } else { "2" };
        };
        let external = tls["externalCertificate"]["name"].as_str().unwrap_or_default();
        let holds_certificate = !self.certificate().is_empty();
        let holds_refused =
            requested.named && requested.refused == Some((self.certificate(), self.key()));
        match () {
            () if self.is_left_alone() => "1",
            () if tls["termination"] == "passthrough" => "3",
            () if !external.is_empty() => "4",
            () if self.is_annotated() => match requested.pair.filter(|_| requested.named) {
                Some(pair) if self.holds(pair) && self.is_ours() => "5",
                Some(pair) if self.holds(pair) => "6",
                Some(_) => "7",
                None if holds_certificate && self.is_ours() && holds_refused => "7a",
                None if holds_certificate && self.is_ours() => "8",
                None if holds_certificate => "9",
                None => "10",
            },
            () if self.has_marker() && holds_certificate && self.is_ours() => "11",
            () if self.has_marker() && holds_certificate => "12",
            () if self.has_marker() => "13",
            () => "14",
        }
    }

    pub fn is_left_alone(&self) -> bool {
        let groups = [
            "networking.k8s.io/v1",
            "networking.k8s.io/v1beta1",
            "extensions/v1beta1",
            "extensions.k8s.io/v1beta1",
        ];
        let owners = self.0["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        self.0["metadata"].get("deletionTimestamp").is_some()
            || owners.iter().any(|owner| {
                owner["controller"] == true
                    && owner["kind"] == "Ingress"
                    && groups.contains(&owner["apiVersion"].as_str().unwrap_or_default())
            })
    }

    pub fn holds(&self, pair: &Pair) -> bool {
        self.certificate() == pair.certificate() && self.key() == pair.key().expose()
    }

    /// The write of this row.
    pub fn write(
        &self,
        requested: Requested<'_>,
        now: DateTime<Utc>,
        policy: &Policy,
    ) -> Option<Write> {
        let drop_marker = self.has_marker().then_some(Write::DropMarker);
        let left_over =
            if self.is_our_key_left_over() { Some(Write::ClearKey) } else { drop_marker };
        match self.row(requested) {
            "1" | "5" | "7a" | "14" => None,
            "4" if !self.certificate().is_empty() && self.is_ours() => Some(Write::Clear),
            "4" if self.certificate().is_empty() => left_over,
            "2" | "3" | "4" | "9" | "12" => drop_marker,
            "6" => requested.pair.map(|pair| Write::AddMarker(pair.fingerprint())),
            "7" => requested.pair.map(|pair| Write::Inject(pair.fingerprint())),
            "8" if waits(requested, now, policy) || keeps(requested, policy) => None,
            "8" | "11" => Some(Write::Clear),
            "10" | "13" => left_over,
            other => panic!("there is no row {other}"),
        }
    }

    /// Applies a write. The pair is from the Secret with this uid and version.
    pub fn after(
        &self,
        write: Option<Write>,
        pair: Option<&Pair>,
        (uid, version): (&str, &str),
        conditions: Option<&[CertificateCondition]>,
    ) -> Self {
        let mut after = self.clone();
        let noting = |pair: &Pair| {
            let marker = marker(self.uid(), pair.certificate(), pair.key().expose());
            let source = source(uid, version, &marker);
            json!({ "annotations": { MARKER: marker, SOURCE: source } })
        };
        let nothing = json!({ "annotations": { MARKER: null, SOURCE: null } });
        let patch = match (write, pair) {
            (None, _) => json!({}),
            (Some(Write::Inject(_)), Some(pair)) => json!({
                "metadata": noting(pair),
                "spec": { "tls": { "certificate": pair.certificate(), "key": pair.key().expose() } },
            }),
            (Some(Write::AddMarker(_)), Some(pair)) => json!({ "metadata": noting(pair) }),
            (Some(Write::Inject(_) | Write::AddMarker(_)), None) => {
                panic!("there is no pair to inject")
            }
            (Some(Write::Clear), _) => json!({
                "metadata": nothing,
                "spec": { "tls": { "certificate": null, "key": null } },
            }),
            (Some(Write::ClearKey), _) => json!({
                "metadata": nothing,
                "spec": { "tls": { "key": null } },
            }),
            (Some(Write::DropMarker), _) => json!({ "metadata": nothing }),
        };
        merge(&mut after.0, &patch);
        if let Some(conditions) = conditions {
            merge(&mut after.0, &json!({ "status": { "certificate": conditions } }));
        }
        after
    }

    /// The Route without the fields that we write.
    pub fn without_our_fields(&self) -> Value {
        let mut rest = self.0.clone();
        let mut forget = |place: &str, name: &str| {
            let parent = rest.pointer_mut(place).and_then(Value::as_object_mut);
            parent.and_then(|fields| fields.remove(name));
        };
        forget("/spec/tls", "certificate");
        forget("/spec/tls", "key");
        forget("/status", "certificate");
        forget("/metadata/annotations", MARKER);
        forget("/metadata/annotations", SOURCE);
        // The API server does not distinguish an empty map from an absent one.
        let nothing = |rest: &Value, place: &str| rest.pointer(place) == Some(&json!({}));
        if nothing(&rest, "/metadata/annotations") {
            rest["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        if nothing(&rest, "/status") {
            rest.as_object_mut().unwrap().remove("status");
        }
        rest
    }
}

/// Whether the grace period of a missing Secret still runs.
pub fn waits(requested: Requested<'_>, now: DateTime<Utc>, policy: &Policy) -> bool {
    match requested.seen {
        SecretState::Missing { since } if requested.named => now - *since < policy.missing_grace,
        _ => false,
    }
}

/// Whether `--on-invalid-secret=keep` applies.
pub fn keeps(requested: Requested<'_>, policy: &Policy) -> bool {
    let exists = requested.named && !matches!(requested.seen, SecretState::Missing { .. });
    exists && policy.on_invalid == OnInvalid::Keep
}
