//! The wall clock as an argument: tests hand in their own.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

/// The time of day. Durations are measured with `tokio::time::Instant` instead.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl Clock {
    pub fn system() -> Self {
        Self(Arc::new(Utc::now))
    }

    /// A clock that a test moves.
    pub fn from_fn(now: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }

    /// Zero if the time has passed.
    pub fn until(&self, then: DateTime<Utc>) -> Duration {
        (then - self.now()).to_std().unwrap_or_default()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
