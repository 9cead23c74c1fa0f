//! The lines about `trustplane authority`. Where it is not installed, one says so.

use chrono::{DateTime, Utc};

use super::{
    CheckResult, Evaluator, Subject,
    controller::{ControllerChecks, PolicyWords, if_installed, shipped_api},
    some,
};
use crate::{
    authority::decide::{
        ca::{AuthorityState, Ca},
        sync::{SYNCED, TRUSTED},
    },
    check::{
        authority::{CONTROLLER, FederationFound, FederationsFound, Installation, PublishedFound},
        found::ConditionFound,
        join_port::JoinPort,
    },
    k8s::api_error::ApiError,
    names::{AUTHORITY_SERVICE, BUNDLE_CONFIG_MAP},
    spiffe::bundle::Bundle,
};

/// Its overlay names the trust domain, so it is not one of ours.
const APPLY: &str = "kubectl apply -k OVERLAY";
const APPLY_API: &str = "kubectl apply -k deploy/authority/api";

impl Evaluator<'_> {
    pub(super) fn authority(&self) -> Vec<CheckResult> {
        let it = Subject { check: "authority", subject: "authority" };
        let namespace = &self.facts.namespace;
        if_installed(it, CONTROLLER, namespace, &self.facts.authority, |installation| {
            let found = &installation.controller;
            let checks =
                ControllerChecks { controller: CONTROLLER, found, namespace, apply: APPLY };
            lines(installation, &checks)
        })
    }
}

fn lines(installation: &Installation, checks: &ControllerChecks<'_>) -> Vec<CheckResult> {
    let rights = Subject { check: "authority-rights", subject: "authority's rights" };
    let policy = Subject { check: "authority-policy", subject: "SPIFFE policy" };
    let replicas = Subject { check: "authority-deployment", subject: "authority replicas" };
    let lease = Subject { check: "authority-lease", subject: "authority's leader" };
    let words = PolicyWords {
        open: "everybody who may write the status of a SPIFFEFederation or a JoinToken decides who is trusted",
        namespace: checks.namespace,
        owner: CONTROLLER.deployment,
        todo: "Set its variable authorityNamespace to the namespace of the Deployment: the account there \
               may not write a status.",
    };
    let source = format!("deploy/authority, with its state in {}", installation.state_namespace);
    vec![
        api(installation),
        checks.rights(rights, &source),
        checks.policy(policy, &words),
        checks.deployment(replicas, "no bundle is served or fetched, and no CA rotates"),
        checks.lease(lease),
        bundle(installation, checks),
        federations(installation),
        join_port(installation, checks),
    ]
}

fn api(installation: &Installation) -> CheckResult {
    let it = Subject { check: "authority-api", subject: "SPIFFE API" };
    let todo = "Apply it as this version ships it: the rules for its objects are in it.";
    let federations = &installation.federation_api;
    let federations = shipped_api(it, "SPIFFEFederation", federations, todo, APPLY_API);
    let tokens = shipped_api(it, "JoinToken", &installation.join_token_api, todo, APPLY_API);
    match (federations, tokens) {
        (Ok(_), Ok(_)) => it.ok("SPIFFEFederation and JoinToken as this version ships them"),
        (Err(line), _) | (_, Err(line)) => line,
    }
}

fn join_port(installation: &Installation, checks: &ControllerChecks<'_>) -> CheckResult {
    let it = Subject { check: "authority-join", subject: "join port" };
    let unreachable = |found: String| {
        let todo =
            "Listen at [::]:8445, name that port of the container join, and apply the Service.";
        it.warning(found, todo).run(checks.apply())
    };
    match &installation.join_port {
        Err(error) => it.unanswered(error),
        Ok(JoinPort::Off) => it.note("off: without --join-listen nobody can join"),
        Ok(JoinPort::Loopback) => {
            unreachable("it listens at a loopback address, where no client gets to".to_owned())
        }
        Ok(JoinPort::Unreachable(port)) => unreachable(format!(
            "it listens at port {port}, but no port of Service {AUTHORITY_SERVICE} leads there"
        )),
        Ok(JoinPort::Served(port)) => it.ok(format!("port {port} of Service {AUTHORITY_SERVICE}")),
    }
}

fn bundle(installation: &Installation, checks: &ControllerChecks<'_>) -> CheckResult {
    let it = Subject { check: "authority-bundle", subject: "published bundle" };
    let namespace = &installation.state_namespace;
    match &installation.published {
        Err(error) => it.unanswered(error),
        Ok(None) => it
            .failed(
                format!(
                    "nothing is published: no ConfigMap {BUNDLE_CONFIG_MAP} in namespace {namespace}"
                ),
                "The leader writes it. Its log says why it did not.",
            )
            .run(checks.logs()),
        Ok(Some(published)) => match Published::judge(published) {
            Published::Good(found) => it.ok(found),
            Published::Doubtful(found, todo) => it.warning(found, todo).run(checks.logs()),
            Published::Bad(found, todo) => it.failed(found, todo).run(checks.logs()),
        },
    }
}

/// What was published, with what to do about it.
enum Published {
    Good(String),
    /// SVIDs can be verified with it still.
    Doubtful(String, &'static str),
    Bad(String, &'static str),
}

const REPUBLISH: &str = "The leader writes it again. If it does not, its log says why.";
const RENEW: &str = "The leader's log says what keeps it from rotating.";

impl Published {
    fn judge(found: &PublishedFound) -> Self {
        match (&found.bundle, &found.state) {
            (None, _) => Self::Bad("it holds no bundle".to_owned(), REPUBLISH),
            (Some(Err(error)), _) => {
                Self::Bad(format!("the bundle can't be read: {error}"), REPUBLISH)
            }
            (Some(Ok(bundle)), _) if !has_valid_authority(bundle, found.read_at) => {
                Self::Bad("no CA in it is valid now, so no SVID of ours is".to_owned(), RENEW)
            }
            (Some(Ok(bundle)), None) => {
                let sequence = sequence(bundle.sequence);
                let phases = "the phases of its CAs are missing or can't be read";
                Self::Doubtful(format!("sequence {sequence}; {phases}"), REPUBLISH)
            }
            (Some(Ok(bundle)), Some(state)) if bundle.sequence != Some(state.sequence) => {
                let published = sequence(bundle.sequence);
                let found = format!(
                    "altered: the bundle has the sequence {published}, its CAs {}",
                    state.sequence
                );
                Self::Doubtful(found, REPUBLISH)
            }
            (Some(Ok(_)), Some(state)) => Self::of_state(state, found.read_at),
        }
    }

    fn of_state(state: &AuthorityState, now: DateTime<Utc>) -> Self {
        let AuthorityState { trust_domain, sequence, cas, .. } = state;
        let phases =
            some(cas.iter().map(|Ca { id, phase, .. }| format!("{id} ({})", phase.name())));
        let summary = format!("trust domain {trust_domain}, sequence {sequence}; CAs: {phases}");
        match (state.active(), state.rotation_due()) {
            (Some(active), _) if active.not_after < now => {
                let ended = active.not_after.to_rfc3339();
                Self::Bad(format!("{summary}; the active one expired at {ended}"), RENEW)
            }
            (Some(_), Some(due)) if due < now => {
                let found =
                    format!("{summary}; the rotation is overdue since {}", due.to_rfc3339());
                Self::Doubtful(found, RENEW)
            }
            (Some(_), Some(due)) => {
                Self::Good(format!("{summary}; the next rotation is due at {}", due.to_rfc3339()))
            }
            (None, _) | (_, None) => {
                Self::Bad(format!("{summary}; none is active, so nothing is signed"), RENEW)
            }
        }
    }
}

fn has_valid_authority(bundle: &Bundle, now: DateTime<Utc>) -> bool {
    bundle.x509.iter().any(|authority| authority.is_valid_at(now))
}

fn sequence(number: Option<u64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

fn federations(installation: &Installation) -> CheckResult {
    let it = Subject { check: "spiffe-federations", subject: "SPIFFEFederations" };
    let found = match &installation.federations {
        Err(ApiError::NotFound) => return it.note("no SPIFFEFederations to look at"),
        Err(error) => return it.unanswered(error),
        Ok(found) => found,
    };
    let FederationsFound { federations, undecodable } = found;
    let all = found.count();
    if all == 0 {
        return it.note("none yet: no other trust domain is trusted. docs/spiffe.md shows one");
    }
    let count = |kind| {
        let that_are = federations.iter().filter(|it| it.condition(kind).is_some_and(is_true));
        that_are.count()
    };
    let flawed = federations.iter().filter_map(|it| Some(format!("{} ({})", it.name, flaw(it)?)));
    let unread = undecodable.iter().map(|name| format!("{name} (cannot be decoded)"));
    let flawed: Vec<_> = flawed.chain(unread).collect();
    let (trusted, synced) = (count(TRUSTED), count(SYNCED));
    let summary = format!("{all}, of which {trusted} are trusted and {synced} synced");
    if flawed.is_empty() {
        return it.ok(summary);
    }
    it.warning(
        format!("{summary}; with a problem: {}", some(flawed.into_iter())),
        "The message of each condition says why, and what to do.",
    )
    .run(format!("trustplane spiffe status --namespace {}", installation.state_namespace))
}

/// Why a federation is not in order; none if it is.
fn flaw(federation: &FederationFound) -> Option<String> {
    if federation.conditions.is_empty() {
        return Some("not synced yet".to_owned());
    }
    let wrong = [SYNCED, TRUSTED].into_iter().filter_map(|kind| match federation.condition(kind) {
        Some(it) if is_true(it) => None,
        Some(it) => Some(format!("{kind}: {}", it.reason)),
        None => Some(format!("{kind}: unknown")),
    });
    let mut wrong: Vec<_> = wrong.collect();
    if !federation.current {
        wrong.push("its spec changed since".to_owned());
    }
    (!wrong.is_empty()).then(|| wrong.join(", "))
}

fn is_true(condition: &ConditionFound) -> bool {
    condition.status == "True"
}

#[cfg(test)]
mod tests;
