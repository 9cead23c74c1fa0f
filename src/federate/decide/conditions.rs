//! The conditions of a SpireServer. Pure.
//!
//! `exposure` has those about the Route and the endpoint, `trust` those about other trust domains.

mod exposure;
mod trust;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::{
    api::{
        condition::Condition,
        spire_server::{self, Federation, PeerStatus, SpireServer},
    },
    federate::decide::{
        endpoint_view::EndpointView, render::Component, trust::Unlisted, validate::Problem,
    },
    k8s::api_error::ApiError,
    names::ADOPT_ANNOTATION,
    runtime::printable,
};

pub use self::{
    exposure::{ENDPOINT, is_admitted},
    trust::{PEERS, SPIRE_CANNOT_FETCH, TRUST, UNREACHABLE, is_well, is_wrong, summary},
};
pub use crate::api::condition::ConditionValue;

/// The result of applying one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyResult {
    Created,
    /// These fields differed and were corrected; this is the object now.
    Updated(Vec<String>, Value),
    /// Nothing differed from this object.
    InPlace(Value),
    /// These fields of this object differ, and are left alone for now.
    OutOfStep(Vec<String>, Value),
    /// The namespace or the API does not exist.
    NoNamespace(String),
    /// The object belongs to this owner, or to [`SOMEBODY`].
    Taken(String),
    Failed(Operation, ApiError),
}

impl ApplyResult {
    /// The object in the cluster, as far as it is known.
    pub fn live(&self) -> Option<&Value> {
        match self {
            Self::InPlace(live) | Self::Updated(_, live) | Self::OutOfStep(_, live) => Some(live),
            _ => None,
        }
    }

    pub fn is_as_rendered(&self) -> bool {
        matches!(self, Self::Created | Self::Updated(..) | Self::InPlace(_))
    }
}

/// The owner of an object that no controller owns.
pub const SOMEBODY: &str = "somebody else";

/// A condition names at most this many.
const MOST_FINALIZERS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Create,
    Update,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Secret {name} could not be read: {error}")]
pub struct UnreadSecret {
    pub name: String,
    pub error: ApiError,
}

/// Everything that a reconcile found out.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Of the spec. If objects were rendered all the same, then from the last valid spec.
    pub problems: Vec<Problem>,
    /// Of objects that the SpireServer refers to.
    pub references: Vec<Problem>,
    /// Why those are not known.
    pub unread: Option<UnreadSecret>,
    pub outcomes: Vec<(Component, ApplyResult)>,
    /// Whether existing objects are left alone.
    pub create_only: bool,
    /// The Route's host, if it is known.
    pub host: Option<String>,
    pub peers: Vec<PeerStatus>,
    /// Trust domains that SPIRE federates with and the SpireServer does not list.
    pub unlisted: Vec<Unlisted>,
    /// None if there is no endpoint, or its address is unknown.
    pub endpoint: Option<EndpointView>,
}

impl Findings {
    /// Whether objects were rendered and applied.
    pub fn is_rendered(&self) -> bool {
        !self.outcomes.is_empty()
    }

    pub fn outcome(&self, part: Component) -> Option<&ApplyResult> {
        self.outcomes.iter().find(|(it, _)| *it == part).map(|(_, outcome)| outcome)
    }

    /// Whether everything that the server reads at its start is in place.
    pub fn configured(&self) -> bool {
        let configs = [Component::ServerConfigMap, Component::ControllerManagerConfigMap];
        let mut of_these = self.outcomes.iter().filter(|(part, _)| configs.contains(part));
        of_these.all(|(_, outcome)| outcome.is_as_rendered())
    }

    /// The address of the endpoint; the one reported before if it is unknown now.
    pub fn endpoint_url(
        &self,
        federation: &Federation,
        reported: Option<String>,
    ) -> Option<String> {
        if !self.is_rendered() {
            return reported;
        }
        let url = |host: &str| format!("https://{host}");
        let wanted = || self.host.as_deref().map(url);
        if !federation.manages_route() {
            // Only its owner knows where an endpoint is that we do not expose.
            return wanted().filter(|_| federation.route_host.is_some());
        }
        match self.outcome(Component::Route) {
            Some(ApplyResult::Created | ApplyResult::Updated(..)) => wanted(),
            Some(ApplyResult::InPlace(live) | ApplyResult::OutOfStep(_, live)) => {
                live["spec"]["host"].as_str().map(url)
            }
            Some(ApplyResult::Failed(..)) => reported,
            Some(ApplyResult::Taken(_) | ApplyResult::NoNamespace(_)) | None => None,
        }
    }
}

/// All conditions after a reconcile, `Ready` last.
pub fn evaluate(server: &SpireServer, findings: &Findings) -> Vec<ConditionValue> {
    let mut values = vec![configuration(findings)];
    // Nothing is known of objects that were not rendered.
    if findings.is_rendered() {
        let groups: [(&str, &[Component]); 4] = [
            ("RBACAvailable", &Component::RBAC),
            (
                "ServerConfigMapAvailable",
                &[
                    Component::BundleConfigMap,
                    Component::ServerConfigMap,
                    Component::ControllerManagerConfigMap,
                ],
            ),
            ("ServiceAvailable", &[Component::Service]),
            ("StatefulSetAvailable", &[Component::StatefulSet]),
        ];
        values.extend(groups.map(|(about, parts)| objects(about, parts, findings)));
        values.extend(exposure::route(server, findings));
        values.extend(exposure::endpoint(server, findings));
    }
    values.extend(trust::peers(findings));
    values.push(trust::matches_spec(findings));
    values.push(create_only(findings));
    let ready = ready(server, &values);
    values.push(ready);
    values
}

fn configuration(findings: &Findings) -> ConditionValue {
    let all: Vec<_> = findings.problems.iter().chain(&findings.references).collect();
    let mut listed: Vec<_> = all.iter().map(ToString::to_string).collect();
    if !findings.problems.is_empty() {
        listed.push(meanwhile(findings).to_owned());
    }
    let (status, reason, message) = match &findings.unread {
        _ if !all.is_empty() => ("False", "InvalidFederationConfiguration", listed.join("\n")),
        Some(unread) => ("Unknown", "SecretUnreadable", unread.to_string()),
        None => ("True", "ValidConfiguration", String::new()),
    };
    ConditionValue::new("ConfigurationValid", status, reason, message)
}

/// Says what applies while the spec is invalid.
fn meanwhile(findings: &Findings) -> &'static str {
    match findings.is_rendered() {
        true => {
            "Until that is fixed the last valid spec counts, without the peers that are no longer listed"
        }
        false => "Until that is fixed nothing is made or changed",
    }
}

fn objects(about: &'static str, parts: &[Component], findings: &Findings) -> ConditionValue {
    let of_these = findings.outcomes.iter().filter(|(part, _)| parts.contains(part));
    let wrong = of_these.clone().find_map(|(part, outcome)| match outcome {
        ApplyResult::Failed(_, error) => Some(("Failed", format!("{part:?}: {error}"))),
        ApplyResult::Taken(owner) => Some(("Taken", taken(*part, owner))),
        ApplyResult::NoNamespace(namespace) => {
            Some(("NoNamespace", no_namespace(*part, namespace)))
        }
        _ => None,
    });
    if let Some((reason, message)) = wrong {
        return ConditionValue::new(about, "False", reason, message);
    }
    for (part, outcome) in of_these {
        if *part == Component::StatefulSet
            && let Some(message) = not_ready(outcome)
        {
            return ConditionValue::new(about, "False", "NotReady", message);
        }
    }
    ConditionValue::new(about, "True", "Available", "")
}

fn no_namespace(part: Component, namespace: &str) -> String {
    format!(
        "{part:?}: there is no namespace {namespace}, or no such API. Create the namespace, or start trustplane federate with another --namespace"
    )
}

fn taken(part: Component, owner: &str) -> String {
    if owner == format!("{} {}", spire_server::KIND, spire_server::NAME) {
        return format!(
            "{part:?}: what an earlier SpireServer had made is still being deleted, and is made again then"
        );
    }
    let remedy = if owner == SOMEBODY {
        format!("Delete it, annotate it with {ADOPT_ANNOTATION}=true to have it taken over,")
    } else {
        // Even with the annotation: two controllers would revert each other's writes.
        format!("Have {owner} give it up, or delete {owner},")
    };
    format!(
        "{part:?}: an object of that name belongs to {owner}. {remedy} or have the SPIRE server run in another namespace"
    )
}

/// Why the server can't be reached, as far as its StatefulSet shows.
fn not_ready(outcome: &ApplyResult) -> Option<String> {
    const CHANGES: &str = "the server's Pod is being started or replaced";
    let live = match outcome {
        ApplyResult::InPlace(live) | ApplyResult::OutOfStep(_, live) => live,
        // Labels and notes of the StatefulSet itself replace no Pod.
        ApplyResult::Updated(fields, live) if !fields.iter().any(|it| it.starts_with("spec")) => {
            live
        }
        _ => return Some(CHANGES.to_owned()),
    };
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (wanted, ready) = (number("/spec/replicas"), number("/status/readyReplicas"));
    let current = number("/status/observedGeneration") >= number("/metadata/generation");
    let updated = number("/status/updatedReplicas") >= wanted;
    if !current || !updated {
        return Some(CHANGES.to_owned());
    }
    let kubectl = match live["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("kubectl -n {namespace}"),
        None => "kubectl".to_owned(),
    };
    if wanted == 0 {
        return Some(format!(
            "it is scaled to no Pod at all; see {kubectl} scale statefulset spire-server"
        ));
    }
    (ready < wanted).then(|| {
        format!("{ready} of {wanted} Pods are ready; see {kubectl} describe pod spire-server-0")
    })
}

fn create_only(findings: &Findings) -> ConditionValue {
    const ABOUT: &str = "CreateOnlyMode";
    if !findings.create_only {
        return ConditionValue::new(ABOUT, "False", "CreateOnlyModeDisabled", "");
    }
    let out_of_step = findings.outcomes.iter().filter_map(|(part, outcome)| match outcome {
        ApplyResult::OutOfStep(fields, _) => Some(format!("{part:?}: {}", fields.join(", "))),
        _ => None,
    });
    let out_of_step: Vec<_> = out_of_step.collect();
    if out_of_step.is_empty() {
        let message = "what is missing is made; what exists is not changed. Nothing differs";
        return ConditionValue::new(ABOUT, "True", "CreateOnlyModeEnabled", message);
    }
    let message = format!(
        "what exists is not changed, and these differ from what is wanted:\n{}",
        out_of_step.join("\n")
    );
    ConditionValue::new(ABOUT, "True", "OutOfStep", message)
}

/// Create-only mode, a Route that the administrator manages and unlisted trust domains are choices, not
/// failures, and problems of other clusters leave this one ready. Only the Route's `Unknown` counts: until a
/// router has admitted it, nobody can fetch the bundle.
fn ready(server: &SpireServer, values: &[ConditionValue]) -> ConditionValue {
    let ours = server.spec.federation.as_ref().is_none_or(Federation::manages_route);
    let counts = |it: &&ConditionValue| match it.about {
        "CreateOnlyMode" | PEERS | TRUST => false,
        exposure::ROUTE | ENDPOINT => ours,
        _ => true,
    };
    let counting: Vec<_> = values.iter().filter(counts).collect();
    let wrong: Vec<_> =
        counting.iter().filter(|it| it.status == "False").map(|it| it.about).collect();
    if !wrong.is_empty() {
        let message = format!("see {}", wrong.join(", "));
        return ConditionValue::new("Ready", "False", "NotReady", message);
    }
    let waits = counting.iter().any(|it| it.about == exposure::ROUTE && it.status == "Unknown");
    match waits {
        true => ConditionValue::new("Ready", "Unknown", "RouteNotAdmitted", "see RouteAvailable"),
        false => ConditionValue::new("Ready", "True", "Ready", ""),
    }
}

/// For a SpireServer that is deleted but kept by finalizers.
pub fn deleting(server: &SpireServer) -> ConditionValue {
    let finalizers = server.metadata.finalizers.iter().flatten().take(MOST_FINALIZERS);
    let named: Vec<_> = finalizers.map(|it| printable::printable(it)).collect();
    let message = format!(
        "somebody deleted this SpireServer, and finalizers keep it: {}. Until it is gone nothing of it is \
         changed, its peers are not asked, and the other conditions are those of before",
        named.join(", ")
    );
    ConditionValue::new("Ready", "False", "Deleting", message)
}

/// Replaces one of the conditions.
pub fn with(
    existing: &[Condition],
    verdict: &ConditionValue,
    generation: i64,
    now: DateTime<Utc>,
) -> Vec<Condition> {
    let (mut all, mut new) =
        (existing.to_vec(), stamped(existing, std::slice::from_ref(verdict), generation, now));
    let new = new.swap_remove(0);
    match all.iter_mut().find(|it| it.r#type == new.r#type) {
        Some(before) => *before = new,
        None => all.push(new),
    }
    all
}

/// Adds the times: a time changes only with the status. Conditions of others are kept.
pub fn stamped(
    existing: &[Condition],
    values: &[ConditionValue],
    generation: i64,
    now: DateTime<Utc>,
) -> Vec<Condition> {
    let theirs = existing.iter().filter(|it| !is_ours(&it.r#type));
    let ours = values.iter().map(|value| value.stamped(existing, generation, now));
    ours.chain(theirs.cloned()).collect()
}

fn is_ours(about: &str) -> bool {
    [
        "ConfigurationValid",
        "RBACAvailable",
        "ServerConfigMapAvailable",
        "ServiceAvailable",
        "StatefulSetAvailable",
        exposure::ROUTE,
        ENDPOINT,
        PEERS,
        TRUST,
        "CreateOnlyMode",
        "Ready",
    ]
    .contains(&about)
}

#[cfg(test)]
mod tests;
