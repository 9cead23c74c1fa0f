//! How long to wait before the next try: exponential, with jitter, per object.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The most that `after` waits.
    pub longest: Duration,
}

impl Backoff {
    /// For one object whose reconcile fails.
    pub const OBJECT: Self =
        Self { first: Duration::from_millis(200), longest: Duration::from_secs(120) };
    /// For one watch that can't be opened.
    pub const WATCH: Self =
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

    /// The wait after so many failures in a row, between half and the whole of the doubled time,
    /// so that a thousand objects that failed together do not come back together.
    pub fn after(&self, failures: u32) -> Duration {
        let whole = self.ceiling(failures);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The longest wait of `after` for so many failures.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doubled = 2u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_overflow() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
        let ceilings: Vec<_> =
            [1, 2, 3, 6, 7, 31, 33, u32::MAX].map(|n| backoff.ceiling(n).as_secs()).into();
        assert_eq!(ceilings, [1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        for failures in 1..10 {
            let whole = Backoff::OBJECT.ceiling(failures);
            for _ in 0..1_000 {
                let wait = Backoff::OBJECT.after(failures);
                assert!(whole / 2 <= wait && wait <= whole, "{wait:?} of {whole:?}");
            }
        }
    }
}
