//! Notices that somebody keeps undoing what we put right, and takes longer and longer pauses until
//! they stop. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::k8s::backoff::Backoff;

/// What is undone so soon after it was put right is undone by somebody.
const WINDOW: Duration = Duration::from_secs(180);
/// So often it is put right at once all the same.
const AT_ONCE: u32 = 5;

/// The fight, where there is one.
#[derive(Default)]
pub struct RevertBackoff {
    last: Option<Instant>,
    rounds: u32,
}

impl RevertBackoff {
    /// Something had to be put right although nobody had asked for anything else.
    pub fn put_right(&mut self, now: Instant) {
        self.rounds = if self.is_on(now) { self.rounds.saturating_add(1) } else { 0 };
        self.last = Some(now);
    }

    /// How long to let them be.
    pub fn pause(&self, now: Instant) -> Duration {
        match self.rounds.checked_sub(AT_ONCE) {
            Some(rounds) if rounds > 0 && self.is_on(now) => Backoff::OBJECT.ceiling(rounds),
            _ => Duration::ZERO,
        }
    }

    fn is_on(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_pauses_of_a_fight_grow_and_end_with_it() {
        let (mut contest, start) = (RevertBackoff::default(), Instant::now());
        let mut now = start;
        for round in 0..20 {
            now = start + SECOND * round;
            contest.put_right(now);
            let few = round <= AT_ONCE;
            assert_eq!(contest.pause(now) == Duration::ZERO, few, "round {round}");
        }
        assert!(contest.pause(now) > Duration::from_secs(60), "somebody undid it twenty times");
        assert_eq!(contest.pause(now + WINDOW), Duration::ZERO);
    }
}
