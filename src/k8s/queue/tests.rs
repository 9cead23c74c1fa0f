//! Order of work.

use std::{sync::Arc, time::Duration};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
use Priority::{High, Low};

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

/// Each of a group of its own.
impl Key for u64 {
    type Group = u64;

    fn group(&self) -> u64 {
        *self
    }
}

impl Key for (&'static str, u32) {
    type Group = &'static str;

    fn group(&self) -> &'static str {
        self.0
    }
}

fn all_due(schedule: &mut Schedule<&'static str>, now: Instant) -> Vec<&'static str> {
    std::iter::from_fn(|| schedule.pop(now)).map(|(key, _)| key).collect()
}

#[test]
fn a_key_that_is_added_often_gets_one_turn_at_the_earliest_time() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    schedule.add("shop", now + 3 * SECOND, High);
    schedule.add("shop", now, High);
    schedule.add("shop", now + SECOND, High);
    assert_eq!(schedule.pop(now), Some(("shop", High)));
    schedule.done(&"shop");
    assert_eq!(schedule.pop(now + 9 * SECOND), None);
    assert!(schedule.is_empty() && schedule.timers.is_empty());
}

#[test]
fn a_key_is_never_with_two_workers_and_comes_again_when_it_changed_meanwhile() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    schedule.add("shop", now, High);
    assert_eq!(schedule.pop(now), Some(("shop", High)));
    schedule.add("shop", now, High);
    assert_eq!(schedule.pop(now), None, "its worker is not through");
    schedule.done(&"shop");
    assert_eq!(schedule.pop(now), Some(("shop", High)));
}

#[test]
fn who_waits_longest_comes_first() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    for key in ["web/b", "web/a", "web/c"] {
        schedule.add(key, now, High);
    }
    assert_eq!(all_due(&mut schedule, now), ["web/b", "web/a", "web/c"]);
}

#[test]
fn a_crowd_does_not_hold_up_a_lone_key_of_another_group() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    for key in ["crowd/1", "crowd/2", "crowd/3", "lone/1"] {
        schedule.add(key, now, High);
    }
    assert_eq!(schedule.pop(now), Some(("crowd/1", High)));
    schedule.add("late/1", now, High);
    assert_eq!(all_due(&mut schedule, now), ["lone/1", "crowd/2", "late/1", "crowd/3"]);
}

#[test]
fn what_can_wait_waits_for_everything_urgent_that_is_due() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    schedule.add("a/1", now, Low);
    schedule.add("a/2", now, High);
    schedule.add("b/1", now, High);
    schedule.add("b/2", now + SECOND, High);
    assert_eq!(all_due(&mut schedule, now), ["a/2", "b/1", "a/1"]);
    assert_eq!(schedule.pop(now + SECOND), Some(("b/2", High)));
}

#[test]
fn what_waited_and_turns_urgent_comes_at_once_and_only_once() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    for key in ["a/1", "a/2"] {
        schedule.add(key, now, Low);
    }
    assert_eq!(schedule.pop(now), Some(("a/1", Low)));
    schedule.add("a/3", now, High);
    schedule.add("a/2", now, High);
    schedule.add("a/2", now, Low);
    assert_eq!(schedule.depth(now), 3);
    assert_eq!(all_due(&mut schedule, now), ["a/3", "a/2"]);
}

#[test]
fn a_forgotten_key_does_not_come() {
    let now = Instant::now();
    let mut schedule = Schedule::default();
    for key in ["shop", "shop/2", "shop/3"] {
        schedule.add(key, now, High);
    }
    schedule.forget(&"shop");
    assert_eq!(schedule.pop(now), Some(("shop/2", High)));
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
fn however_many_groups_are_slow_the_next_one_finds_a_worker() {
    let now = Instant::now();
    let mut schedule = Schedule::<(&'static str, u32)>::for_workers(16);
    for number in 0..100 {
        for hostile in ["one", "two", "three"] {
            schedule.add((hostile, number), now, High);
            schedule.add((hostile, 100 + number), now, Low);
        }
    }
    let at_work = std::iter::from_fn(|| schedule.pop(now)).count();
    assert_eq!(at_work, 12, "a quarter is left for those who have none");
    for other in ["four", "five", "six", "seven"] {
        schedule.add((other, 0), now, High);
        assert_eq!(schedule.pop(now), Some(((other, 0), High)));
    }
}

#[test]
fn one_group_has_half_of_the_workers_at_most_and_a_worker_is_left_for_another() {
    let now = Instant::now();
    let mut schedule = Schedule::<(&'static str, u32)>::for_workers(8);
    for number in 0..100 {
        schedule.add(("hostile", number), now, High);
    }
    let at_work: Vec<_> = std::iter::from_fn(|| schedule.pop(now)).collect();
    assert_eq!(at_work.len(), 4);
    schedule.add(("other", 0), now, High);
    assert_eq!(schedule.pop(now), Some((("other", 0), High)));
    assert_eq!(schedule.pop(now), None, "the rest waits, and is not forgotten");
    schedule.done(&("hostile", 0));
    assert_eq!(schedule.pop(now), Some((("hostile", 4), High)));
    for number in 1..100 {
        schedule.done(&("hostile", number));
        while schedule.pop(now).is_some() {}
    }
    assert!(schedule.is_empty());
    assert_eq!(schedule.group_working.len(), 1, "and groups that are through take no room");
}

#[test]
fn what_can_wait_has_half_of_the_workers_at_most_and_one_at_least() {
    for (workers, most) in [(1, 1), (2, 1), (5, 2), (16, 8)] {
        let now = Instant::now();
        let mut schedule = Schedule::<u64>::for_workers(workers);
        for key in 1..=20 {
            schedule.add(key, now, Low);
        }
        let at_work: Vec<_> = std::iter::from_fn(|| schedule.pop(now)).collect();
        assert_eq!(at_work.len(), most, "of {workers}");
        schedule.add(0, now, High);
        assert_eq!(schedule.pop(now), Some((0, High)), "a worker is left for it");
        schedule.done(&1);
        assert_eq!(schedule.pop(now).map(|(_, priority)| priority), Some(Low), "and for the next");
        assert_eq!(schedule.pop(now), None);
    }
}

/// As behind an Events API that does not answer: everything that can wait takes ten seconds.
#[tokio::test(start_paused = true)]
async fn what_is_urgent_finds_a_worker_while_all_that_can_wait_hangs() {
    let queue = Arc::new(Queue::<u64>::for_workers(4));
    for key in 1..=100 {
        queue.add_later(key);
    }
    let done = Arc::new(Mutex::new(None));
    for _ in 0..4 {
        let (queue, done) = (queue.clone(), done.clone());
        tokio::spawn(async move {
            loop {
                let (key, priority) = queue.next().await;
                match priority {
                    High => *done.lock().unwrap() = Some(Instant::now()),
                    Low => tokio::time::sleep(10 * SECOND).await,
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
        schedule.add(0, now, High);
        schedule.add(key, now, Low);
        let (next, _) = schedule.pop(now).unwrap();
        schedule.done(&next);
        schedule.forget(&key);
    }
    schedule.forget(&0);
    assert!(schedule.is_empty());
    let kept: usize = schedule.low.keys.values().map(BTreeMap::len).sum();
    assert!(kept <= 100, "{kept} keys are kept of which none waits");
}
