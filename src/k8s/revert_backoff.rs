//! Notices that somebody else keeps undoing what we write, and backs off. Pure: time is an argument.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    k8s::backoff::Backoff,
    runtime::failpoints::{self, Bug},
};

/// When a controller backs off, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Repetitions that are made at once.
    pub at_once: usize,
    /// Repetitions count for this long.
    pub window: Duration,
    /// Without a write for this long, the other side has given up.
    pub quiet: Duration,
    pub waits: Backoff,
}

/// Writes to one place that had to be repeated. After a burst nearly every object has one, and
/// nearly all were written once, so that case takes little room.
#[derive(Debug, Default)]
pub(crate) struct RevertBackoff {
    /// A digest of the written value; none for a removal.
    write: Option<u64>,
    last: Option<Instant>,
    repeats: Option<Box<Repeats>>,
}

#[derive(Debug, Default)]
struct Repeats {
    /// The times before the last, oldest first.
    earlier: Vec<Instant>,
    waits: u32,
    announced: bool,
}

/// Whether a write may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Go,
    /// Not before then.
    Wait(Instant, Announcement),
}

/// Whether an Event reported that somebody keeps undoing our write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    Due,
    Made,
}

impl RevertBackoff {
    /// Whether this may be written now. Another write than the last starts over.
    pub(crate) fn decide(&mut self, limits: &Limits, write: Option<u64>, now: Instant) -> Decision {
        if self.write != write || self.is_over(limits, now) {
            *self = Self { write, ..Self::default() };
        }
        let next = self.last.unwrap_or(now) + self.wait(limits, now);
        match &mut self.repeats {
            Some(repeats) if next > now => {
                let was_announced = std::mem::replace(&mut repeats.announced, true);
                let due = if was_announced { Announcement::Made } else { Announcement::Due };
                Decision::Wait(next, due)
            }
            _ => Decision::Go,
        }
    }

    /// How long to wait after the last write; zero while nobody reverts it.
    pub(crate) fn wait(&self, limits: &Limits, now: Instant) -> Duration {
        let Some(repeats) = &self.repeats else { return Duration::ZERO };
        let in_window = |time: &&Instant| now.duration_since(**time) <= limits.window;
        let counted = repeats.earlier.iter().filter(in_window).count();
        // The waits thin the writes out, so only quiet ends a fight that has begun.
        let few = repeats.waits == 0 && counted < limits.at_once;
        if few || self.is_over(limits, now) || failpoints::has(Bug::FightsForEver) {
            return Duration::ZERO;
        }
        limits.waits.ceiling(repeats.waits + 1)
    }

    /// The Event could not be published.
    pub(crate) fn not_announced(&mut self) {
        if let Some(repeats) = &mut self.repeats {
            repeats.announced = false;
        }
    }

    /// Whether the last write is so long ago that it can be forgotten.
    pub(crate) fn is_over(&self, limits: &Limits, now: Instant) -> bool {
        self.last.is_none_or(|time| now.duration_since(time) >= limits.quiet)
    }

    pub(crate) fn written(&mut self, limits: &Limits, now: Instant) {
        if self.is_over(limits, now) {
            (self.last, self.repeats) = (Some(now), None);
            return;
        }
        let Some(last) = self.last.replace(now) else { return };
        let repeats = self.repeats.get_or_insert_default();
        repeats.earlier.retain(|&time| now.duration_since(time) <= limits.window);
        if repeats.waits > 0 || repeats.earlier.len() >= limits.at_once {
            repeats.waits = repeats.waits.saturating_add(1);
        }
        repeats.earlier.push(last);
        // Only the newest count; without this a fight of days would grow without bound.
        if repeats.earlier.len() > limits.at_once {
            repeats.earlier.remove(0);
        }
    }
}

/// Stands for a written value where only equality matters.
pub(crate) fn digest(written: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    written.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PAIR: Option<u64> = Some(1);
    const LIMITS: Limits = Limits {
        at_once: 5,
        window: Duration::from_secs(600),
        quiet: Duration::from_secs(600),
        waits: Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(300) },
    };

    /// Reverts every write at once; answers when the writes happened, in seconds.
    fn fight(seconds: u64) -> (Vec<u64>, usize) {
        let start = Instant::now();
        let mut backoff = RevertBackoff { write: PAIR, ..RevertBackoff::default() };
        let (mut writes, mut announcements) = (Vec::new(), 0);
        for second in 0..seconds {
            let now = start + SECOND * u32::try_from(second).unwrap();
            match backoff.decide(&LIMITS, PAIR, now) {
                Decision::Go => {
                    backoff.written(&LIMITS, now);
                    writes.push(second);
                }
                Decision::Wait(_, Announcement::Due) => announcements += 1,
                Decision::Wait(_, Announcement::Made) => {}
            }
        }
        (writes, announcements)
    }

    #[test]
    fn the_first_write_and_five_repetitions_go_at_once_then_the_waits_grow_to_five_minutes() {
        let (writes, announcements) = fight(3_600);
        assert_eq!(writes[..6], [0, 1, 2, 3, 4, 5]);
        let waits: Vec<_> = writes[5..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits[..6], [10, 20, 40, 80, 160, 300], "{waits:?}");
        assert_eq!(announcements, 1, "people are told once");
    }

    /// One that has to wait after six writes at this time.
    fn waiting(now: Instant) -> RevertBackoff {
        let mut backoff = RevertBackoff { write: PAIR, ..RevertBackoff::default() };
        for _ in 0..6 {
            backoff.written(&LIMITS, now);
        }
        assert!(matches!(backoff.decide(&LIMITS, PAIR, now), Decision::Wait(..)));
        backoff
    }

    #[test]
    fn another_write_starts_anew() {
        let now = Instant::now();
        let mut backoff = waiting(now);
        assert_eq!(backoff.decide(&LIMITS, Some(2), now), Decision::Go);
    }

    #[test]
    fn ten_quiet_minutes_end_a_contest() {
        let now = Instant::now();
        let mut backoff = waiting(now);
        assert_eq!(backoff.decide(&LIMITS, PAIR, now + LIMITS.quiet + SECOND), Decision::Go);
    }

    #[test]
    fn a_single_write_takes_no_room_of_its_own_and_a_fight_of_days_little() {
        let (mut backoff, now) =
            (RevertBackoff { write: PAIR, ..RevertBackoff::default() }, Instant::now());
        backoff.written(&LIMITS, now);
        assert!(backoff.repeats.is_none());
        for day in 1..1_000 {
            backoff.written(&LIMITS, now + SECOND * 300 * day);
        }
        assert!(backoff.repeats.unwrap().earlier.len() <= LIMITS.at_once);
    }

    #[test]
    fn the_pauses_of_a_fight_grow_and_end_with_it() {
        let limits = Limits {
            at_once: 6,
            window: Duration::MAX,
            quiet: Duration::from_secs(180),
            waits: Backoff::OBJECT,
        };
        let (mut backoff, start) = (RevertBackoff::default(), Instant::now());
        let mut now = start;
        for round in 0..20 {
            now = start + SECOND * round;
            backoff.written(&limits, now);
            let few = round <= 5;
            assert_eq!(backoff.wait(&limits, now) == Duration::ZERO, few, "round {round}");
        }
        assert!(
            backoff.wait(&limits, now) > Duration::from_secs(60),
            "somebody undid it twenty times"
        );
        assert_eq!(backoff.wait(&limits, now + limits.quiet), Duration::ZERO);
    }
}
