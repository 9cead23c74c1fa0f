//! Repeated failures to change one Route: when they are reported, and when it is tried again. Pure.
//!
//! A single failure is not reported: an API server restarts, a webhook is rolled out. A lasting one
//! is, because the published condition is no longer true.

use std::time::Duration;

use tokio::time::Instant;

use crate::{inject::decide::apply_error::ApplyError, k8s::api_error::ApiError};

/// So many failures in a row are reported.
const REPORTED_AFTER: u32 = 3;
/// Failures that last this long are reported, however few there were.
const REPORTED_WITHIN: Duration = Duration::from_secs(30);
/// A write that is too large is sent again after this long, or after a change.
const TOO_LARGE: Duration = Duration::from_secs(3_600);
/// A refused write is not tried more often, however often its Route changes.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// When a Route that can't be changed is tried again, if nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, then less and less often.
    BackOff,
    /// When every Route is decided again.
    AtResync,
    At(Instant),
}

#[derive(Debug, Default)]
pub struct Refusals {
    /// To write the pair, or to read what it is decided from.
    pair: Streak,
    /// To write the condition.
    status: Streak,
    last: Option<Instant>,
    /// The write that was too large, by a digest, and when it was sent.
    too_large: Option<(Option<u64>, Instant)>,
}

#[derive(Debug, Default)]
struct Streak {
    count: u32,
    first: Option<Instant>,
}

impl Streak {
    fn lasts(&mut self, now: Instant) -> bool {
        self.count = self.count.saturating_add(1);
        let first = *self.first.get_or_insert(now);
        self.count >= REPORTED_AFTER || now.duration_since(first) >= REPORTED_WITHIN
    }
}

impl Refusals {
    /// Counts one more. Answers whether it is to be reported.
    pub fn count(&mut self, error: &ApplyError, now: Instant) -> bool {
        self.last = Some(now);
        match error.cause() {
            // Users can only wait for these to pass; metrics show them.
            Some(
                ApiError::TooManyRequests { .. }
                | ApiError::Unreachable { .. }
                | ApiError::NotLeader,
            ) => false,
            Some(cause) if is_final(cause) => true,
            _ if matches!(error, ApplyError::Status { .. }) => self.status.lasts(now),
            _ => self.pair.lasts(now),
        }
    }

    pub fn too_large(&mut self, write: Option<u64>, now: Instant) {
        self.too_large = Some((write, now));
    }

    /// Whether this write would be refused as too large again: it is the same, the Route has not
    /// changed since, and it was sent lately.
    pub fn is_too_large(&self, write: Option<u64>, changed: Instant, now: Instant) -> bool {
        self.too_large.is_some_and(|(refused, at)| {
            refused == write && changed <= at && now.duration_since(at) < TOO_LARGE
        })
    }

    pub fn retry(&self, error: &ApplyError, now: Instant) -> Retry {
        let ApplyError::Pair { cause, .. } = error else { return Retry::BackOff };
        let due = self.too_large.map(|(_, at)| at + TOO_LARGE).filter(|due| *due > now);
        match (cause, due) {
            (ApiError::RequestTooLarge, Some(due)) => Retry::At(due),
            (ApiError::Denied { .. } | ApiError::Invalid { .. }, _) => Retry::AtResync,
            _ => Retry::BackOff,
        }
    }

    /// When a change of the Route may lead to the next try.
    pub fn not_before(&self) -> Option<Instant> {
        self.last.map(|last| last + BETWEEN_TRIES)
    }
}

/// Whether the same request is answered the same until somebody changes something.
pub fn is_final(cause: &ApiError) -> bool {
    matches!(
        cause,
        ApiError::Forbidden
            | ApiError::Denied { .. }
            | ApiError::Invalid { .. }
            | ApiError::RequestTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::{api_error::Admission, object_ref::ObjectRef};

    const SECOND: Duration = Duration::from_secs(1);
    const PAIR: Option<u64> = Some(1);

    fn pair(cause: ApiError) -> ApplyError {
        ApplyError::Pair { route: ObjectRef::new("web", "shop"), cause }
    }

    fn status(cause: ApiError) -> ApplyError {
        ApplyError::Status { route: ObjectRef::new("web", "shop"), cause }
    }

    fn reported(cause: &ApiError, times: &[u32]) -> Vec<bool> {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let error = pair(cause.clone());
        times.iter().map(|&at| refusals.count(&error, start + SECOND * at)).collect()
    }

    #[test]
    fn the_third_refusal_in_a_row_is_told_and_one_after_thirty_seconds() {
        let webhook = Admission::Webhook("x".into());
        for cause in [
            ApiError::Server { code: 500 },
            ApiError::WebhookFailed { webhook, code: 500 },
            ApiError::Timeout(SECOND * 10),
            ApiError::Conflict,
        ] {
            assert_eq!(reported(&cause, &[0, 1, 2]), [false, false, true], "{cause}");
            assert_eq!(reported(&cause, &[0, 30]), [false, true], "{cause}");
        }
    }

    #[test]
    fn a_condition_that_was_refused_does_not_count_as_a_pair_that_was() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let failed = || ApiError::Server { code: 500 };
        assert!(!refusals.count(&status(failed()), now));
        assert!(!refusals.count(&status(failed()), now));
        assert!(!refusals.count(&pair(failed()), now));
        assert!(refusals.count(&status(failed()), now));
    }

    #[test]
    fn what_only_a_person_can_change_is_told_at_once() {
        let by = Admission::Policy("p".into());
        for cause in [
            ApiError::Forbidden,
            ApiError::Denied { by, code: 403 },
            ApiError::Invalid { code: 422, fields: String::new() },
            ApiError::RequestTooLarge,
        ] {
            assert_eq!(reported(&cause, &[0]), [true], "{cause}");
        }
    }

    #[test]
    fn a_busy_or_unreachable_server_and_a_lost_lease_are_never_told() {
        for cause in [
            ApiError::TooManyRequests { retry_after: SECOND },
            ApiError::Unreachable { why: String::new() },
            ApiError::NotLeader,
        ] {
            assert_eq!(reported(&cause, &[0, 10, 20, 300]), [false; 4], "{cause}");
        }
    }

    #[test]
    fn a_write_that_is_too_large_waits_an_hour_or_for_a_change() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let sent = start + SECOND;
        refusals.too_large(PAIR, sent);
        let too_large = pair(ApiError::RequestTooLarge);
        assert_eq!(refusals.retry(&too_large, sent), Retry::At(sent + TOO_LARGE));
        assert_eq!(
            refusals.retry(&too_large, sent + TOO_LARGE),
            Retry::BackOff,
            "never in the past"
        );
        let condition = status(ApiError::RequestTooLarge);
        assert_eq!(refusals.retry(&condition, sent), Retry::BackOff, "that is another write");
        assert!(refusals.is_too_large(PAIR, start, sent + SECOND));
        assert!(!refusals.is_too_large(PAIR, start, sent + TOO_LARGE), "the hour is over");
        assert!(!refusals.is_too_large(Some(2), start, sent + SECOND), "another pair");
        assert!(!refusals.is_too_large(PAIR, sent + SECOND, sent + SECOND), "the Route changed");
    }

    #[test]
    fn a_denial_is_tried_again_at_the_next_resync_and_a_missing_right_soon() {
        let (refusals, by, now) =
            (Refusals::default(), Admission::Policy("p".into()), Instant::now());
        let retry = |cause| refusals.retry(&pair(cause), now);
        assert_eq!(retry(ApiError::Denied { by, code: 403 }), Retry::AtResync);
        assert_eq!(retry(ApiError::Forbidden), Retry::BackOff);
        assert_eq!(retry(ApiError::Server { code: 500 }), Retry::BackOff);
    }
}
