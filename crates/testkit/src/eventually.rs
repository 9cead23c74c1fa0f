//! Waiting for what must become true, with a failure that shows what was seen instead.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Looks until `look` finds something, and returns it. `look` says what it saw instead as `Err`.
///
/// Panics after `timeout` with `what` was awaited and what was seen last.
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
        // Quick at first, since most things take milliseconds; then easy on a busy machine.
        pause = (pause * 3 / 2).min(Duration::from_millis(200));
    }
}

/// Looks until `look` sees `expected`.
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
