//! How often a refusal is logged: every process of the machine can be refused as often as it likes, and
//! must not push everything else out of the log.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::runtime::lock::lock;

/// Of one user.
const PAUSE: Duration = Duration::from_secs(60);
/// In each pause.
const MOST_USERS: usize = 100;

/// When each user was logged last.
#[derive(Debug, Default)]
pub struct RefusalLog(Mutex<BTreeMap<Option<u32>, Instant>>);

impl RefusalLog {
    /// Whether this refusal is to be logged.
    pub(super) fn is_due(&self, user: Option<u32>, now: Instant) -> bool {
        let mut logged = lock(&self.0);
        logged.retain(|_, at| now.duration_since(*at) < PAUSE);
        let is_due = logged.len() < MOST_USERS && !logged.contains_key(&user);
        if is_due {
            logged.insert(user, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_often_a_user_is_refused_the_log_tells_it_once_a_minute() {
        let log = RefusalLog::default();
        let logged = |user| (0..1000).filter(|_| log.is_due(Some(user), Instant::now())).count();
        assert_eq!((logged(1), logged(2)), (1, 1));
        tokio::time::advance(PAUSE).await;
        assert_eq!(logged(1), 1, "after a minute again");
        let all: usize = (10..1000).map(logged).sum();
        assert_eq!(all, MOST_USERS - 1, "nor by changing the user");
    }
}
