//! Back-offs of one Route: its writes are undone, or refused by the API server.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    inject::cache::refusals::Refusals,
    k8s::{
        backoff::Backoff,
        revert_backoff::{Limits, RevertBackoff},
    },
};

/// The same write undone five times within ten minutes is no accident.
pub(crate) const LIMITS: Limits = Limits {
    at_once: 5,
    window: Duration::from_secs(600),
    quiet: Duration::from_secs(600),
    waits: Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(300) },
};

#[derive(Debug, Default)]
pub(crate) struct WriteBackoffs {
    pub pair: RevertBackoff,
    pub status: RevertBackoff,
    /// None where the last attempt to change the pair succeeded.
    pub refusals: Option<Box<Refusals>>,
}

impl WriteBackoffs {
    pub(crate) fn are_over(&self, now: Instant) -> bool {
        let is_over = |backoff: &RevertBackoff| backoff.is_over(&LIMITS, now);
        is_over(&self.pair) && is_over(&self.status) && self.refusals.is_none()
    }
}
