//! The wall clock as an argument: tests hand in their own.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

/// Tells the time of day. Whatever measures a span uses `tokio::time::Instant` instead.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Arc::new(Utc::now))
    }

    /// A clock that a test moves.
    pub fn from_fn(now: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time of day.
    pub fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }

    /// How long from now until then; nothing if it has passed.
    pub fn until(&self, then: DateTime<Utc>) -> Duration {
        (then - self.now()).to_std().unwrap_or_default()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
