//! Finds conditions that stay untrue.

use std::{collections::HashMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::time::Instant;

use super::{History, condition, held_state};
use crate::{
    faults::{Calls, FaultKind},
    journal::Commit,
};
use testkit::route_table::{self as table, Model};

/// A failing write is reported within 30 s, and writing the status takes time.
const TOLERATED: Duration = Duration::from_secs(60);

type ObjectKey = (Arc<str>, Arc<str>);

/// A Route with an untrue condition, and since when.
struct Claim {
    route: Arc<Value>,
    /// Whether we wrote the condition: others may write anything.
    is_ours: bool,
    untrue_since: Option<Instant>,
}

impl History<'_> {
    /// Conditions that were untrue for longer than a minute while a leader ran and could write the
    /// status.
    pub fn false_claims(&self, end: Instant) -> Vec<String> {
        if !self.status_can_be_written() {
            return Vec::new();
        }
        let mut routes: HashMap<ObjectKey, Claim> = HashMap::new();
        let mut secrets: HashMap<ObjectKey, Arc<Value>> = HashMap::new();
        let mut found = Vec::new();
        for commit in &self.journal.commits {
            found.extend(routes.values().filter_map(|claim| claim.violation(commit.at)));
            let change = &commit.change;
            let key: ObjectKey = (change.namespace.as_ref().into(), change.name.as_ref().into());
            match (change.kind.plural, &change.after) {
                ("routes", None) => drop(routes.remove(&key)),
                ("routes", Some(route)) => {
                    let before = routes.remove(&key);
                    routes.insert(key, Claim::after(before, route, commit));
                }
                ("secrets", None) => drop(secrets.remove(&key)),
                ("secrets", Some(secret)) => drop(secrets.insert(key, secret.clone())),
                _ => continue,
            }
            for claim in routes.values_mut() {
                claim.examine(&secrets, commit.at);
            }
        }
        found.extend(routes.values().filter_map(|claim| claim.violation(end)));
        found.dedup();
        found
    }

    /// Only faults that affect neither the leader nor status writes.
    fn status_can_be_written(&self) -> bool {
        let is_narrow =
            |which: Calls| matches!(which, Calls::PairPatches | Calls::Secret | Calls::Events);
        self.faults.iter().all(|fault| match fault.kind {
            FaultKind::Refuse { which, code, .. } => is_narrow(which) && code != 429,
            FaultKind::Lose { which, .. } => is_narrow(which),
            _ => false,
        })
    }
}

impl Claim {
    fn after(before: Option<Self>, route: &Arc<Value>, commit: &Commit) -> Self {
        let says = |route: &Value| route["status"]["certificate"].clone();
        let same = before.as_ref().is_some_and(|before| says(&before.route) == says(route));
        let was_ours = before.as_ref().is_some_and(|before| before.is_ours);
        Self {
            route: route.clone(),
            is_ours: if same { was_ours } else { commit.by.is_ours() },
            untrue_since: before.and_then(|before| before.untrue_since),
        }
    }

    fn examine(&mut self, secrets: &HashMap<ObjectKey, Arc<Value>>, now: Instant) {
        let is_untrue = self.is_ours && is_untrue(&self.route, secrets);
        self.untrue_since = self.untrue_since.or(Some(now)).filter(|_| is_untrue);
    }

    fn violation(&self, now: Instant) -> Option<String> {
        let lasted = now - self.untrue_since?;
        let metadata = &self.route["metadata"];
        (lasted > TOLERATED).then(|| {
            let (says, reason) = condition(&self.route);
            format!(
                "the condition of {}/{} claims {says:?} / {reason} for over a minute, and it is not so",
                metadata["namespace"], metadata["name"]
            )
        })
    }
}

fn is_untrue(route: &Value, secrets: &HashMap<ObjectKey, Arc<Value>>) -> bool {
    let model = Model(route.clone());
    if !model.has_conditions() || model.is_left_alone() {
        return false;
    }
    let (says, reason) = condition(route);
    if says.as_deref() != held_state(&model) {
        return true;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&route["metadata"]["annotations"][table::ASKS]);
    let key = (text(&route["metadata"]["namespace"]).into(), name.into());
    reason == "SecretInjected"
        && secrets.get(&key).is_none_or(|secret| !has_pair_of(&model, secret))
}

fn has_pair_of(route: &Model, secret: &Value) -> bool {
    let decoded = |name: &str| {
        let text = secret["data"][name].as_str().unwrap_or_default();
        STANDARD.decode(text).unwrap_or_default()
    };
    decoded("tls.crt") == route.certificate().as_bytes()
        && decoded("tls.key") == route.key().as_bytes()
}
