//! Seeded bugs of the authority that changed requests and answers bring about.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use apiserver::faults::event_line;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use trustplane::{
    names::{
        AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, FEDERATIONS_CONFIG_MAP, NAMESPACE, REFRESH_ANNOTATION,
    },
    runtime::failpoints::{self, Bug},
};

use super::{
    ops::{published, state, token_path},
    world::{SVID_TTL, World},
};
use crate::{
    journal::{Actor, Target},
    tamper::without_preconditions,
    wire::Tamper,
};

const A_MOMENT: Duration = Duration::from_millis(500);

thread_local! {
    /// The Secret as each replica read it last.
    static READ: RefCell<HashMap<usize, Bytes>> = RefCell::default();
    /// A status that is written later, by the name of its token.
    static LATER: RefCell<HashMap<String, Value>> = RefCell::default();
    /// The token of a name as the watch of each replica brought it: its uid and its status.
    static BROUGHT: RefCell<HashMap<(usize, String), (Value, Value)>> = RefCell::default();
}

/// Forgets earlier simulations on this thread.
pub fn reset() {
    READ.take();
    LATER.take();
    BROUGHT.take();
}

#[derive(Clone)]
pub struct AuthorityTamper {
    pub world: Arc<World>,
    pub replica: usize,
}

impl Tamper for AuthorityTamper {
    fn bodies(&self, method: &Method, target: &Target, body: &Bytes) -> Vec<Bytes> {
        if is_off() {
            return vec![body.clone()];
        }
        let Ok(mut body) = serde_json::from_slice::<Value>(body) else { return vec![body.clone()] };
        if failpoints::has(Bug::NoPrecondition) && method == Method::PATCH {
            without_preconditions(&mut body);
        }
        if target.is_about("jointokens") && method == Method::PATCH {
            self.use_of_token(target, &mut body);
        }
        if target.is_about("spiffefederations") && failpoints::has(Bug::FailureDropsBundle) {
            drop_bundle(&mut body);
        }
        let bodies = match target.is_about("secrets") {
            true => self.secrets(method, body),
            false => vec![body],
        };
        bodies.iter().map(|body| Bytes::from(body.to_string())).collect()
    }

    fn answer(&self, target: &Target, body: Bytes) -> Bytes {
        if is_off() {
            return body;
        }
        let is = |plural: &str, name: &str| {
            target.is_about(plural) && target.name.as_deref() == Some(name)
        };
        if is("secrets", AUTHORITY_SECRET) && failpoints::has(Bug::CachedSecret) {
            let before = READ.with_borrow_mut(|read| read.insert(self.replica, body.clone()));
            return before.unwrap_or(body);
        }
        if is("secrets", AUTHORITY_SECRET) && failpoints::has(Bug::KeyInLog) {
            let secret = String::from_utf8_lossy(&body);
            tracing::debug!(target: "trustplane::authority", %secret, "Secret read");
        }
        if target.is_about("jointokens") {
            return with_later_use(target, body);
        }
        let forgets = failpoints::has(Bug::UnseenDeletionForgotten);
        let believes = failpoints::has(Bug::BelievesOldCopy);
        let is_federation = target.is_about("spiffefederations");
        if !is_federation && !forgets && !believes {
            return body;
        }
        let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else { return body };
        if forgets && is("configmaps", FEDERATIONS_CONFIG_MAP) {
            answer["data"] = json!({});
        }
        if believes && is("configmaps", BUNDLE_CONFIG_MAP) {
            self.believe(&mut answer);
        }
        if is_federation {
            match answer.get_mut("items").and_then(Value::as_array_mut) {
                Some(items) => items.iter_mut().for_each(disguise),
                None => disguise(&mut answer),
            }
        }
        Bytes::from(answer.to_string())
    }

    fn event(&self, target: &Target, line: Bytes) -> Bytes {
        if is_off() {
            return line;
        }
        let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { return line };
        if target.is_about("jointokens") {
            return self.event_of_token(line, event);
        }
        let before = event["object"].clone();
        disguise(&mut event["object"]);
        if event["object"] == before { line } else { event_line(&event) }
    }

    fn sent(&self) {
        self.world.look();
    }
}

/// Most simulations have no bug.
fn is_off() -> bool {
    !Bug::AUTHORITY.into_iter().chain(Bug::JOIN).any(failpoints::has)
}

impl AuthorityTamper {
    /// Changes a write of the Secret, or splits it.
    fn secrets(&self, method: &Method, mut body: Value) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{AUTHORITY_SECRET}");
        let is_post = method == Method::POST;
        if failpoints::has(Bug::OverwritesFirstCa) && is_post {
            self.world.api.request(Method::DELETE, &path, &Value::Null);
        }
        let Some(mut changed) = state(&body) else { return vec![body] };
        if failpoints::has(Bug::SequenceStartsAgain) && is_post {
            changed.sequence = 1;
        }
        if failpoints::has(Bug::ForgetsLongerHint) {
            changed.longer_hint_until = None;
        }
        if failpoints::has(Bug::GoesEarly) {
            let early = SVID_TTL + TimeDelta::minutes(4);
            let retired = changed.cas.iter_mut().filter_map(|ca| ca.retired_at.as_mut());
            retired.for_each(|at| *at -= early);
        }
        let before = self.world.api.request(Method::GET, &path, &Value::Null).1;
        if let (true, Some(before)) = (failpoints::has(Bug::SequenceStays), state(&before)) {
            changed.sequence = before.sequence;
        }
        body["data"]["state.json"] = STANDARD.encode(json!(changed).to_string()).into();
        if !failpoints::has(Bug::KeysAfterwards) || is_post {
            return vec![body];
        }
        let mut second = body.clone();
        without_preconditions(&mut second);
        if let Some(data) = body["data"].as_object_mut() {
            data.retain(|name, _| !name.ends_with(".key"));
        }
        vec![body, second]
    }

    /// Changes the write of a use, or has it written a moment later.
    fn use_of_token(&self, target: &Target, body: &mut Value) {
        if failpoints::has(Bug::UseWithoutPrecondition) {
            without_preconditions(body);
        }
        let name = target.name.clone().unwrap_or_default();
        if !failpoints::has(Bug::SignsBeforeUse) || body["status"].is_null() {
            return;
        }
        let status = body["status"].take();
        let (world, path) = (self.world.clone(), format!("{}/status", token_path(&name)));
        let by = Actor::Ours { replica: self.replica, life: 0 };
        LATER.with_borrow_mut(|later| later.insert(name, status.clone()));
        self.world.background(async move {
            sleep(A_MOMENT).await;
            world.act(by, Method::PATCH, &path, &json!({ "status": status }));
        });
    }

    fn event_of_token(&self, line: Bytes, mut event: Value) -> Bytes {
        if !failpoints::has(Bug::RecreatedTakenForOld) || event["type"] == "BOOKMARK" {
            return line;
        }
        if event["type"] == "DELETED" {
            return Bytes::new();
        }
        let object = &mut event["object"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = object["metadata"]["uid"].clone();
        BROUGHT.with_borrow_mut(|brought| {
            let key = (self.replica, name);
            match brought.get(&key) {
                Some((before, status)) if *before != uid => object["status"] = status.clone(),
                _ => {
                    brought.insert(key, (uid, object["status"].clone()));
                }
            }
        });
        event_line(&event)
    }

    /// Nothing newer than the Secret was published.
    fn believe(&self, config_map: &mut Value) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{AUTHORITY_SECRET}");
        let secret = self.world.api.request(Method::GET, &path, &Value::Null).1;
        let Some(stored) = state(&secret).map(|state| state.sequence) else { return };
        let Some((text, bundle)) = published(config_map) else { return };
        let Some(sequence) = bundle.sequence.filter(|it| *it > stored) else { return };
        let member = |number| format!("\"spiffe_sequence\":{number}");
        let older = text.replace(&member(sequence), &member(stored));
        config_map["data"]["bundle.json"] = older.into();
    }
}

/// The answer to a write whose use follows.
fn with_later_use(target: &Target, body: Bytes) -> Bytes {
    let name = target.name.as_deref().unwrap_or_default();
    let Some(status) = LATER.with_borrow_mut(|later| later.remove(name)) else { return body };
    let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else { return body };
    answer["status"] = status;
    Bytes::from(answer.to_string())
}

fn drop_bundle(patch: &mut Value) {
    let failed = patch["status"]["conditions"].as_array().is_some_and(|conditions| {
        conditions.iter().any(|it| it["type"] == "Synced" && it["status"] == "False")
    });
    if failed {
        patch["status"]["currentBundle"] = Value::Null;
    }
}

/// Changes a SPIFFEFederation before the controller sees it.
fn disguise(federation: &mut Value) {
    let hidden = match () {
        () if failpoints::has(Bug::TakesLowerSequence) => Some(("/status", "sequence")),
        () if failpoints::has(Bug::AcceptsForEver) => Some(("/status", "observedAccept")),
        () if failpoints::has(Bug::RefreshIgnored) => {
            Some(("/metadata/annotations", REFRESH_ANNOTATION))
        }
        () => None,
    };
    if let Some((place, name)) = hidden
        && let Some(object) = federation.pointer_mut(place).and_then(Value::as_object_mut)
    {
        object.remove(name);
    }
    let generation = federation["metadata"]["generation"].clone();
    let conditions = federation.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let synced = conditions.into_iter().flatten().find(|it| it["type"] == "Synced");
    let Some(synced) = synced else { return };
    if failpoints::has(Bug::OwnWritesTrigger) {
        synced["observedGeneration"] = 0.into();
    }
    if failpoints::has(Bug::KeepsOldSource) {
        synced["observedGeneration"] = generation;
    }
}
