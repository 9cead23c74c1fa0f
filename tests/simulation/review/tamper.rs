//! Seeded bugs of renewals that changed requests and answers bring about.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trustplane::{
    names::REVIEW_STATUS_CONFIG_MAP,
    runtime::failpoints::{self, Bug},
};

use crate::{journal::Target, tamper::without_preconditions, wire::Tamper};

#[derive(Clone, Copy)]
pub struct ReviewTamper;

impl Tamper for ReviewTamper {
    fn bodies(&self, method: &Method, target: &Target, body: &Bytes) -> Vec<Bytes> {
        let is_patch = method == Method::PATCH && target.is_about("secrets");
        let Some(mut patch) =
            is_patch.then(|| serde_json::from_slice::<Value>(body).ok()).flatten()
        else {
            return vec![body.clone()];
        };
        if failpoints::has(Bug::NoPrecondition) {
            without_preconditions(&mut patch);
        }
        let mut all = vec![patch];
        if failpoints::has(Bug::OldDroppedFirst) {
            all.insert(0, without_entries(&all[0]));
            without_preconditions(&mut all[1]);
        }
        all.iter().map(|body| Bytes::from(body.to_string())).collect()
    }

    fn answer(&self, target: &Target, body: Bytes) -> Bytes {
        if target.is_about("secrets") && failpoints::has(Bug::KeyInLog) {
            let secret = String::from_utf8_lossy(&body);
            tracing::debug!(target: "trustplane::review", %secret, "Secret read");
        }
        let is_status = target.name.as_deref() == Some(REVIEW_STATUS_CONFIG_MAP);
        if !is_status || !failpoints::has(Bug::RewritesAlways) {
            return body;
        }
        let Ok(mut object) = serde_json::from_slice::<Value>(&body) else { return body };
        object["data"] = json!({});
        Bytes::from(object.to_string())
    }

    fn event(&self, _: &Target, event: Bytes) -> Bytes {
        event
    }
}

/// The patch that removes the credentials which it should replace.
fn without_entries(patch: &Value) -> Value {
    let mut patch = patch.clone();
    for (name, value) in patch["data"].as_object_mut().into_iter().flatten() {
        if name.starts_with("cluster.") {
            *value = Value::Null;
        }
    }
    patch
}
