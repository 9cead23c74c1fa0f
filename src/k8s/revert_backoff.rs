//! Notices that somebody else keeps undoing what we write, and backs off. Pure: time is an argument.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    inject::decide::refusals::Refusals,
    k8s::backoff::Backoff,
    runtime::failpoints::{self, Bug},
};

/// So many times within `WINDOW` the same write was undone: that is no accident.
const REVERTS: usize = 5;
const WINDOW: Duration = Duration::from_secs(600);
const WAITS: Backoff =
    Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(300) };

/// The writes to one place in one Route that had to be repeated. Nearly every Route has one after a
/// burst, and nearly all were written once, so that takes little room.
#[derive(Debug, Default)]
pub struct RevertBackoff {
    /// A digest of what is to stand there; none where nothing is.
    write: Option<u64>,
    last: Option<Instant>,
    repeats: Option<Box<Repeats>>,
}

#[derive(Debug, Default)]
struct Repeats {
    /// The times before the last, the oldest first.
    earlier: Vec<Instant>,
    waits: u32,
    announced: bool,
}

/// Whether a write may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Go,
    /// Not before then.
    Wait(Instant, Announcement),
}

/// Whether people know of the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// They are to be told now.
    Due,
    /// They were told.
    Made,
}

impl RevertBackoff {
    /// Asks whether this may be written now.
    pub fn decide(&mut self, write: Option<u64>, now: Instant) -> Decision {
        if self.write != write || self.is_over(now) {
            *self = Self { write, ..Self::default() };
        }
        let Some(repeats) = &mut self.repeats else { return Decision::Go };
        repeats.earlier.retain(|&time| now.duration_since(time) <= WINDOW);
        // The waits thin the writes out; only silence ends a backoff that has begun.
        let few = repeats.waits == 0 && repeats.earlier.len() < REVERTS;
        if few || failpoints::has(Bug::FightsForEver) {
            return Decision::Go;
        }
        let next = self.last.unwrap_or(now) + WAITS.ceiling(repeats.waits + 1);
        if next <= now {
            return Decision::Go;
        }
        let announcement = if repeats.announced { Announcement::Made } else { Announcement::Due };
        repeats.announced = true;
        Decision::Wait(next, announcement)
    }

    /// People could not be told after all.
    pub fn not_announced(&mut self) {
        if let Some(repeats) = &mut self.repeats {
            repeats.announced = false;
        }
    }

    /// Whether the last write is so long ago that it can be forgotten.
    pub fn is_over(&self, now: Instant) -> bool {
        self.last.is_none_or(|time| now.duration_since(time) > WINDOW)
    }

    /// It was written.
    pub fn written(&mut self, now: Instant) {
        let Some(last) = self.last.replace(now) else { return };
        let repeats = self.repeats.get_or_insert_default();
        if repeats.waits > 0 || repeats.earlier.len() >= REVERTS {
            repeats.waits = repeats.waits.saturating_add(1);
        }
        repeats.earlier.push(last);
        // Only the newest count; without this a backoff of days would grow without bound.
        if repeats.earlier.len() > REVERTS {
            repeats.earlier.remove(0);
        }
    }
}

/// What stands in the way of changing one Route: who undoes it, and who refuses it.
#[derive(Debug, Default)]
pub struct RevertBackoffs {
    /// Its pair is undone.
    pub pair: RevertBackoff,
    /// Its condition is undone.
    pub status: RevertBackoff,
    /// Its pair can't be changed; none where the last attempt succeeded.
    pub refusals: Option<Box<Refusals>>,
}

/// Stands for what is written where only sameness matters.
pub fn digest(written: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    written.hash(&mut hasher);
    hasher.finish()
}

impl RevertBackoffs {
    /// Whether nothing of this is worth keeping.
    pub fn are_over(&self, now: Instant) -> bool {
        self.pair.is_over(now) && self.status.is_over(now) && self.refusals.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PAIR: Option<u64> = Some(1);

    /// Reverts every write at once; answers when the writes happened, in seconds.
    fn fight(seconds: u64) -> (Vec<u64>, usize) {
        let start = Instant::now();
        let mut backoff = RevertBackoff { write: PAIR, ..RevertBackoff::default() };
        let (mut writes, mut announcements) = (Vec::new(), 0);
        for second in 0..seconds {
            let now = start + SECOND * u32::try_from(second).unwrap();
            match backoff.decide(PAIR, now) {
                Decision::Go => {
                    backoff.written(now);
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

    #[test]
    fn another_write_starts_anew() {
        let now = Instant::now();
        let mut backoff = RevertBackoff { write: PAIR, ..RevertBackoff::default() };
        for _ in 0..6 {
            backoff.written(now);
        }
        assert!(matches!(backoff.decide(PAIR, now), Decision::Wait(..)));
        assert_eq!(backoff.decide(Some(2), now), Decision::Go);
    }

    #[test]
    fn ten_quiet_minutes_end_a_contest() {
        let now = Instant::now();
        let mut backoff = RevertBackoff { write: PAIR, ..RevertBackoff::default() };
        for _ in 0..6 {
            backoff.written(now);
        }
        assert!(matches!(backoff.decide(PAIR, now), Decision::Wait(..)));
        assert_eq!(backoff.decide(PAIR, now + WINDOW + SECOND), Decision::Go);
    }

    #[test]
    fn a_single_write_takes_no_room_of_its_own_and_a_fight_of_days_little() {
        let (mut backoff, now) =
            (RevertBackoff { write: PAIR, ..RevertBackoff::default() }, Instant::now());
        backoff.written(now);
        assert!(backoff.repeats.is_none());
        for day in 1..1_000 {
            backoff.written(now + SECOND * 300 * day);
        }
        assert!(backoff.repeats.unwrap().earlier.len() <= REVERTS);
    }
}
