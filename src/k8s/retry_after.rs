//! A 429 to one worker makes all of them wait.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::runtime::lock::lock;

/// The longest wait, whatever the server asks for: a webhook behind it may mean one object only.
const LONGEST: Duration = Duration::from_secs(30);

/// Workers wait for its end before they begin something new.
#[derive(Debug, Default)]
pub struct RetryAfter {
    until: Mutex<Option<Instant>>,
}

impl RetryAfter {
    /// Makes the wait last at least this long from now, and up to half as much again, so that not
    /// all clients of the server come back together.
    pub fn extend(&self, time: Duration) {
        let time = time.mul_f64(1.0 + fastrand::f64() / 2.0).min(LONGEST);
        let mut until = lock(&self.until);
        *until = (*until).max(Some(Instant::now() + time));
    }

    /// Waits until the end, even if it is moved meanwhile.
    pub async fn wait(&self) {
        loop {
            let until = *lock(&self.until);
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn waited(pause: &RetryAfter) -> Duration {
        let start = Instant::now();
        pause.wait().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_where_nobody_asked_for_time() {
        assert_eq!(waited(&RetryAfter::default()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_as_long_as_the_longest_that_was_asked_for() {
        let pause = RetryAfter::default();
        pause.extend(10 * SECOND);
        pause.extend(SECOND);
        let waited_for = waited(&pause).await;
        assert!((10 * SECOND..=15 * SECOND + SECOND / 100).contains(&waited_for), "{waited_for:?}");
        assert_eq!(waited(&pause).await, Duration::ZERO, "it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_already_waits_for_what_is_asked_meanwhile() {
        let pause = RetryAfter::default();
        pause.extend(2 * SECOND);
        let later = async {
            tokio::time::sleep(SECOND).await;
            pause.extend(10 * SECOND);
        };
        let (waited_for, ()) = tokio::join!(waited(&pause), later);
        assert!(waited_for >= 11 * SECOND, "{waited_for:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_hours_because_of_one_answer() {
        let pause = RetryAfter::default();
        pause.extend(3_600 * SECOND);
        assert!(waited(&pause).await <= LONGEST + SECOND / 100);
    }
}
