//! Remembers answers for a short time, and lets equal questions wait for one answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use aws_lc_rs::hmac;
use tokio::time::Instant;

use crate::runtime::lock::lock;

type Digest = [u8; 32];
/// For one answer.
const MOST_WAITING: usize = 64;
/// Held by whoever asks, so that others wait.
type Entry<T> = tokio::sync::Mutex<Option<Answer<T>>>;

struct Answer<T> {
    answer: T,
    until: Instant,
}

/// Questions are kept as digests with a key of this process: they hold tokens.
pub struct Remembered<T> {
    key: hmac::Key,
    most: usize,
    entries: Mutex<HashMap<Digest, Arc<Entry<T>>>>,
}

/// An answer, and how long it may be given to others. Without a time, not at all.
pub struct Fresh<T> {
    pub answer: T,
    pub until: Option<Instant>,
}

impl<T: Clone> Remembered<T> {
    pub fn new(most: usize) -> Self {
        let mut key = [0; 32];
        // Without randomness from the system nothing here is safe; TLS would not work either.
        #[allow(clippy::expect_used)]
        aws_lc_rs::rand::fill(&mut key).expect("the system has randomness");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Self { key, most, entries: Mutex::default() }
    }

    /// The remembered answer to this question, or the one that is asked for now.
    pub async fn get_or<E>(
        &self,
        question: &[&[u8]],
        ask: impl Future<Output = Result<Fresh<T>, E>>,
    ) -> Result<T, E> {
        let entry = self.entry(self.digest(question));
        // Whoever comes after too many asks alone, where other limits count: nobody can fill the memory with those
        // that wait.
        let Some(entry) = entry.filter(|entry| Arc::strong_count(entry) <= MOST_WAITING) else {
            return ask.await.map(|it| it.answer);
        };
        let mut entry = entry.lock().await;
        if let Some(Answer { answer, until }) = &*entry
            && Instant::now() < *until
        {
            return Ok(answer.clone());
        }
        *entry = None;
        let Fresh { answer, until } = ask.await?;
        *entry = until.map(|until| Answer { answer: answer.clone(), until });
        Ok(answer)
    }

    /// Every part has its length in front, so that no two questions have the same digest.
    fn digest(&self, question: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in question {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// None if there are too many: then nothing more is remembered.
    fn entry(&self, digest: Digest) -> Option<Arc<Entry<T>>> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&digest) {
            return Some(entry.clone());
        }
        if entries.len() >= self.most {
            entries.retain(|_, entry| is_wanted(entry));
        }
        if entries.len() >= self.most {
            return None;
        }
        let entry = Arc::<Entry<T>>::default();
        entries.insert(digest, entry.clone());
        Some(entry)
    }
}

/// Whether somebody waits for it, or its answer counts still.
fn is_wanted<T>(entry: &Arc<Entry<T>>) -> bool {
    match entry.try_lock() {
        Ok(held) if Arc::strong_count(entry) == 1 => {
            held.as_ref().is_some_and(|it| Instant::now() < it.until)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };

    use futures::future::join_all;
    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Stage {
        remembered: Remembered<usize>,
        asked: AtomicUsize,
    }

    impl Stage {
        fn new(most: usize) -> Self {
            Self { remembered: Remembered::new(most), asked: AtomicUsize::new(0) }
        }

        async fn ask(&self, question: &[&str], lasts: Option<Duration>) -> usize {
            let question: Vec<_> = question.iter().map(|it| it.as_bytes()).collect();
            let ask = async {
                sleep(SECOND).await;
                let answer = self.asked.fetch_add(1, Relaxed);
                Ok::<_, ()>(Fresh { answer, until: lasts.map(|it| Instant::now() + it) })
            };
            self.remembered.get_or(&question, ask).await.unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn equal_questions_wait_for_one_answer_that_ends() {
        let stage = Stage::new(10);
        let all = join_all((0..50).map(|_| stage.ask(&["a", "b"], Some(10 * SECOND)))).await;
        assert_eq!(all, [0; 50]);
        advance(9 * SECOND).await;
        assert_eq!(stage.ask(&["a", "b"], Some(10 * SECOND)).await, 0);
        advance(SECOND).await;
        assert_eq!(stage.ask(&["a", "b"], Some(10 * SECOND)).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_waits_for_one_answer_and_the_others_wait_for_nobody() {
        let stage = Stage::new(10);
        let ask = || timeout(2 * SECOND, stage.ask(&["a"], None));
        let all = join_all((0..500).map(|_| ask())).await;
        // Those that wait have their turn one after another.
        assert!(all.iter().flatten().count() >= 500 - MOST_WAITING);
    }

    #[tokio::test(start_paused = true)]
    async fn parts_of_a_question_do_not_run_together() {
        let stage = Stage::new(10);
        let questions: [&[&str]; 5] = [&["ab"], &["a", "b"], &["", "ab"], &["ab", ""], &["b", "a"]];
        for (number, question) in questions.into_iter().enumerate() {
            assert_eq!(stage.ask(question, Some(60 * SECOND)).await, number, "{question:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_time_is_for_one_alone() {
        let stage = Stage::new(10);
        let all = join_all((0..3).map(|_| stage.ask(&["a"], None))).await;
        assert_eq!(all, [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_is_asked_for_each_time_and_drives_nothing_out() {
        let stage = Stage::new(2);
        for question in ["a", "b", "c", "c"] {
            stage.ask(&[question], Some(60 * SECOND)).await;
        }
        assert_eq!(stage.asked.load(Relaxed), 4);
        assert_eq!(stage.ask(&["a"], None).await, 0);
        advance(60 * SECOND).await;
        // Those that ended make room.
        assert_eq!(stage.ask(&["c"], Some(60 * SECOND)).await, 4);
        assert_eq!(stage.ask(&["c"], Some(60 * SECOND)).await, 4);
    }
}
