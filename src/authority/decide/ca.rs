//! The phases of our CAs.
//!
//! ```text
//! prepared (published) -> active (signs) -> retiring (verifies what it signed) -> gone
//! ```
//!
//! - A CA becomes active at the earliest three refresh hints after it was published, so that every client
//!   that keeps to the hint knows it before it meets an SVID of it.
//! - A CA is gone at the earliest when the last SVID that it may have signed has expired.
//! - A CA that is revoked is gone at once, and if it is the active one, all others are, too.
//! - `spiffe_sequence` grows by one with each change of the published keys or hint, and never falls.
//!
//! The whole state, with keys, is one object, so each step is one write.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::time;
use crate::spiffe::bundle::write;

/// Refresh hints between the decision to publish a CA and its use. Clients get three: the write may arrive
/// late.
const HINTS_BEFORE_USE: i32 = 4;
/// A replica that could not read the state for this long does not sign, so a CA that retired may have
/// signed until then.
pub const MAX_STALENESS: TimeDelta = TimeDelta::minutes(5);
/// CAs in the state at most: two in normal rotation, and room for rotations in quick succession.
const MOST_CAS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub refresh_hint: TimeDelta,
    pub ca_ttl: TimeDelta,
    /// The longest validity of an SVID.
    pub svid_ttl: TimeDelta,
}

/// Everything about our trust domain but the keys, which are in the same object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityState {
    pub trust_domain: String,
    pub sequence: u64,
    /// In seconds.
    pub refresh_hint: i64,
    /// In the order in which they were made.
    pub cas: Vec<Ca>,
    /// Whether the prepared CA becomes active as early as it may.
    #[serde(default)]
    pub rotating: bool,
    /// The requests that were carried out last.
    #[serde(default)]
    pub handled: Requests,
    /// Until then clients may poll by an earlier hint, which was longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_hint_until: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ca {
    pub id: String,
    pub phase: Phase,
    /// Base64 DER. The first certificate is the CA's own; those above it follow.
    pub chain: Vec<String>,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
    pub published_at: DateTime<Utc>,
    /// Before that, clients may not know it.
    pub usable_at: DateTime<Utc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<DateTime<Utc>>,
    /// The longest validity in seconds of an SVID that it may have signed.
    pub longest_svid: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Prepared,
    Active,
    Retiring,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Active => "active",
            Self::Retiring => "retiring",
        }
    }
}

/// What administrators ask for; each request counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// Any new text asks for a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// The ID of a CA whose key is stolen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<String>,
}

/// A CA certificate that was just made. Its key is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCa {
    pub id: String,
    pub chain: Vec<String>,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaPlan {
    /// Nothing is to be done before then.
    Wait(DateTime<Utc>),
    Change(CaChange),
}

/// One write. Several things may be due at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaChange {
    /// Make a new CA in this phase.
    pub new: Option<Phase>,
    pub activate: Option<String>,
    /// The prepared CA whose time before use starts again.
    pub postpone: Option<String>,
    pub remove: Vec<String>,
    /// The one of these that was to be revoked.
    pub revoked: Option<String>,
    /// A request to revoke a CA that is not there.
    pub unknown: Option<String>,
    pub rotating: bool,
    pub handled: Requests,
}

impl CaChange {
    fn none(state: &AuthorityState) -> Self {
        Self { rotating: state.rotating, handled: state.handled.clone(), ..Self::default() }
    }

    /// What of it may be done while the state is not published: no CA becomes active. One that never was
    /// published has its whole time before use from now on. None if there is nothing to do, or nobody signs.
    pub fn before_publication(
        mut self,
        state: &AuthorityState,
        was_published: bool,
    ) -> Option<Self> {
        let Some(next) = self.activate.take() else { return Some(self) };
        let is_asked = self.handled.rotate != state.handled.rotate;
        self.rotating = state.rotating || is_asked;
        self.postpone = (!was_published).then_some(next);
        let signs = |ca: &Ca| ca.phase == Phase::Active && !self.remove.contains(&ca.id);
        let is_step = state.cas.iter().any(signs) && self != Self::none(state);
        is_step.then_some(self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("a certificate in the state is not base64, or missing")]
    Damaged,
    #[error(transparent)]
    Write(#[from] write::WriteError),
}

/// What a change did, for Events and the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub prepared: Option<String>,
    pub activated: Option<String>,
    pub removed: Vec<String>,
    pub revoked: Option<String>,
    pub unknown: Option<String>,
}

/// What was published of a state that is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    pub sequence: Option<u64>,
    /// Clients poll by it.
    pub refresh_hint: TimeDelta,
}

/// The first state, or the first after what was before.
pub fn first(
    trust_domain: &str,
    new: NewCa,
    before: Before,
    policy: &Policy,
    now: DateTime<Utc>,
) -> AuthorityState {
    let polled_longer = before.refresh_hint > policy.refresh_hint;
    AuthorityState {
        trust_domain: trust_domain.to_owned(),
        sequence: before.sequence.map_or(1, |it| it.saturating_add(1)),
        refresh_hint: policy.refresh_hint.num_seconds(),
        cas: vec![Ca::new(new, Phase::Active, policy, policy.refresh_hint, now)],
        rotating: false,
        handled: Requests::default(),
        longer_hint_until: polled_longer
            .then(|| time::after(whole(now), until_known(before.refresh_hint))),
    }
}

pub fn plan(
    state: &AuthorityState,
    requests: &Requests,
    policy: &Policy,
    now: DateTime<Utc>,
) -> CaPlan {
    let mut change = CaChange::none(state);
    let is_new =
        |asked: &Option<String>, handled: &Option<String>| asked.is_some() && asked != handled;
    change.remove.extend(state.cas.iter().filter(|ca| ca.is_over(now)).map(|ca| ca.id.clone()));
    if is_new(&requests.revoke, &state.handled.revoke) {
        change.handled.revoke = requests.revoke.clone();
        let found = state.cas.iter().find(|ca| Some(&ca.id) == requests.revoke.as_ref());
        match found {
            Some(ca) => {
                change.revoked = Some(ca.id.clone());
                // All keys lie in one Secret: whoever has the one that signs has the others, too.
                let goes =
                    |it: &&Ca| it.id == ca.id || it.is_over(now) || ca.phase == Phase::Active;
                change.remove = state.cas.iter().filter(goes).map(|it| it.id.clone()).collect();
            }
            None => change.unknown = requests.revoke.clone(),
        }
    }
    let remains = |phase: Phase| {
        state.cas.iter().find(|ca| ca.phase == phase && !change.remove.contains(&ca.id))
    };
    let (active, prepared) = (remains(Phase::Active), remains(Phase::Prepared));
    if is_new(&requests.rotate, &state.handled.rotate) {
        change.handled.rotate = requests.rotate.clone();
        change.rotating = true;
    }
    let room = state.cas.len() - change.remove.len().min(state.cas.len()) < MOST_CAS;
    match (active, prepared) {
        // It expired while nobody led, and others know the next one already.
        (None, Some(next)) if change.revoked.is_none() && now >= next.usable_at => {
            change.activate = Some(next.id.clone());
            change.rotating = false;
        }
        // It was revoked with all others, or nobody can know the next one yet.
        (None, _) => change.new = Some(Phase::Active),
        (Some(active), None) if (change.rotating || now >= active.prepare_at()) && room => {
            change.new = Some(Phase::Prepared);
        }
        (Some(active), Some(next))
            if now >= next.usable_at && (change.rotating || now >= active.rotate_at()) =>
        {
            change.activate = Some(next.id.clone());
            change.rotating = false;
        }
        _ => {}
    }
    let hint_changed = state.refresh_hint != policy.refresh_hint.num_seconds();
    let longer_svids = active.is_some_and(|ca| ca.longest_svid < policy.svid_ttl.num_seconds());
    if change == CaChange::none(state) && !hint_changed && !longer_svids {
        return CaPlan::Wait(next_change(state, active, prepared));
    }
    CaPlan::Change(change)
}

/// When the next change is due by itself.
fn next_change(
    state: &AuthorityState,
    active: Option<&Ca>,
    prepared: Option<&Ca>,
) -> DateTime<Utc> {
    // It goes after that second, not within it.
    let ends = state.cas.iter().map(|ca| time::after(ca.over_at(), TimeDelta::seconds(1)));
    let next = match (active, prepared) {
        (Some(active), None) => Some(active.prepare_at()),
        (Some(_), Some(next)) if state.rotating => Some(next.usable_at),
        (Some(active), Some(next)) => Some(next.usable_at.max(active.rotate_at())),
        (None, _) => None,
    };
    ends.chain(next).min().unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Carries a change out. `new` must be there if the change asks for it.
pub fn apply(
    state: &AuthorityState,
    change: &CaChange,
    new: Option<NewCa>,
    policy: &Policy,
    now: DateTime<Utc>,
) -> (AuthorityState, Changed) {
    let mut next = state.clone();
    let mut changed = Changed {
        revoked: change.revoked.clone(),
        unknown: change.unknown.clone(),
        ..Changed::default()
    };
    // Clients poll by the hint that they saw last.
    let last_hint = TimeDelta::try_seconds(state.refresh_hint).unwrap_or_default();
    let hint = policy.refresh_hint.max(last_hint);
    if policy.refresh_hint < last_hint {
        let until = time::after(whole(now), until_known(last_hint));
        next.longer_hint_until = state.longer_hint_until.max(Some(until));
    }
    next.cas.retain(|ca| !change.remove.contains(&ca.id));
    changed.removed.clone_from(&change.remove);
    if let Some(id) = &change.activate {
        for ca in &mut next.cas {
            if ca.id == *id {
                ca.phase = Phase::Active;
                ca.activated_at = Some(whole(now));
            } else if ca.phase == Phase::Active {
                ca.phase = Phase::Retiring;
                ca.retired_at = Some(whole(now));
            }
        }
        changed.activated = Some(id.clone());
    }
    let longer_hint_until = next.longer_hint_until;
    for ca in next.cas.iter_mut().filter(|ca| Some(&ca.id) == change.postpone.as_ref()) {
        let known = time::after(whole(now), until_known(hint));
        ca.usable_at = longer_hint_until.map_or(known, |it| it.max(known));
    }
    if let (Some(phase), Some(new)) = (change.new, new) {
        match phase {
            Phase::Active => changed.activated = Some(new.id.clone()),
            _ => changed.prepared = Some(new.id.clone()),
        }
        let mut ca = Ca::new(new, phase, policy, hint, now);
        if phase == Phase::Prepared {
            ca.usable_at = next.longer_hint_until.map_or(ca.usable_at, |it| it.max(ca.usable_at));
        }
        next.cas.push(ca);
        if phase == Phase::Active {
            next.rotating = false;
        }
    }
    next.rotating = change.rotating && change.new != Some(Phase::Active);
    next.handled = change.handled.clone();
    next.refresh_hint = policy.refresh_hint.num_seconds();
    for ca in next.cas.iter_mut().filter(|ca| ca.phase == Phase::Active) {
        ca.longest_svid = ca.longest_svid.max(policy.svid_ttl.num_seconds());
    }
    if next.content() != state.content() {
        next.sequence = state.sequence.saturating_add(1);
    }
    (next, changed)
}

impl AuthorityState {
    pub fn active(&self) -> Option<&Ca> {
        self.cas.iter().find(|ca| ca.phase == Phase::Active)
    }

    /// What the published document says, apart from its sequence.
    fn content(&self) -> (Vec<&str>, i64) {
        (self.authorities().collect(), self.refresh_hint)
    }

    /// The certificates that others verify with: the last of each chain, which is the CA's own unless
    /// another CA stands above it.
    fn authorities(&self) -> impl Iterator<Item = &str> {
        self.cas.iter().filter_map(|ca| ca.chain.last()).map(String::as_str)
    }

    /// The document to publish.
    pub fn document(&self) -> Result<String, StateError> {
        let authorities: Option<Vec<_>> =
            self.cas.iter().map(|ca| ca.certificates().and_then(|mut chain| chain.pop())).collect();
        let hint = Duration::from_secs(self.refresh_hint.try_into().unwrap_or(0));
        let authorities = authorities.ok_or(StateError::Damaged)?;
        Ok(write::document(&authorities, self.sequence, hint)?)
    }

    /// When the next change is due by itself, requests aside.
    pub fn change_due(&self) -> DateTime<Utc> {
        let prepared = self.cas.iter().find(|ca| ca.phase == Phase::Prepared);
        next_change(self, self.active(), prepared)
    }

    /// When the active CA should have been replaced at the latest.
    pub fn rotation_due(&self) -> Option<DateTime<Utc>> {
        self.active().map(Ca::rotate_at)
    }
}

impl Ca {
    fn new(new: NewCa, phase: Phase, policy: &Policy, hint: TimeDelta, now: DateTime<Utc>) -> Self {
        let NewCa { id, chain, not_before, not_after } = new;
        let now = whole(now);
        let wait = until_known(hint);
        Self {
            id,
            phase,
            chain,
            not_before,
            not_after,
            published_at: now,
            usable_at: if phase == Phase::Active { now } else { time::after(now, wait) },
            activated_at: (phase == Phase::Active).then_some(now),
            retired_at: None,
            longest_svid: policy.svid_ttl.num_seconds(),
        }
    }

    /// None if the state is damaged.
    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let decoded = self.chain.iter().map(|it| STANDARD.decode(it).map(CertificateDer::from));
        decoded.collect::<Result<Vec<_>, _>>().ok().filter(|it| !it.is_empty())
    }

    /// At half of its life the next one is prepared.
    fn prepare_at(&self) -> DateTime<Utc> {
        self.not_before + (self.not_after - self.not_before) / 2
    }

    /// At five sixths of its life the next one takes over.
    fn rotate_at(&self) -> DateTime<Utc> {
        self.not_before + (self.not_after - self.not_before) / 6 * 5
    }

    /// When nothing that it signed can be valid any more.
    pub fn over_at(&self) -> DateTime<Utc> {
        let signed = TimeDelta::try_seconds(self.longest_svid).unwrap_or(TimeDelta::MAX);
        match self.retired_at {
            Some(retired) => {
                time::after(time::after(retired, signed), MAX_STALENESS).min(self.not_after)
            }
            None => self.not_after,
        }
    }

    fn is_over(&self, now: DateTime<Utc>) -> bool {
        now > self.over_at()
    }
}

/// How long it takes until all clients that poll by this hint know something new.
fn until_known(hint: TimeDelta) -> TimeDelta {
    hint.checked_mul(HINTS_BEFORE_USE).unwrap_or(TimeDelta::MAX)
}

/// The API keeps whole seconds.
fn whole(now: DateTime<Utc>) -> DateTime<Utc> {
    now.trunc_subsecs(0)
}

#[cfg(test)]
mod tests;
