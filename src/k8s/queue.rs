//! A work queue: each key waits at most once, and one worker at a time has it.
//!
//! High priority goes before low, and within a priority the groups take turns, so that a thousand
//! keys of one group do not delay the single key of another. Low priority never has all workers, so
//! that high priority always finds one. Nor does one group have all of them: a tenant whose objects
//! are slow delays nobody else.
//!
//! `Schedule` is plain synchronous code; `Queue` lets workers wait for it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::Debug,
    hash::Hash,
    sync::Mutex,
};

use tokio::{sync::Notify, time::Instant};

use crate::runtime::{
    failpoints::{self, Bug},
    lock::lock,
};

pub trait Key: Clone + Debug + Eq + Hash {
    /// Groups take turns.
    type Group: Clone + Debug + Eq + Hash;

    fn group(&self) -> Self::Group;
}

/// Every so many pops, low priority goes first.
const LOW_FIRST_EVERY: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    High,
    Low,
}

/// The keys that wait, and those that workers have.
#[derive(Debug)]
pub struct Schedule<K: Key> {
    waiting: HashMap<K, Entry>,
    /// Keys that were not due at the last `pop`, by due time and number.
    timers: BTreeMap<(Instant, u64), K>,
    /// Keys that are due.
    high: FairQueue<K>,
    low: FairQueue<K>,
    working: HashMap<K, Work>,
    /// How many keys of each group workers have.
    group_working: HashMap<(K::Group, Priority), usize>,
    low_working: usize,
    max_low: usize,
    max_high_per_group: usize,
    max_low_per_group: usize,
    workers: usize,
    last_number: u64,
    pops: u64,
}

/// A key that a worker has.
#[derive(Clone, Copy, Debug)]
struct Work {
    priority: Priority,
    /// Set if the key was added meanwhile.
    requeue: Option<(Instant, Priority)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    priority: Priority,
    /// Keeps keys of the same group and priority in the order in which they were added.
    number: u64,
}

impl<K: Key> Default for Schedule<K> {
    fn default() -> Self {
        Self::for_workers(usize::MAX)
    }
}

impl<K: Key> Schedule<K> {
    /// Low priority gets at most half of the workers. One group gets at most half of them for high
    /// priority and a quarter for low, and the last free quarter is for groups that have none yet:
    /// however many groups are slow, the next one finds a worker.
    pub fn for_workers(workers: usize) -> Self {
        let (half, quarter) = ((workers / 2).max(1), (workers / 4).max(1));
        Self {
            waiting: HashMap::new(),
            timers: BTreeMap::new(),
            high: FairQueue::default(),
            low: FairQueue::default(),
            working: HashMap::new(),
            group_working: HashMap::new(),
            low_working: 0,
            max_low: half,
            max_high_per_group: half,
            max_low_per_group: quarter,
            workers,
            last_number: 0,
            pops: 0,
        }
    }

    /// Adds a key. If it waits already, the earlier time and the higher priority count.
    pub fn add(&mut self, key: K, mut at: Instant, mut priority: Priority) {
        if let Some(Work { requeue, .. }) = self.working.get_mut(&key) {
            if failpoints::has(Bug::LosesChangesAtWork) {
                return;
            }
            // The worker may have read the object before this change, so the key comes again.
            *requeue = Some(requeue.map_or((at, priority), |(a, p)| (a.min(at), p.min(priority))));
            return;
        }
        if let Some(entry) = self.waiting.get(&key) {
            (at, priority) = (entry.at.min(at), entry.priority.min(priority));
            if (at, priority) == (entry.at, entry.priority) {
                return;
            }
            self.forget(&key);
        }
        self.last_number += 1;
        let number = self.last_number;
        self.timers.insert((at, number), key.clone());
        self.waiting.insert(key, Entry { at, priority, number });
    }

    /// The next key that is due.
    pub fn pop(&mut self, now: Instant) -> Option<(K, Priority)> {
        self.queue_due(now);
        // High priority may never end, if much of it fails; low priority goes on all the same.
        self.pops = self.pops.wrapping_add(1);
        let order = if self.pops.is_multiple_of(LOW_FIRST_EVERY) {
            [Priority::Low, Priority::High]
        } else {
            [Priority::High, Priority::Low]
        };
        let full = (self.low_working >= self.max_low).then_some(Priority::Low);
        let mut open = order.into_iter().filter(|priority| Some(*priority) != full);
        let next = open.find_map(|priority| Some((self.pop_from(priority)?, priority)));
        let Some((key, priority)) = next else {
            if self.high.is_empty() && self.low.is_empty() {
                self.shrink();
            }
            return None;
        };
        self.waiting.remove(&key)?;
        *self.group_working.entry((key.group(), priority)).or_default() += 1;
        self.low_working += usize::from(priority == Priority::Low);
        self.working.insert(key.clone(), Work { priority, requeue: None });
        Some((key, priority))
    }

    fn pop_from(&mut self, priority: Priority) -> Option<K> {
        let (queue, max) = match priority {
            Priority::High => (&mut self.high, self.max_high_per_group),
            Priority::Low => (&mut self.low, self.max_low_per_group),
        };
        let group_working = &self.group_working;
        let few_are_free = self.workers.saturating_sub(self.working.len()) <= self.workers / 4;
        let count = |group: &K::Group, priority| {
            group_working.get(&(group.clone(), priority)).copied().unwrap_or_default()
        };
        queue.pop(|group| {
            let has_any = count(group, Priority::High) + count(group, Priority::Low) > 0;
            count(group, priority) < max && !(has_any && few_are_free)
        })
    }

    /// Frees the memory that a burst took, once nothing is due.
    fn shrink(&mut self) {
        const SPARE: usize = 64;
        if self.waiting.capacity() > SPARE.max(4 * self.waiting.len()) {
            self.waiting.shrink_to(SPARE);
        }
        (self.high, self.low) = (FairQueue::default(), FairQueue::default());
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some(timer) = self.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            let ((_, number), key) = timer.remove_entry();
            if let Some(priority) = self.waiting.get(&key).map(|entry| entry.priority) {
                self.queue(priority).push(number, key);
            }
        }
    }

    fn queue(&mut self, priority: Priority) -> &mut FairQueue<K> {
        match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        }
    }

    /// The worker has finished the key; if it was added meanwhile, it waits again.
    pub fn done(&mut self, key: &K) {
        let Some(Work { priority, requeue }) = self.working.remove(key) else { return };
        self.low_working -= usize::from(priority == Priority::Low);
        let group = (key.group(), priority);
        if let Some(count) = self.group_working.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.group_working.remove(&group);
            }
        }
        if let Some((at, priority)) = requeue {
            self.add(key.clone(), at, priority);
        }
    }

    /// Removes a key that waits; a worker that has it finishes.
    pub fn forget(&mut self, key: &K) {
        if let Some(entry) = self.waiting.remove(key)
            && self.timers.remove(&(entry.at, entry.number)).is_none()
        {
            self.queue(entry.priority).remove(entry.number, key);
        }
    }

    /// When the next of the keys is due that were not due at the last `pop`.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether no key waits, due or not.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many keys are due or being worked on.
    pub fn depth(&self, now: Instant) -> usize {
        self.working.len() + self.waiting.values().filter(|entry| entry.at <= now).count()
    }
}

/// Keys that are due, in a queue for each group; the groups take turns.
#[derive(Debug)]
struct FairQueue<K: Key> {
    round_robin: VecDeque<K::Group>,
    keys: HashMap<K::Group, BTreeMap<u64, K>>,
}

impl<K: Key> Default for FairQueue<K> {
    fn default() -> Self {
        Self { round_robin: VecDeque::new(), keys: HashMap::new() }
    }
}

impl<K: Key> FairQueue<K> {
    fn push(&mut self, number: u64, key: K) {
        let keys = self.keys.entry(key.group()).or_insert_with(|| {
            self.round_robin.push_back(key.group());
            BTreeMap::new()
        });
        keys.insert(number, key);
    }

    /// The next key of a group that may have another worker.
    fn pop(&mut self, may: impl Fn(&K::Group) -> bool) -> Option<K> {
        for _ in 0..self.round_robin.len() {
            let group = self.round_robin.pop_front()?;
            let Some(keys) = self.keys.get_mut(&group) else { continue };
            if keys.is_empty() {
                self.keys.remove(&group);
                continue;
            }
            let key = if may(&group) { keys.pop_first() } else { None };
            self.round_robin.push_back(group);
            if let Some((_, key)) = key {
                return Some(key);
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.keys.values().all(BTreeMap::is_empty)
    }

    fn remove(&mut self, number: u64, key: &K) {
        if let Some(keys) = self.keys.get_mut(&key.group()) {
            keys.remove(&number);
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
    pub fn for_workers(workers: usize) -> Self {
        Self { schedule: Mutex::new(Schedule::for_workers(workers)), changed: Notify::new() }
    }

    /// Adds a key with high priority, due now.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Adds a key with high priority, due then.
    pub fn add_at(&self, key: K, at: Instant) {
        self.put(key, at, Priority::High);
    }

    /// Adds a key with low priority, due now.
    pub fn add_later(&self, key: K) {
        self.put(key, Instant::now(), Priority::Low);
    }

    pub fn put(&self, key: K, at: Instant, priority: Priority) {
        lock(&self.schedule).add(key, at, priority);
        self.changed.notify_one();
    }

    /// Waits for the next key, which this caller alone gets.
    pub async fn next(&self) -> (K, Priority) {
        loop {
            let next_due = {
                let mut schedule = lock(&self.schedule);
                if let Some(next) = schedule.pop(Instant::now()) {
                    if !schedule.is_empty() {
                        // One notification may stand for many keys: wake the next worker.
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

    pub fn done(&self, key: &K) {
        lock(&self.schedule).done(key);
        self.changed.notify_one();
    }

    pub fn forget(&self, key: &K) {
        lock(&self.schedule).forget(key);
    }

    pub fn depth(&self) -> usize {
        lock(&self.schedule).depth(Instant::now())
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
