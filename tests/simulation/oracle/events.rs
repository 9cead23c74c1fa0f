//! Checks that Events are true.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::{FRESH, History, Seen, is_named, why_unusable};
use crate::{
    faults::{Calls, FaultKind, Watched},
    journal::Commit,
    pool::pool,
};
use testkit::route_table::{self as table, Model};

impl History<'_> {
    /// An Event about a Route that never existed (I8), or that was untrue when it was sent.
    pub fn mistaken_event(&self, event: &Value, commit: &Commit) -> Option<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = if event["regarding"].is_object() { "regarding" } else { "involvedObject" };
        let uid = text(&event[about]["uid"]);
        let note = text(if event["note"].is_string() { &event["note"] } else { &event["message"] });
        let sent = self.call(commit).sent;
        let ever: Vec<_> = self.states("routes", None, Watched::Routes, sent, commit.at);
        let routes: Vec<Model> = ever
            .into_iter()
            .flatten()
            .filter(|route| route["metadata"]["uid"] == *uid)
            .map(|route| Model(Value::clone(&route)))
            .collect();
        let so = routes.iter().any(|route| {
            let secrets = self.secrets_of(route, sent, commit.at);
            secrets.into_iter().any(|secret| is_true(&text(&event["reason"]), &note, route, secret))
        });
        (!so).then(|| format!("an Event says what was not so, or of no Route: {note}"))
    }

    fn secrets_of(&self, route: &Model, sent: Instant, taken: Instant) -> Vec<Option<Arc<Value>>> {
        let metadata = &route.0["metadata"];
        let asked = metadata["annotations"][table::ASKS].as_str();
        let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), asked) else {
            return vec![None];
        };
        let mut states =
            self.states("secrets", Some((namespace, name)), Watched::Secrets, sent, taken);
        if states.is_empty() {
            states.push(None);
        }
        states
    }

    /// States of these objects that the controller may have known: recent ones, or all earlier ones
    /// if a fault delayed its watch. `None` stands for an object that is gone or not yet created.
    fn states(
        &self,
        kind: &str,
        place: Option<(&str, &str)>,
        watched: Watched,
        sent: Instant,
        taken: Instant,
    ) -> Vec<Option<Arc<Value>>> {
        let since = if self.is_delayed(watched) { None } else { sent.checked_sub(FRESH) };
        let mut last = std::collections::BTreeMap::new();
        let mut states = Vec::new();
        let commits = self.journal.commits.iter().filter(|commit| {
            let change = &commit.change;
            change.kind.plural == kind
                && commit.at <= taken
                && place.is_none_or(|place| place == (&*change.namespace, &*change.name))
        });
        for commit in commits {
            let change = &commit.change;
            let key = (change.namespace.clone(), change.name.clone());
            if since.is_none_or(|since| commit.at >= since) {
                states.push(change.before.clone());
                states.push(change.after.clone());
            }
            last.insert(key, change.after.clone());
        }
        states.extend(last.into_values());
        states
    }

    /// Whether a fault delays changes of these objects on their way to the controller.
    fn is_delayed(&self, watched: Watched) -> bool {
        self.faults.iter().any(|fault| match fault.kind {
            FaultKind::Freeze(one) | FaultKind::Damage(one, _) | FaultKind::Gap(one) => {
                one == watched
            }
            FaultKind::Lag | FaultKind::Pause { .. } => true,
            FaultKind::Refuse { which, .. }
            | FaultKind::Lose { which, .. }
            | FaultKind::Slow { which, .. }
            | FaultKind::SlowAnswer { which, .. } => match which {
                Calls::Everything => true,
                Calls::Lists(one) | Calls::Watches(one) => one == watched,
                Calls::Secret => watched == Watched::Secrets,
                _ => false,
            },
            FaultKind::Crash { .. } | FaultKind::Compact => false,
        })
    }
}

fn is_true(reason: &str, note: &str, route: &Model, secret: Option<Arc<Value>>) -> bool {
    let asks = route.0["metadata"]["annotations"][table::ASKS].as_str();
    // Impossible names are quoted.
    let spelt = |name: &str| [format!("Secret {name}"), format!("Secret {name:?}")];
    let names_it = asks.is_some_and(|name| spelt(name).iter().any(|name| note.contains(name)));
    let tls = route.0["spec"].get("tls");
    let termination = tls.map(|tls| tls["termination"].as_str().unwrap_or_default());
    match reason {
        "CertificateInjected" | "CertificateUpdated" => {
            let held = pool().pairs.iter().find(|pair| route.holds(pair));
            let serial = held.map(|pair| format!("serial {},", pair.facts().serial()));
            names_it && route.is_ours() && serial.is_some_and(|serial| note.contains(&serial))
        }
        "CertificateCleared" => !route.is_annotated() && route.certificate().is_empty(),
        "RouteNotSecured" => names_it && tls.is_none(),
        "PassthroughTermination" => names_it && termination == Some("passthrough"),
        "ExternalCertificate" => {
            names_it && tls.is_some_and(|tls| tls.get("externalCertificate").is_some())
        }
        "InvalidSecretName" => asks.is_some() && !is_named(route),
        "SecretNotFound" | "SecretWrongType" | "SecretInvalid" | "CACertificateMismatch" => {
            names_it && why_unusable(route, &Seen::new(secret, Default::default())) == reason
        }
        // Warnings about certificates and API errors are not checked here.
        _ => true,
    }
}
