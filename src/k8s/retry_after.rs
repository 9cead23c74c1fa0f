//! A server that asks one worker for time asks all of them.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use crate::runtime::lock::lock;

/// Whatever a server asks for, or a webhook behind it that has only one object in mind: nobody
/// waits longer than this because of another.
const LONGEST: Duration = Duration::from_secs(30);

/// What all workers wait for before they begin something new.
#[derive(Debug, Default)]
pub struct RetryAfter {
    until: Mutex<Option<Instant>>,
}

impl RetryAfter {
    /// The server asks for so much time. It gets up to half as much again, so that not all of its
    /// clients come back together. A pause is never cut short by one that asks for less.
    pub fn ask(&self, time: Duration) {
        let time = time.mul_f64(1.0 + fastrand::f64() / 2.0).min(LONGEST);
        let mut until = self.until();
        *until = (*until).max(Some(Instant::now() + time));
    }

    /// Waits for the end of the pause, wherever it is moved meanwhile.
    pub async fn over(&self) {
        loop {
            let until = *self.until();
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn waited(pause: &RetryAfter) -> Duration {
        let start = Instant::now();
        pause.over().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_where_nobody_asked_for_time() {
        assert_eq!(waited(&RetryAfter::default()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_as_long_as_the_longest_that_was_asked_for() {
        let pause = RetryAfter::default();
        pause.ask(10 * SECOND);
        pause.ask(SECOND);
        let waited_for = waited(&pause).await;
        assert!((10 * SECOND..=15 * SECOND + SECOND / 100).contains(&waited_for), "{waited_for:?}");
        assert_eq!(waited(&pause).await, Duration::ZERO, "it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_already_waits_for_what_is_asked_meanwhile() {
        let pause = RetryAfter::default();
        pause.ask(2 * SECOND);
        let later = async {
            tokio::time::sleep(SECOND).await;
            pause.ask(10 * SECOND);
        };
        let (waited_for, ()) = tokio::join!(waited(&pause), later);
        assert!(waited_for >= 11 * SECOND, "{waited_for:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_hours_because_of_one_answer() {
        let pause = RetryAfter::default();
        pause.ask(3_600 * SECOND);
        assert!(waited(&pause).await <= LONGEST + SECOND / 100);
    }
}
