//! Keys that wait for their turn: each at most once, each worked on by one worker at a time.
//!
//! What is urgent goes before what can wait, and within each of the two lanes the groups take
//! turns, so that a crowd of one group does not hold up the single key of another. What can wait
//! never has all workers: however long it takes, what is urgent finds one.
//!
//! `Schedule` is plain synchronous code; `Queue` lets workers wait for it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::Debug,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::kit::seeded::{self, Bug};

/// What can wait for a turn.
pub trait Key: Clone + Debug + Eq + Hash {
    /// Groups take turns.
    type Group: Clone + Debug + Eq + Hash;

    /// The group that it belongs to.
    fn group(&self) -> Self::Group;
}

/// One turn in so many goes to what can wait, whatever is urgent.
const PATIENCE: u64 = 32;

/// Who goes before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Before everything that can wait.
    Urgent,
    /// While nothing urgent is due, or after much that was.
    Later,
}

/// What waits, and what is being worked on.
#[derive(Debug)]
pub struct Schedule<K: Key> {
    waiting: HashMap<K, Ticket>,
    /// Tickets that were not due when last looked at, by when and in which order they are.
    timers: BTreeMap<(Instant, u64), K>,
    urgent: Rota<K>,
    later: Rota<K>,
    working: HashMap<K, Work>,
    /// How many of those at work are in the lane that can wait, and how many may be.
    waiters: usize,
    most_waiters: usize,
    counter: u64,
    turns: u64,
}

/// A key that a worker has.
#[derive(Clone, Copy, Debug)]
struct Work {
    lane: Lane,
    /// The turn that was asked for meanwhile.
    again: Option<(Instant, Lane)>,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    at: Instant,
    lane: Lane,
    number: u64,
}

impl<K: Key> Default for Schedule<K> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            timers: BTreeMap::new(),
            urgent: Rota::default(),
            later: Rota::default(),
            working: HashMap::new(),
            waiters: 0,
            most_waiters: usize::MAX,
            counter: 0,
            turns: 0,
        }
    }
}

impl<K: Key> Schedule<K> {
    /// For so many workers, of which at most half do what can wait.
    pub fn for_workers(workers: usize) -> Self {
        Self { most_waiters: (workers / 2).max(1), ..Self::default() }
    }

    /// Asks for a turn at that time and in that lane, or earlier and before others where that was
    /// asked for already.
    pub fn add(&mut self, key: K, mut at: Instant, mut lane: Lane) {
        if let Some(Work { again, .. }) = self.working.get_mut(&key) {
            if seeded::has(Bug::LosesChangesAtWork) {
                return;
            }
            // It may have looked before what we were told of happened: it gets another turn.
            *again = Some(again.map_or((at, lane), |(a, l)| (a.min(at), l.min(lane))));
            return;
        }
        if let Some(ticket) = self.waiting.get(&key) {
            (at, lane) = (ticket.at.min(at), ticket.lane.min(lane));
            if (at, lane) == (ticket.at, ticket.lane) {
                return;
            }
            self.forget(&key);
        }
        self.counter += 1;
        let number = self.counter;
        self.timers.insert((at, number), key.clone());
        self.waiting.insert(key, Ticket { at, lane, number });
    }

    /// The key whose turn it is, if one is due, and how urgent it was.
    pub fn pop(&mut self, now: Instant) -> Option<(K, Lane)> {
        self.line_up(now);
        // What is urgent may never end, where much of it fails; the others get a turn all the same.
        self.turns = self.turns.wrapping_add(1);
        let lanes = if self.turns.is_multiple_of(PATIENCE) {
            [Lane::Later, Lane::Urgent]
        } else {
            [Lane::Urgent, Lane::Later]
        };
        let full = (self.waiters >= self.most_waiters).then_some(Lane::Later);
        let mut open = lanes.into_iter().filter(|lane| Some(*lane) != full);
        let Some((key, lane)) = open.find_map(|lane| Some((self.rota(lane).pop()?, lane))) else {
            if full.is_none() {
                self.let_go();
            }
            return None;
        };
        self.waiting.remove(&key)?;
        self.waiters += usize::from(lane == Lane::Later);
        self.working.insert(key.clone(), Work { lane, again: None });
        Some((key, lane))
    }

    /// Gives back the room that a burst took, once nothing is due.
    fn let_go(&mut self) {
        const SPARE: usize = 64;
        if self.waiting.capacity() > SPARE.max(4 * self.waiting.len()) {
            self.waiting.shrink_to(SPARE);
        }
        (self.urgent, self.later) = (Rota::default(), Rota::default());
    }

    fn line_up(&mut self, now: Instant) {
        while let Some(timer) = self.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            let ((_, number), key) = timer.remove_entry();
            if let Some(lane) = self.waiting.get(&key).map(|ticket| ticket.lane) {
                self.rota(lane).push(number, key);
            }
        }
    }

    fn rota(&mut self, lane: Lane) -> &mut Rota<K> {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Later => &mut self.later,
        }
    }

    /// The worker is through with the key; what was asked for meanwhile is queued.
    pub fn done(&mut self, key: &K) {
        let Some(Work { lane, again }) = self.working.remove(key) else { return };
        self.waiters -= usize::from(lane == Lane::Later);
        if let Some((at, lane)) = again {
            self.add(key.clone(), at, lane);
        }
    }

    /// Drops what waits for this key; a worker that has it finishes.
    pub fn forget(&mut self, key: &K) {
        if let Some(ticket) = self.waiting.remove(key)
            && self.timers.remove(&(ticket.at, ticket.number)).is_none()
        {
            self.rota(ticket.lane).remove(ticket.number, key);
        }
    }

    /// When the next key is due that is not due already.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether nothing waits, due or not.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many keys are due or being worked on.
    pub fn depth(&self, now: Instant) -> usize {
        self.working.len() + self.waiting.values().filter(|ticket| ticket.at <= now).count()
    }
}

/// Lines of keys that are due, one for each group; the groups take turns.
#[derive(Debug)]
struct Rota<K: Key> {
    turns: VecDeque<K::Group>,
    lines: HashMap<K::Group, BTreeMap<u64, K>>,
}

impl<K: Key> Default for Rota<K> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<K: Key> Rota<K> {
    fn push(&mut self, number: u64, key: K) {
        let line = self.lines.entry(key.group()).or_insert_with(|| {
            self.turns.push_back(key.group());
            BTreeMap::new()
        });
        line.insert(number, key);
    }

    fn pop(&mut self) -> Option<K> {
        loop {
            let group = self.turns.pop_front()?;
            let Some(line) = self.lines.get_mut(&group) else { continue };
            match line.pop_first() {
                Some((_, key)) => {
                    self.turns.push_back(group);
                    return Some(key);
                }
                // Its turn came, and nobody waits there any more.
                None => self.lines.remove(&group),
            };
        }
    }

    fn remove(&mut self, number: u64, key: &K) {
        if let Some(line) = self.lines.get_mut(&key.group()) {
            line.remove(&number);
        }
    }
}

/// A `Schedule` that workers can wait for.
#[derive(Debug)]
pub struct Queue<K: Key> {
    schedule: Mutex<Schedule<K>>,
    changed: Notify,
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Self { schedule: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Key> Queue<K> {
    /// For so many workers, of which at most half do what can wait.
    pub fn for_workers(workers: usize) -> Self {
        Self { schedule: Mutex::new(Schedule::for_workers(workers)), changed: Notify::new() }
    }

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
        self.put(key, at, Lane::Urgent);
    }

    /// Asks for a turn once nothing urgent is due.
    pub fn add_later(&self, key: K) {
        self.put(key, Instant::now(), Lane::Later);
    }

    /// Asks for a turn at that time and in that lane.
    pub fn put(&self, key: K, at: Instant, lane: Lane) {
        self.schedule().add(key, at, lane);
        self.changed.notify_one();
    }

    /// Waits for the next key and hands it out to this caller alone, with its lane.
    pub async fn next(&self) -> (K, Lane) {
        loop {
            let next_due = {
                let mut schedule = self.schedule();
                if let Some(next) = schedule.pop(Instant::now()) {
                    if !schedule.is_empty() {
                        // One notice may stand for many keys: pass it on to the next worker.
                        self.changed.notify_one();
                    }
                    return next;
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
    use Lane::{Later, Urgent};

    /// Keys "shop/blog" are of group "shop".
    impl Key for &'static str {
        type Group = &'static str;

        fn group(&self) -> &'static str {
            self.split('/').next().unwrap_or_default()
        }
    }

    impl Key for u32 {
        type Group = ();

        fn group(&self) {}
    }

    fn all_due(schedule: &mut Schedule<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| schedule.pop(now)).map(|(key, _)| key).collect()
    }

    #[test]
    fn a_key_that_is_added_often_gets_one_turn_at_the_earliest_time() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("shop", now + 3 * SECOND, Urgent);
        schedule.add("shop", now, Urgent);
        schedule.add("shop", now + SECOND, Urgent);
        assert_eq!(schedule.pop(now), Some(("shop", Urgent)));
        schedule.done(&"shop");
        assert_eq!(schedule.pop(now + 9 * SECOND), None);
        assert!(schedule.is_empty() && schedule.timers.is_empty());
    }

    #[test]
    fn a_key_is_never_with_two_workers_and_comes_again_when_it_changed_meanwhile() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("shop", now, Urgent);
        assert_eq!(schedule.pop(now), Some(("shop", Urgent)));
        schedule.add("shop", now, Urgent);
        assert_eq!(schedule.pop(now), None, "its worker is not through");
        schedule.done(&"shop");
        assert_eq!(schedule.pop(now), Some(("shop", Urgent)));
    }

    #[test]
    fn who_waits_longest_comes_first() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for key in ["web/b", "web/a", "web/c"] {
            schedule.add(key, now, Urgent);
        }
        assert_eq!(all_due(&mut schedule, now), ["web/b", "web/a", "web/c"]);
    }

    #[test]
    fn a_crowd_does_not_hold_up_a_lone_key_of_another_group() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for key in ["crowd/1", "crowd/2", "crowd/3", "lone/1"] {
            schedule.add(key, now, Urgent);
        }
        assert_eq!(schedule.pop(now), Some(("crowd/1", Urgent)));
        schedule.add("late/1", now, Urgent);
        assert_eq!(all_due(&mut schedule, now), ["lone/1", "crowd/2", "late/1", "crowd/3"]);
    }

    #[test]
    fn what_can_wait_waits_for_everything_urgent_that_is_due() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add("a/1", now, Later);
        schedule.add("a/2", now, Urgent);
        schedule.add("b/1", now, Urgent);
        schedule.add("b/2", now + SECOND, Urgent);
        assert_eq!(all_due(&mut schedule, now), ["a/2", "b/1", "a/1"]);
        assert_eq!(schedule.pop(now + SECOND), Some(("b/2", Urgent)));
    }

    #[test]
    fn what_waited_and_turns_urgent_comes_at_once_and_only_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for key in ["a/1", "a/2"] {
            schedule.add(key, now, Later);
        }
        assert_eq!(schedule.pop(now), Some(("a/1", Later)));
        schedule.add("a/3", now, Urgent);
        schedule.add("a/2", now, Urgent);
        schedule.add("a/2", now, Later);
        assert_eq!(schedule.depth(now), 3);
        assert_eq!(all_due(&mut schedule, now), ["a/3", "a/2"]);
    }

    #[test]
    fn a_forgotten_key_does_not_come() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for key in ["shop", "shop/2", "shop/3"] {
            schedule.add(key, now, Urgent);
        }
        schedule.forget(&"shop");
        assert_eq!(schedule.pop(now), Some(("shop/2", Urgent)));
        schedule.done(&"shop/2");
        schedule.forget(&"shop/3");
        assert_eq!(schedule.pop(now), None);
        assert_eq!(schedule.depth(now), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn eight_workers_share_a_thousand_keys_and_lose_none() {
        let queue = Arc::new(Queue::default());
        let done = Arc::new(Mutex::new(Vec::new()));
        for key in 0..1_000_u32 {
            queue.add_at(key, Instant::now() + SECOND * (key % 7));
        }
        for _ in 0..8 {
            let (queue, done) = (queue.clone(), done.clone());
            tokio::spawn(async move {
                loop {
                    let (key, _) = queue.next().await;
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

    /// Two hundred keys whose every turn takes ten seconds and fails, as behind an admission
    /// webhook that does not answer; sixteen workers; a back-off of at most two minutes.
    #[tokio::test(start_paused = true)]
    async fn what_can_wait_does_not_wait_for_ever_while_others_fail_again_and_again() {
        let queue = Arc::new(Queue::<u32>::default());
        let spoke = Arc::new(Mutex::new(None));
        for key in 1..=200 {
            queue.add(key);
        }
        queue.add_later(0);
        let start = Instant::now();
        for _ in 0..16 {
            let (queue, spoke) = (queue.clone(), spoke.clone());
            tokio::spawn(async move {
                loop {
                    let (key, _) = queue.next().await;
                    if key == 0 {
                        spoke.lock().unwrap().get_or_insert(start.elapsed());
                    } else {
                        tokio::time::sleep(10 * SECOND).await;
                        queue.add_at(key, Instant::now() + 120 * SECOND * 3 / 4);
                    }
                    queue.done(&key);
                }
            });
        }
        tokio::time::sleep(24 * 3600 * SECOND).await;
        let spoke = *spoke.lock().unwrap();
        assert!(spoke.is_some(), "nobody's words were said in a whole day");
    }

    #[test]
    fn what_can_wait_has_half_of_the_workers_at_most_and_one_at_least() {
        for (workers, most) in [(1, 1), (2, 1), (5, 2), (16, 8)] {
            let now = Instant::now();
            let mut schedule = Schedule::<u32>::for_workers(workers);
            for key in 1..=20 {
                schedule.add(key, now, Later);
            }
            let at_work: Vec<_> = std::iter::from_fn(|| schedule.pop(now)).collect();
            assert_eq!(at_work.len(), most, "of {workers}");
            schedule.add(0, now, Urgent);
            assert_eq!(schedule.pop(now), Some((0, Urgent)), "a worker is left for it");
            schedule.done(&1);
            assert_eq!(schedule.pop(now).map(|(_, lane)| lane), Some(Later), "and for the next");
            assert_eq!(schedule.pop(now), None);
        }
    }

    /// As behind an Events API that does not answer: everything that can wait takes ten seconds.
    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_finds_a_worker_while_all_that_can_wait_hangs() {
        let queue = Arc::new(Queue::<u32>::for_workers(4));
        for key in 1..=100 {
            queue.add_later(key);
        }
        let done = Arc::new(Mutex::new(None));
        for _ in 0..4 {
            let (queue, done) = (queue.clone(), done.clone());
            tokio::spawn(async move {
                loop {
                    let (key, lane) = queue.next().await;
                    match lane {
                        Urgent => *done.lock().unwrap() = Some(Instant::now()),
                        Later => tokio::time::sleep(10 * SECOND).await,
                    }
                    queue.done(&key);
                }
            });
        }
        tokio::time::sleep(SECOND).await;
        let asked = Instant::now();
        queue.add(0);
        tokio::time::sleep(600 * SECOND).await;
        let done = done.lock().unwrap().expect("it has had its turn");
        assert_eq!(done - asked, Duration::ZERO);
        assert_eq!(queue.depth(), 0, "and all that could wait as well");
    }

    #[test]
    fn keys_that_are_forgotten_do_not_pile_up_while_something_urgent_is_always_due() {
        let now = Instant::now();
        let mut schedule = Schedule::<u32>::default();
        for key in 1..=10_000 {
            schedule.add(0, now, Urgent);
            schedule.add(key, now, Later);
            let (next, _) = schedule.pop(now).unwrap();
            schedule.done(&next);
            schedule.forget(&key);
        }
        schedule.forget(&0);
        assert!(schedule.is_empty());
        let kept: usize = schedule.later.lines.values().map(BTreeMap::len).sum();
        assert!(kept <= 100, "{kept} keys are kept of which none waits");
    }
}
