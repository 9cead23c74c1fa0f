//! Seeded bugs of the injector that changed requests, answers and configuration bring about.

use std::{cell::RefCell, collections::HashMap};

use apiserver::faults::event_line;
use bytes::Bytes;
use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use trustplane::{
    inject::decide::plan::Policy,
    runtime::failpoints::{self, Bug},
};

use crate::{journal::Target, wire::Tamper};

#[derive(Clone, Copy)]
pub struct InjectTamper;

impl Tamper for InjectTamper {
    fn bodies(&self, method: &Method, target: &Target, body: &Bytes) -> Vec<Bytes> {
        let is_pair =
            target.is_about("routes") && method == Method::PATCH && target.subresource.is_none();
        if is_pair { patches(body) } else { vec![body.clone()] }
    }

    fn answer(&self, target: &Target, body: Bytes) -> Bytes {
        if target.is_about("routes") { answer(body) } else { body }
    }

    fn event(&self, target: &Target, line: Bytes) -> Bytes {
        if target.is_about("routes") { event(line) } else { line }
    }
}

thread_local! {
    /// The last spec of every Route in an event.
    static SPECS: RefCell<HashMap<String, Value>> = RefCell::default();
}

/// Forgets earlier simulations on this thread.
pub fn reset() {
    SPECS.take();
}

/// The policy that the controller is started with.
pub fn policy(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    if failpoints::has(Bug::NoGrace) {
        policy.missing_grace = TimeDelta::zero();
    }
    policy
}

/// Changes a patch of a Route, or splits it in two.
fn patches(body: &Bytes) -> Vec<Bytes> {
    let Ok(patch) = serde_json::from_slice::<Value>(body) else { return vec![body.clone()] };
    let split = split(&patch).unwrap_or_else(|| vec![changed(patch)]);
    split.iter().map(|patch| Bytes::from(patch.to_string())).collect()
}

fn changed(mut patch: Value) -> Value {
    if failpoints::has(Bug::NoPrecondition) {
        without_preconditions(&mut patch);
    }
    let key = patch["spec"]["tls"]["key"].as_str().map(str::to_owned);
    if let (true, Some(key)) = (failpoints::has(Bug::KeyInLog), &key) {
        tracing::debug!(target: "trustplane::inject", key, "route patched");
    }
    if key.is_some() && failpoints::has(Bug::ReplacesWholeTls) {
        patch["spec"]["tls"]["insecureEdgeTerminationPolicy"] = Value::Null;
        patch["spec"]["tls"]["destinationCACertificate"] = Value::Null;
    }
    patch
}

/// Splits a patch that must be atomic.
fn split(patch: &Value) -> Option<Vec<Value>> {
    let (mut first, mut second) = (patch.clone(), patch.clone());
    without_preconditions(&mut second);
    if failpoints::has(Bug::TwoWrites) {
        first.pointer_mut("/spec/tls")?.as_object_mut()?.remove("key")?;
    } else if failpoints::has(Bug::MarkerAfterwards) {
        second.as_object_mut()?.remove("spec")?;
        first["metadata"].as_object_mut()?.remove("annotations")?;
    } else {
        return None;
    }
    Some(vec![first, second])
}

pub fn without_preconditions(patch: &mut Value) {
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
}

/// Changes a Route, or a list of them, before the controller sees it.
fn answer(bytes: Bytes) -> Bytes {
    let hides = [
        Bug::RestampsStatus,
        Bug::TouchesIngressOwned,
        Bug::LetsGoWithoutClearing,
        Bug::RewritesAlways,
    ];
    if !hides.into_iter().any(failpoints::has) {
        return bytes;
    }
    let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    match answer.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(disguise),
        None => disguise(&mut answer),
    }
    Bytes::from(answer.to_string())
}

/// The same for an event of a watch; empty to drop it.
fn event(line: Bytes) -> Bytes {
    let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { return line };
    if failpoints::has(Bug::GenerationFilter) && is_seen(&event) && event["type"] == "MODIFIED" {
        return Bytes::new();
    }
    let before = event["object"].clone();
    let object = answer(Bytes::from(before.to_string()));
    event["object"] = serde_json::from_slice(&object).unwrap_or_default();
    if event["object"] == before {
        return line;
    }
    event_line(&event)
}

/// Whether the Route's last event had the same spec, so that its generation is the same.
fn is_seen(event: &Value) -> bool {
    let object = &event["object"];
    let at = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
    let seen = json!([object["metadata"]["uid"], object["spec"]]);
    SPECS.with_borrow_mut(|specs| specs.insert(at, seen.clone()) == Some(seen))
}

fn disguise(route: &mut Value) {
    if failpoints::has(Bug::TouchesIngressOwned)
        && let Some(metadata) = route["metadata"].as_object_mut()
    {
        metadata.remove("ownerReferences");
    }
    if failpoints::has(Bug::RestampsStatus) {
        let conditions = route.pointer_mut("/status/certificate").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.remove("lastTransitionTime");
        }
    }
    let Some(tls) = route.pointer_mut("/spec/tls").and_then(Value::as_object_mut) else { return };
    if failpoints::has(Bug::LetsGoWithoutClearing) && tls.contains_key("externalCertificate") {
        tls.remove("certificate");
        tls.remove("key");
    }
    if failpoints::has(Bug::RewritesAlways)
        && let Some(Value::String(text)) = tls.get_mut("certificate")
    {
        text.push('\n');
    }
}
