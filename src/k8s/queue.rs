//! Keys that wait for their turn: each at most once, each worked on by one worker at a time.
//!
//! What is urgent goes before what can wait, and within each of the two lanes the groups take
//! turns, so that a crowd of one group does not hold up the single key of another. What can wait
//! never has all workers: however long it takes, what is urgent finds one. Nor does one group have
//! all of them: a tenant whose objects take long to work on holds up nobody else.
//!
//! `Schedule` is plain synchronous code; `Queue` lets workers wait for it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::Debug,
    hash::Hash,
    sync::{Mutex, MutexGuard},
};

use tokio::{sync::Notify, time::Instant};

use crate::runtime::{
    failpoints::{self, Bug},
    lock::lock,
};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Before everything that can wait.
    High,
    /// While nothing urgent is due, or after much that was.
    Low,
}

/// What waits, and what is being worked on.
#[derive(Debug)]
pub struct Schedule<K: Key> {
    waiting: HashMap<K, Ticket>,
    /// Tickets that were not due when last looked at, by when and in which order they are.
    timers: BTreeMap<(Instant, u64), K>,
    urgent: FairQueue<K>,
    later: FairQueue<K>,
    working: HashMap<K, Work>,
    /// How many of those at work are in the lane that can wait, and how many may be.
    waiters: usize,
    most_waiters: usize,
    /// How many keys of each group are at work in each lane, and how many may be.
    at_work: HashMap<(K::Group, Priority), usize>,
    most_urgent_of_group: usize,
    most_waiters_of_group: usize,
    workers: usize,
    counter: u64,
    turns: u64,
}

/// A key that a worker has.
#[derive(Clone, Copy, Debug)]
struct Work {
    lane: Priority,
    /// The turn that was asked for meanwhile.
    again: Option<(Instant, Priority)>,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    at: Instant,
    lane: Priority,
    number: u64,
}

impl<K: Key> Default for Schedule<K> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            timers: BTreeMap::new(),
            urgent: FairQueue::default(),
            later: FairQueue::default(),
            working: HashMap::new(),
            waiters: 0,
            most_waiters: usize::MAX,
            at_work: HashMap::new(),
            most_urgent_of_group: usize::MAX,
            most_waiters_of_group: usize::MAX,
            workers: usize::MAX,
            counter: 0,
            turns: 0,
        }
    }
}

impl<K: Key> Schedule<K> {
    /// For so many workers, of which at most half do what can wait. One group has at most half of
    /// them for what is urgent and a quarter for what can wait, and the last quarter is for groups
    /// that have none yet: however many groups are slow, the next one finds a worker.
    pub fn for_workers(workers: usize) -> Self {
        let (half, quarter) = ((workers / 2).max(1), (workers / 4).max(1));
        Self {
            most_waiters: half,
            most_urgent_of_group: half,
            most_waiters_of_group: quarter,
            workers,
            ..Self::default()
        }
    }

    /// Asks for a turn at that time and in that lane, or earlier and before others where that was
    /// asked for already.
    pub fn add(&mut self, key: K, mut at: Instant, mut lane: Priority) {
        if let Some(Work { again, .. }) = self.working.get_mut(&key) {
            if failpoints::has(Bug::LosesChangesAtWork) {
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
    pub fn pop(&mut self, now: Instant) -> Option<(K, Priority)> {
        self.line_up(now);
        // What is urgent may never end, where much of it fails; the others get a turn all the same.
        self.turns = self.turns.wrapping_add(1);
        let lanes = if self.turns.is_multiple_of(PATIENCE) {
            [Priority::Low, Priority::High]
        } else {
            [Priority::High, Priority::Low]
        };
        let full = (self.waiters >= self.most_waiters).then_some(Priority::Low);
        let mut open = lanes.into_iter().filter(|lane| Some(*lane) != full);
        let Some((key, lane)) = open.find_map(|lane| Some((self.pop_from(lane)?, lane))) else {
            if self.urgent.is_empty() && self.later.is_empty() {
                self.let_go();
            }
            return None;
        };
        self.waiting.remove(&key)?;
        *self.at_work.entry((key.group(), lane)).or_default() += 1;
        self.waiters += usize::from(lane == Priority::Low);
        self.working.insert(key.clone(), Work { lane, again: None });
        Some((key, lane))
    }

    fn pop_from(&mut self, lane: Priority) -> Option<K> {
        let (rota, most) = match lane {
            Priority::High => (&mut self.urgent, self.most_urgent_of_group),
            Priority::Low => (&mut self.later, self.most_waiters_of_group),
        };
        let at_work = &self.at_work;
        let few_are_free = self.workers.saturating_sub(self.working.len()) <= self.workers / 4;
        let count = |group: &K::Group, lane| {
            at_work.get(&(group.clone(), lane)).copied().unwrap_or_default()
        };
        rota.pop(|group| {
            let in_lane = count(group, lane);
            let has_any = in_lane + count(group, Priority::High) + count(group, Priority::Low) > 0;
            in_lane < most && !(has_any && few_are_free)
        })
    }

    /// Gives back the room that a burst took, once nothing is due.
    fn let_go(&mut self) {
        const SPARE: usize = 64;
        if self.waiting.capacity() > SPARE.max(4 * self.waiting.len()) {
            self.waiting.shrink_to(SPARE);
        }
        (self.urgent, self.later) = (FairQueue::default(), FairQueue::default());
    }

    fn line_up(&mut self, now: Instant) {
        while let Some(timer) = self.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            let ((_, number), key) = timer.remove_entry();
            if let Some(lane) = self.waiting.get(&key).map(|ticket| ticket.lane) {
                self.rota(lane).push(number, key);
            }
        }
    }

    fn rota(&mut self, lane: Priority) -> &mut FairQueue<K> {
        match lane {
            Priority::High => &mut self.urgent,
            Priority::Low => &mut self.later,
        }
    }

    /// The worker is through with the key; what was asked for meanwhile is queued.
    pub fn done(&mut self, key: &K) {
        let Some(Work { lane, again }) = self.working.remove(key) else { return };
        self.waiters -= usize::from(lane == Priority::Low);
        let group = (key.group(), lane);
        if let Some(count) = self.at_work.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.at_work.remove(&group);
            }
        }
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
struct FairQueue<K: Key> {
    turns: VecDeque<K::Group>,
    lines: HashMap<K::Group, BTreeMap<u64, K>>,
}

impl<K: Key> Default for FairQueue<K> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<K: Key> FairQueue<K> {
    fn push(&mut self, number: u64, key: K) {
        let line = self.lines.entry(key.group()).or_insert_with(|| {
            self.turns.push_back(key.group());
            BTreeMap::new()
        });
        line.insert(number, key);
    }

    /// The next key of a group that may have another.
    fn pop(&mut self, may: impl Fn(&K::Group) -> bool) -> Option<K> {
        for _ in 0..self.turns.len() {
            let group = self.turns.pop_front()?;
            let Some(line) = self.lines.get_mut(&group) else { continue };
            if line.is_empty() {
                // Its turn came, and nobody waits there any more.
                self.lines.remove(&group);
                continue;
            }
            let key = if may(&group) { line.pop_first() } else { None };
            self.turns.push_back(group);
            if let Some((_, key)) = key {
                return Some(key);
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.lines.values().all(BTreeMap::is_empty)
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
    /// As `Schedule::for_workers`.
    pub fn for_workers(workers: usize) -> Self {
        Self { schedule: Mutex::new(Schedule::for_workers(workers)), changed: Notify::new() }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule<K>> {
        lock(&self.schedule)
    }

    /// Asks for a turn as soon as possible.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Asks for a turn at that time.
    pub fn add_at(&self, key: K, at: Instant) {
        self.put(key, at, Priority::High);
    }

    /// Asks for a turn once nothing urgent is due.
    pub fn add_later(&self, key: K) {
        self.put(key, Instant::now(), Priority::Low);
    }

    /// Asks for a turn at that time and in that lane.
    pub fn put(&self, key: K, at: Instant, lane: Priority) {
        self.schedule().add(key, at, lane);
        self.changed.notify_one();
    }

    /// Waits for the next key and hands it out to this caller alone, with its lane.
    pub async fn next(&self) -> (K, Priority) {
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
mod tests;
