//! When a federation is synced, and what becomes of the answer.
//!
//! - At once after a change of the spec, a request or a takeover by another federation; otherwise at
//!   `nextSyncAt`, which a new leader finds in the status. Requests count every 10 seconds at most.
//! - A failure keeps the last bundle and waits for the next interval.
//! - A verified bundle without keys is an answer, not a failure: it ends trust.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::{request, time};
use crate::{
    api::{
        condition::{Condition, ConditionValue},
        spiffe_federation::{SpiffeFederation, SpiffeFederationStatus},
    },
    authority::decide::problem::Problem,
    names::{ACCEPT_ANNOTATION, REFRESH_ANNOTATION},
    spiffe::bundle::Bundle,
};

pub const SYNCED: &str = "Synced";
pub const TRUSTED: &str = "Trusted";

/// Without a hint of the peer.
pub const DEFAULT_INTERVAL: TimeDelta = TimeDelta::minutes(5);
const LONGEST_INTERVAL: TimeDelta = TimeDelta::hours(24);
/// Between two syncs on request: whoever may ask could make us flood an endpoint.
const REFRESH_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// Clocks of two replicas may differ by this much.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);
/// Of a document as the API server stores it, in bytes: an object may have 1.5 MiB.
const LARGEST_STORED: usize = 640 * 1024;
/// Up to this share of an interval is left out at random, so that a thousand federations do not come at
/// the same time.
const JITTER: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub shortest_interval: TimeDelta,
}

/// Why a federation is synced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReason {
    SpecChanged,
    Requested,
    Accepted,
    /// Another federation for the same trust domain came or went.
    EligibilityChanged,
    Due,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Now(SyncReason),
    At(DateTime<Utc>),
    Never,
}

/// A bundle, and the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub bundle: Bundle,
    pub document: String,
}

/// What a sync means for the object, and for those who look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub status: SpiffeFederationStatus,
    pub event: Option<SyncEvent>,
    pub rotation: Option<Rotation>,
    /// A bounded label for metrics.
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncEvent {
    pub kind: &'static str,
    pub reason: &'static str,
    pub note: String,
    /// Deduplication key.
    pub topic: Option<String>,
    /// Whether it is about a problem that lasts.
    pub is_ongoing: bool,
}

/// The keys changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub old_sequence: Option<String>,
    pub old_keys: Vec<String>,
    pub new_keys: Vec<String>,
    pub fingerprint: String,
}

/// Whether the federation is to be synced. `eligible` says whether it counts for its trust domain.
pub fn due(
    federation: &SpiffeFederation,
    eligible: bool,
    policy: &Policy,
    now: DateTime<Utc>,
) -> Due {
    let status = &federation.status;
    let Some(synced) = federation.condition(SYNCED) else {
        return Due::Now(SyncReason::SpecChanged);
    };
    if synced.observed_generation != federation.generation() {
        return Due::Now(SyncReason::SpecChanged);
    }
    let was_ineligible = INELIGIBLE.contains(&&*synced.reason);
    if was_ineligible == eligible {
        return Due::Now(SyncReason::EligibilityChanged);
    }
    let requested = refresh_at(federation, policy, now);
    if requested.is_some_and(|at| at <= now) {
        return Due::Now(SyncReason::Requested);
    }
    if !eligible {
        return requested.map_or(Due::Never, Due::At);
    }
    let accepted = accepted_fingerprint(federation);
    if accepted.is_some() && accepted == status.refused_fingerprint.as_deref() {
        return Due::Now(SyncReason::Accepted);
    }
    let hint = status.current_bundle_refresh_hint.and_then(TimeDelta::try_seconds);
    let latest = time::after(now, interval(hint, policy) + CLOCK_SKEW);
    match status.next_sync_at {
        // One that is too far away was written by a clock that was ahead.
        Some(at) if at <= now || at > latest => Due::Now(SyncReason::Due),
        Some(at) => Due::At(requested.map_or(at, |requested| requested.min(at))),
        None if federation.spec.bundle_source.fixed.is_some() => {
            requested.map_or(Due::Never, Due::At)
        }
        None => Due::Now(SyncReason::Due),
    }
}

/// When a request for a refresh is to be carried out, if there is a new one.
fn refresh_at(
    federation: &SpiffeFederation,
    policy: &Policy,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let status = &federation.status;
    is_refresh_new(federation).then(|| {
        // A time that is still to come is that of a clock which was ahead.
        let last = status.observed_refresh_at.filter(|at| *at <= now);
        last.map_or(now, |at| time::after(at, REFRESH_PAUSE.min(policy.shortest_interval)))
    })
}

fn is_refresh_new(federation: &SpiffeFederation) -> bool {
    is_new(federation.annotation(REFRESH_ANNOTATION), &federation.status.observed_refresh)
}

fn is_new(asked: Option<&str>, observed: &Option<String>) -> bool {
    asked.is_some() && asked.map(request::kept) != observed.as_deref().map(request::kept)
}

/// Whether it is known to count for its trust domain.
pub fn counts(federation: &SpiffeFederation) -> bool {
    federation.condition(SYNCED).is_some_and(|it| !INELIGIBLE.contains(&&*it.reason))
}

/// The reasons of `Synced` while a federation does not count.
const INELIGIBLE: [&str; 4] =
    ["InvalidTrustDomain", "OwnTrustDomain", "DuplicateTrustDomain", "Deleting"];

/// The fingerprint that an administrator accepts: the first word of the annotation. The same annotation
/// counts once, or an old copy could be played again later.
fn accepted_fingerprint(federation: &SpiffeFederation) -> Option<&str> {
    let annotation = federation.annotation(ACCEPT_ANNOTATION)?;
    let is_new = is_new(Some(annotation), &federation.status.observed_accept);
    annotation.split_whitespace().next().filter(|_| is_new)
}

/// Judges what was received. `random` is from 0 to 1.
pub fn conclude(
    federation: &SpiffeFederation,
    received: Result<Received, Problem>,
    policy: &Policy,
    random: f64,
    now: DateTime<Utc>,
) -> Outcome {
    match received.and_then(|it| judge(federation, it, now)) {
        Ok(received) => accepted(federation, received, policy, random, now),
        Err(problem) => failed(federation, &problem, policy, random, now),
    }
}

/// Refuses an answer that is well-formed and not to be trusted.
fn judge(
    federation: &SpiffeFederation,
    received: Received,
    now: DateTime<Utc>,
) -> Result<Received, Problem> {
    let Received { bundle, document } = &received;
    if stored_length(document) > LARGEST_STORED {
        return Err(Problem::NotStorable);
    }
    let is_usable = |bundle: &Bundle| {
        !bundle.jwt.is_empty() || bundle.x509.iter().any(|it| it.is_valid_at(now))
    };
    if !bundle.x509.is_empty() && !is_usable(bundle) {
        return Err(Problem::NoneValid);
    }
    let seen = federation.status.sequence.as_deref().and_then(|it| it.parse().ok());
    if let (Some(found), Some(seen)) = (bundle.sequence, seen)
        && found < seen
    {
        let fingerprint = bundle.fingerprint();
        if accepted_fingerprint(federation) != Some(&*fingerprint) {
            let name = federation.name().to_owned();
            return Err(Problem::LowerSequence { found, seen, name, fingerprint });
        }
    }
    Ok(received)
}

/// The API server escapes what could be HTML.
fn stored_length(document: &str) -> usize {
    let length = |c: char| match c {
        '<' | '>' | '&' => 6,
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if c.is_control() => 6,
        c => c.len_utf8(),
    };
    document.chars().map(length).sum()
}

fn accepted(
    federation: &SpiffeFederation,
    Received { bundle, document }: Received,
    policy: &Policy,
    random: f64,
    now: DateTime<Utc>,
) -> Outcome {
    let before = &federation.status;
    let hint = bundle.refresh_hint.and_then(|it| TimeDelta::from_std(it).ok());
    let is_static = federation.spec.bundle_source.fixed.is_some();
    let fingerprint = bundle.fingerprint();
    let synced = ConditionValue::new(SYNCED, "True", "Synced", "");
    let trusted = trusted(&bundle, now);
    let keys_changed = before.fingerprint.as_deref() != Some(&*fingerprint);
    let status = SpiffeFederationStatus {
        current_bundle: Some(document),
        current_bundle_synced_at: Some(now.trunc_subsecs(0)),
        current_bundle_refresh_hint: hint.map(|it| it.num_seconds()),
        current_bundle_synced_from: Some(federation.spec.bundle_source.digested()),
        next_sync_at: (!is_static).then(|| next(now, interval(hint, policy), policy, random)),
        // A peer that leaves its sequence out may come back with a lower one, which is refused then.
        sequence: bundle.sequence.map(|it| it.to_string()).or_else(|| before.sequence.clone()),
        fingerprint: Some(fingerprint.clone()),
        refused_fingerprint: None,
        observed_accept: federation.annotation(ACCEPT_ANNOTATION).map(request::kept),
        ..observed(federation, &[synced, trusted.clone()], now)
    };
    let rotation = keys_changed.then(|| Rotation {
        old_sequence: before.sequence.clone().filter(|_| before.current_bundle.is_some()),
        old_keys: before.current_bundle.as_deref().map(key_ids).unwrap_or_default(),
        new_keys: ids(&bundle),
        fingerprint: fingerprint.clone(),
    });
    let event = acceptance_event(federation, &bundle, &trusted, keys_changed);
    let result = if keys_changed { "ok" } else { "unchanged" };
    Outcome { status, event, rotation, result }
}

fn acceptance_event(
    federation: &SpiffeFederation,
    bundle: &Bundle,
    trusted: &ConditionValue,
    keys_changed: bool,
) -> Option<SyncEvent> {
    let before = &federation.status;
    let once = |kind, reason, note: String| {
        Some(SyncEvent { kind, reason, note, topic: None, is_ongoing: false })
    };
    if trusted.status == "False" && keys_changed {
        return once("Warning", "TrustEnded", trusted.message.clone());
    }
    if !keys_changed {
        return None;
    }
    let same_number = before.current_bundle.is_some()
        && bundle.sequence.map(|it| it.to_string()) == before.sequence;
    if same_number && bundle.sequence.is_some() {
        let note = format!(
            "The bundle has other keys under the same sequence {}. They are used; the peer should count every change",
            before.sequence.as_deref().unwrap_or_default()
        );
        return once("Warning", "SequenceNotRaised", note);
    }
    let (x509, jwt) = (bundle.x509.len(), bundle.jwt.len());
    let sequence = bundle.sequence.map(|it| format!(", sequence {it}")).unwrap_or_default();
    let note = format!("New bundle: {x509} X.509 authorities, {jwt} JWT keys{sequence}");
    once("Normal", "BundleChanged", note)
}

fn trusted(bundle: &Bundle, now: DateTime<Utc>) -> ConditionValue {
    if bundle.x509.is_empty() && bundle.jwt.is_empty() {
        let message = "the trust domain's bundle has no keys: it has revoked all of them, so no SVID of it is valid";
        return ConditionValue::new(TRUSTED, "False", "BundleEmpty", message);
    }
    let is_valid = bundle.x509.iter().any(|it| it.is_valid_at(now));
    if !is_valid && bundle.jwt.is_empty() {
        let message =
            "every CA certificate of the trust domain has expired, so no SVID of it is valid";
        return ConditionValue::new(TRUSTED, "False", "BundleExpired", message);
    }
    ConditionValue::new(TRUSTED, "True", "BundleCurrent", "")
}

fn failed(
    federation: &SpiffeFederation,
    problem: &Problem,
    policy: &Policy,
    random: f64,
    now: DateTime<Utc>,
) -> Outcome {
    let before = &federation.status;
    let synced = ConditionValue::new(SYNCED, "False", problem.reason(), problem.to_string());
    let stored = before.current_bundle.as_deref().filter(|_| !problem.ends_trust());
    let trusted = match stored.map(|it| Bundle::parse(it.as_bytes())) {
        Some(Ok(bundle)) => trusted(&bundle, now),
        _ => ConditionValue::new(
            TRUSTED,
            "False",
            "NoBundle",
            "there is no bundle, so no SVID of the trust domain is valid",
        ),
    };
    let hint = before.current_bundle_refresh_hint.and_then(TimeDelta::try_seconds);
    let wait = match stored {
        Some(_) => interval(hint, policy),
        None => policy.shortest_interval,
    };
    let refused_fingerprint = match problem {
        Problem::LowerSequence { fingerprint, .. } => Some(fingerprint.clone()),
        _ => None,
    };
    let is_fetched = federation.spec.bundle_source.fixed.is_none();
    let may_pass = is_fetched || matches!(problem, Problem::NoneValid | Problem::TooMany);
    let base = match problem.ends_trust() {
        // What was seen still counts when the federation does again.
        true => SpiffeFederationStatus {
            sequence: before.sequence.clone(),
            observed_accept: before.observed_accept.clone(),
            ..SpiffeFederationStatus::default()
        },
        false => before.clone(),
    };
    let observed = observed(federation, &[synced, trusted], now);
    let status = SpiffeFederationStatus {
        // One that does not count is looked at again when another one changes.
        next_sync_at: (!problem.ends_trust() && may_pass).then(|| next(now, wait, policy, random)),
        refused_fingerprint,
        observed_refresh: observed.observed_refresh,
        observed_refresh_at: observed.observed_refresh_at,
        audited_generation: before.audited_generation,
        conditions: observed.conditions,
        ..base
    };
    let event = SyncEvent {
        kind: "Warning",
        reason: problem.reason(),
        note: problem.to_string(),
        topic: problem.topic(),
        is_ongoing: true,
    };
    let result = match problem {
        Problem::LowerSequence { .. } => "refused",
        _ => "failed",
    };
    Outcome { status, event: Some(event), rotation: None, result }
}

/// The conditions, and the request that was carried out.
fn observed(
    federation: &SpiffeFederation,
    values: &[ConditionValue],
    now: DateTime<Utc>,
) -> SpiffeFederationStatus {
    let existing = &federation.status.conditions;
    let stamped = |value: &ConditionValue| value.stamped(existing, federation.generation(), now);
    let ours: Vec<Condition> = values.iter().map(stamped).collect();
    let theirs = existing.iter().filter(|it| !values.iter().any(|value| value.about == it.r#type));
    let observed_refresh_at = match is_refresh_new(federation) {
        true => Some(now.trunc_subsecs(0)),
        false => federation.status.observed_refresh_at,
    };
    SpiffeFederationStatus {
        observed_refresh: federation.annotation(REFRESH_ANNOTATION).map(request::kept),
        observed_refresh_at,
        audited_generation: federation.status.audited_generation,
        conditions: ours.iter().chain(theirs).cloned().collect(),
        ..SpiffeFederationStatus::default()
    }
}

/// How long a bundle with this hint is used before the next is fetched.
pub fn interval(hint: Option<TimeDelta>, policy: &Policy) -> TimeDelta {
    let shortest = policy.shortest_interval.min(LONGEST_INTERVAL);
    hint.unwrap_or(DEFAULT_INTERVAL).clamp(shortest, LONGEST_INTERVAL)
}

fn next(now: DateTime<Utc>, wait: TimeDelta, policy: &Policy, random: f64) -> DateTime<Utc> {
    let early = wait.num_milliseconds() as f64 * JITTER * random.clamp(0.0, 1.0);
    let wait = wait - TimeDelta::milliseconds(early as i64);
    let shortest = policy.shortest_interval.min(LONGEST_INTERVAL);
    time::after(now, wait.max(shortest)).trunc_subsecs(0)
}

/// Identifies each key of a document, for people to compare.
pub fn key_ids(document: &str) -> Vec<String> {
    Bundle::parse(document.as_bytes()).map(|bundle| ids(&bundle)).unwrap_or_default()
}

fn ids(bundle: &Bundle) -> Vec<String> {
    let x509 = bundle.x509.iter().map(|it| format!("x509:{}", it.key_id()));
    let jwt = bundle.jwt.iter().map(|it| format!("jwt:{}", it.kid));
    x509.chain(jwt).collect()
}

/// The status after the last authority expired, which ends trust although nothing was fetched.
pub fn expired(
    federation: &SpiffeFederation,
    now: DateTime<Utc>,
) -> Option<SpiffeFederationStatus> {
    let status = &federation.status;
    let was_trusted = federation.condition(TRUSTED).is_some_and(|it| it.status == "True");
    if !was_trusted || expires_at(status)? >= now {
        return None;
    }
    let bundle = Bundle::parse(status.current_bundle.as_ref()?.as_bytes()).ok()?;
    let mut status = status.clone();
    let value = trusted(&bundle, now);
    let stamped = value.stamped(&status.conditions, federation.generation(), now);
    status.conditions.retain(|it| it.r#type != TRUSTED);
    status.conditions.push(stamped);
    Some(status)
}

/// When the last authority expires, which ends trust although nothing changed.
pub fn expires_at(status: &SpiffeFederationStatus) -> Option<DateTime<Utc>> {
    let bundle = Bundle::parse(status.current_bundle.as_ref()?.as_bytes()).ok()?;
    bundle.latest_expiry().filter(|_| bundle.jwt.is_empty())
}

#[cfg(test)]
mod tests;
