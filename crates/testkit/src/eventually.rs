//! Waits for a condition, and shows the last observation if it fails.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Polls `look` until it returns `Ok`. Its `Err` says what it saw instead.
///
/// Panics after `timeout` with `what` and the last `Err`.
pub async fn eventually<T, Seen: Debug>(
    timeout: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, Seen>,
) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if start.elapsed() >= timeout => {
                panic!("after {timeout:?} still waiting: {what}\nlast seen: {seen:#?}")
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        // Short at first, since most things take milliseconds; then longer, to spare a busy
        // machine.
        pause = (pause * 3 / 2).min(Duration::from_millis(200));
    }
}

/// Polls `look` until it returns `expected`.
pub async fn eventually_equals<T: PartialEq + Debug>(
    timeout: Duration,
    what: &str,
    expected: T,
    mut look: impl AsyncFnMut() -> T,
) {
    eventually(timeout, what, async || {
        let seen = look().await;
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await
}
