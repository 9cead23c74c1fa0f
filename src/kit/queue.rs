//! Keys that wait for their turn: each at most once, each worked on by one worker at a time.
//!
//! `Schedule` is plain synchronous code; `Queue` lets workers wait for it.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::kit::seeded::{self, Bug};

/// What waits, and what is being worked on.
#[derive(Debug)]
pub struct Schedule<K> {
    due: BTreeSet<(Instant, u64)>,
    waiting: HashMap<K, (Instant, u64)>,
    keys: HashMap<u64, K>,
    working: HashMap<K, Option<Instant>>,
    counter: u64,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self {
            due: BTreeSet::new(),
            waiting: HashMap::new(),
            keys: HashMap::new(),
            working: HashMap::new(),
            counter: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> Schedule<K> {
    /// Asks for a turn at that time, or at an earlier one that was asked for already.
    pub fn add(&mut self, key: K, at: Instant) {
        if let Some(again) = self.working.get_mut(&key) {
            if seeded::has(Bug::LosesChangesAtWork) {
                return;
            }
            // It may have looked before what we were told of happened: it gets another turn.
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        match self.waiting.get(&key).copied() {
            Some((earlier, _)) if earlier <= at => return,
            Some(later) => {
                self.due.remove(&later);
                self.keys.remove(&later.1);
            }
            None => {}
        }
        self.counter += 1;
        let slot = (at, self.counter);
        self.due.insert(slot);
        self.keys.insert(slot.1, key.clone());
        self.waiting.insert(key, slot);
    }

    /// The key that is due the longest, if one is.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        let &slot = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&slot);
        let key = self.keys.remove(&slot.1)?;
        self.waiting.remove(&key);
        self.working.insert(key.clone(), None);
        Some(key)
    }

    /// The worker is through with the key; what was asked for meanwhile is queued.
    pub fn done(&mut self, key: &K) {
        if let Some(Some(again)) = self.working.remove(key) {
            self.add(key.clone(), again);
        }
    }

    /// Drops what waits for this key; a worker that has it finishes.
    pub fn forget(&mut self, key: &K) {
        if let Some(slot) = self.waiting.remove(key) {
            self.due.remove(&slot);
            self.keys.remove(&slot.1);
        }
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many keys are due or being worked on.
    pub fn depth(&self, now: Instant) -> usize {
        self.working.len() + self.due.range(..=(now, u64::MAX)).count()
    }
}

/// A `Schedule` that workers can wait for.
#[derive(Debug)]
pub struct Queue<K> {
    schedule: Mutex<Schedule<K>>,
    changed: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { schedule: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn schedule(&self) -> MutexGuard<'_, Schedule<K>> {
        // No caller's code runs under the lock, so a poisoned schedule is still a whole one.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a turn as soon as possible.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Asks for a turn at that time.
    pub fn add_at(&self, key: K, at: Instant) {
        self.schedule().add(key, at);
        self.changed.notify_one();
    }

    /// Waits for the next key and hands it out to this caller alone.
    pub async fn next(&self) -> K {
        loop {
            let next_due = {
                let mut schedule = self.schedule();
                if let Some(key) = schedule.pop(Instant::now()) {
                    if schedule.next_due().is_some() {
                        // One notice may stand for many keys: pass it on to the next worker.
                        self.changed.notify_one();
                    }
                    return key;
                }
                schedule.next_due()
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep_until(next_due) => {}
            }
        }
    }

    /// The worker is through with the key.
    pub fn done(&self, key: &K) {
        self.schedule().done(key);
        self.changed.notify_one();
    }

    /// Drops what waits for this key.
    pub fn forget(&self, key: &K) {
        self.schedule().forget(key);
    }

    /// How many keys are due or being worked on.
    pub fn depth(&self) -> usize {
        self.schedule().depth(Instant::now())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_key_that_is_added_often_gets_one_turn_at_the_earliest_time() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("shop", now + 3 * SECOND);
        schedule.add("shop", now);
        schedule.add("shop", now + SECOND);
        assert_eq!(schedule.pop(now), Some("shop"));
        schedule.done(&"shop");
        assert_eq!(schedule.pop(now + 9 * SECOND), None);
        assert!(schedule.keys.is_empty() && schedule.waiting.is_empty() && schedule.due.is_empty());
    }

    #[test]
    fn a_key_is_never_with_two_workers_and_comes_again_when_it_changed_meanwhile() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("shop", now);
        assert_eq!(schedule.pop(now), Some("shop"));
        schedule.add("shop", now);
        assert_eq!(schedule.pop(now), None, "its worker is not through");
        schedule.done(&"shop");
        assert_eq!(schedule.pop(now), Some("shop"));
    }

    #[test]
    fn who_waits_longest_comes_first() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for key in ["b", "a", "c"] {
            schedule.add(key, now);
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.pop(now)).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn a_forgotten_key_does_not_come() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("shop", now);
        schedule.forget(&"shop");
        assert_eq!(schedule.pop(now), None);
        assert_eq!(schedule.depth(now), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn eight_workers_share_a_thousand_keys_and_lose_none() {
        let queue = Arc::new(Queue::default());
        let done = Arc::new(Mutex::new(Vec::new()));
        for key in 0..1_000 {
            queue.add_at(key, Instant::now() + SECOND * (key % 7));
        }
        for _ in 0..8 {
            let (queue, done) = (queue.clone(), done.clone());
            tokio::spawn(async move {
                loop {
                    let key = queue.next().await;
                    tokio::time::sleep(SECOND / 100).await;
                    done.lock().unwrap().push(key);
                    queue.done(&key);
                }
            });
        }
        tokio::time::sleep(60 * SECOND).await;
        let mut done = done.lock().unwrap().clone();
        done.sort_unstable();
        assert_eq!(done, (0..1_000).collect::<Vec<_>>());
    }
}
