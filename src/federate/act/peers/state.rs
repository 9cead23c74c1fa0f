//! The state of a peer, and its status. Pure.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, SubsecRound, Utc};

use super::{
    error::PeerError,
    warning::{self, PeerWarning},
};
use crate::{
    api::spire_server::PeerStatus,
    runtime::printable::printable,
    spiffe::{bundle::Bundle, svid::SvidWarning},
};

/// The default of the SPIFFE specification.
const USUAL_HINT: Duration = Duration::from_secs(300);
pub(super) const SHORTEST_HINT: Duration = Duration::from_secs(60);
const LONGEST_HINT: Duration = Duration::from_secs(24 * 3_600);
/// As SPIRE does, so that a rotation is noticed in time.
pub(crate) const ATTEMPTS_PER_REFRESH_HINT: u32 = 4;

#[derive(Clone, Debug, Default)]
pub struct PeerState {
    pub bundle: Option<Arc<Bundle>>,
    /// Since when the bundle has these keys.
    pub since: Option<DateTime<Utc>>,
    /// Whether this process saw earlier keys.
    pub(super) changed: bool,
    pub last_success: Option<DateTime<Utc>>,
    pub last_error: Option<PeerError>,
    /// About the last good bundle, or the certificate it came with.
    pub(super) warnings: Vec<PeerWarning>,
}

/// The result of one fetch.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub outcome: Result<Bundle, PeerError>,
    /// About the endpoint's certificate.
    pub warnings: Vec<SvidWarning>,
}

impl From<Result<Bundle, PeerError>> for Answer {
    fn from(outcome: Result<Bundle, PeerError>) -> Self {
        Self { outcome, warnings: Vec::new() }
    }
}

/// The refresh hint, within our limits.
pub fn hint(published: Option<Duration>) -> Duration {
    published.unwrap_or(USUAL_HINT).clamp(SHORTEST_HINT, LONGEST_HINT)
}

impl PeerState {
    /// The time until the next fetch.
    pub fn interval(&self) -> Duration {
        self.hint() / ATTEMPTS_PER_REFRESH_HINT
    }

    fn hint(&self) -> Duration {
        hint(self.bundle.as_ref().and_then(|bundle| bundle.refresh_hint))
    }

    pub(super) fn record(&mut self, answer: Answer, now: DateTime<Utc>) {
        let Answer { outcome, warnings } = answer;
        match outcome {
            Ok(bundle) => {
                let not_yet = PeerWarning::of_authorities(&bundle, now);
                let of_certificate = warnings.into_iter().map(PeerWarning::Certificate);
                self.warnings = of_certificate.chain(not_yet).collect();
                let same = self.bundle.as_ref().is_some_and(|known| known.same_keys(&bundle));
                if !same {
                    self.changed = self.bundle.is_some();
                    self.since = Some(now);
                }
                self.bundle = Some(Arc::new(bundle));
                self.last_success = Some(now);
                self.last_error = None;
            }
            // The last good bundle stays, as in the SPIRE server.
            Err(error) => self.last_error = Some(error),
        }
    }

    pub fn status(&self, trust_domain: &str) -> PeerStatus {
        let bundle = self.bundle.as_deref();
        let (reachable, verified) = match &self.last_error {
            None => (self.last_success.is_some(), self.last_success.is_some()),
            Some(error) => error.reached_and_verified(),
        };
        let whole = |time: Option<DateTime<Utc>>| time.map(|time| time.trunc_subsecs(0));
        PeerStatus {
            trust_domain: trust_domain.to_owned(),
            reachable,
            profile_verified: verified,
            last_success_time: whole(self.last_success),
            bundle_since: whole(self.since),
            // The API server refuses a status with larger numbers.
            sequence: bundle.and_then(|it| it.sequence).map(|it| it.min(i64::MAX as u64)),
            // Set from the earlier status, see `current_status`.
            sequence_went_back_from: None,
            refresh_hint: bundle.and_then(|it| it.refresh_hint).map(|hint| hint.as_secs()),
            x509_authorities: bundle.map(|it| it.x509.len()),
            jwt_authorities: bundle.map(|it| it.jwt.len()),
            earliest_expiry: whole(bundle.and_then(Bundle::earliest_expiry)),
            latest_expiry: whole(bundle.and_then(Bundle::latest_expiry)),
            last_error: self.last_error.as_ref().map(|it| printable(&it.to_string()).into_owned()),
            warnings: texts(&self.warnings),
            ..PeerStatus::default()
        }
    }
}

/// The status of a peer. Without a bundle in this process, its fields stay as an earlier process wrote them.
pub(super) fn current_status(
    existing: Option<&PeerStatus>,
    known: Option<&PeerState>,
    trust_domain: &str,
) -> PeerStatus {
    let now = known.map(|known| known.status(trust_domain));
    let (Some(old), Some(now), Some(known)) = (existing, &now, known) else {
        let one = existing.cloned().or(now);
        return one.unwrap_or_else(|| PeerState::default().status(trust_domain));
    };
    if known.bundle.is_none() {
        let PeerStatus { reachable, profile_verified, last_error, .. } = now.clone();
        return PeerStatus { reachable, profile_verified, last_error, ..old.clone() };
    }
    let content = |it: &PeerStatus| {
        (it.sequence, it.x509_authorities, it.jwt_authorities, it.earliest_expiry)
    };
    let same = !known.changed && content(old) == content(now);
    let bundle_since = if same { old.bundle_since } else { now.bundle_since };
    let sequence_went_back_from = warning::went_back_from(old, now.sequence);
    let now = PeerStatus { bundle_since, sequence_went_back_from, ..now.clone() };
    PeerStatus { warnings: texts(&warnings(&now, Some(known))), ..now }
}

pub(super) fn warnings(status: &PeerStatus, known: Option<&PeerState>) -> Vec<PeerWarning> {
    let of_bundle = known.map(|known| known.warnings.clone()).unwrap_or_default();
    let went_back = status.sequence_went_back_from.zip(status.sequence);
    let went_back = went_back.map(|(from, to)| PeerWarning::SequenceWentBack { from, to });
    of_bundle.into_iter().chain(went_back).collect()
}

fn texts(warnings: &[PeerWarning]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

/// The old status unless something changed. A slightly newer time of success is no change.
pub(super) fn worth_writing(
    existing: Option<&PeerStatus>,
    known: Option<&PeerState>,
    trust_domain: &str,
) -> PeerStatus {
    let new = current_status(existing, known, trust_domain);
    let (Some(old), Some(known)) = (existing, known) else { return new };
    let aged = PeerStatus { last_success_time: old.last_success_time, ..new.clone() };
    let passed = old.last_success_time.zip(new.last_success_time).map(|(old, new)| new - old);
    // A time in the future, from a wrong clock, is corrected.
    let little = passed.and_then(|it| it.to_std().ok()).is_some_and(|it| it < known.hint());
    if aged == *old && little { aged } else { new }
}
