//! Lets the callers of a controller go before it stops.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Controller;

/// Until everybody knows by `/readyz` that this replica is to get no new connections.
const NOTICE: Duration = Duration::from_secs(5);
/// For requests under way when the listeners are closed.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

/// Waits for the signal, drains the controller if it has callers, and then asks it to stop.
pub(super) async fn run<C: Controller>(
    controller: Arc<C>,
    signal: CancellationToken,
    draining: CancellationToken,
    stop: CancellationToken,
) {
    signal.cancelled().await;
    if let Some(drained) = controller.drain() {
        draining.cancel();
        sleep(NOTICE).await;
        if timeout(LAST_REQUESTS, drained).await.is_err() {
            tracing::warn!("requests under way did not finish in time");
        }
    }
    stop.cancel();
}

pub(super) fn waiting_for<C: Controller>(
    controller: &C,
    draining: &CancellationToken,
) -> Vec<String> {
    match draining.is_cancelled() {
        true => vec!["stopping".to_owned()],
        false => controller.waiting_for(),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};
    use tokio::time::Instant;

    use super::*;

    /// Its last request takes as long as it says. Without one, it has no callers.
    struct Served {
        last_request: Option<Duration>,
        closed: CancellationToken,
    }

    impl Controller for Served {
        fn waiting_for(&self) -> Vec<String> {
            Vec::new()
        }

        fn drain(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
            let last_request = self.last_request?;
            Some(
                async move {
                    self.closed.cancel();
                    sleep(last_request).await;
                }
                .boxed(),
            )
        }

        fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
            async move {
                stop.cancelled().await;
                Ok(())
            }
            .boxed()
        }
    }

    struct Ending {
        controller: Arc<Served>,
        signal: CancellationToken,
        draining: CancellationToken,
        stop: CancellationToken,
    }

    impl Ending {
        fn of(last_request: Option<Duration>) -> Self {
            let closed = CancellationToken::new();
            let controller = Arc::new(Served { last_request, closed });
            let (signal, draining, stop) = Default::default();
            Self { controller, signal, draining, stop }
        }

        fn waiting_for(&self) -> Vec<String> {
            waiting_for(&*self.controller, &self.draining)
        }

        fn start(&self) {
            let Self { controller, signal, draining, stop } = self;
            let (controller, signal) = (controller.clone(), signal.clone());
            tokio::spawn(run(controller, signal, draining.clone(), stop.clone()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_have_five_seconds_to_leave_and_requests_under_way_twenty_to_end() {
        for (last_request, lasts) in [(1, 6), (7, 12), (60, 25)] {
            let ending = Ending::of(Some(Duration::from_secs(last_request)));
            ending.start();
            sleep(Duration::from_secs(60)).await;
            assert!(ending.waiting_for().is_empty(), "nobody asked it to stop");

            let begin = Instant::now();
            ending.signal.cancel();
            ending.draining.cancelled().await;
            assert_eq!(ending.waiting_for(), ["stopping"]);
            assert!(begin.elapsed().is_zero());
            ending.controller.closed.cancelled().await;
            assert_eq!(begin.elapsed().as_secs(), NOTICE.as_secs());
            assert!(!ending.stop.is_cancelled(), "it leads until its callers have left");
            ending.stop.cancelled().await;
            assert_eq!(begin.elapsed().as_secs(), lasts);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_without_callers_stops_at_once() {
        let ending = Ending::of(None);
        ending.start();
        let begin = Instant::now();
        ending.signal.cancel();
        ending.stop.cancelled().await;
        assert!(begin.elapsed().is_zero() && ending.waiting_for().is_empty());
    }
}
