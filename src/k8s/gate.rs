//! Lets a write pass only while this replica holds the lease.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request};
use kube::client::Body;
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, Layer, Service};

use crate::runtime::failpoints::{self, Bug};

/// Until when this process may write.
///
/// The deadline is on the sender's own monotonic clock. A write that has not left by then is
/// dropped, not sent late; one that the network delays conflicts with the resourceVersion of later
/// writes.
#[derive(Clone, Debug)]
pub struct Gate(Option<watch::Receiver<Option<Instant>>>);

impl Gate {
    /// Always open: there is no election.
    pub fn open() -> Self {
        Self(None)
    }

    /// Open until the deadline that the election keeps moving.
    pub fn until(deadline: watch::Receiver<Option<Instant>>) -> Self {
        Self(Some(deadline))
    }

    /// Whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        match &self.0 {
            None => true,
            Some(deadline) => deadline.borrow().is_some_and(|deadline| Instant::now() < deadline),
        }
    }

    /// Waits until writes may be sent.
    pub async fn opened(&mut self) {
        let Some(deadline) = &mut self.0 else { return };
        let open =
            |deadline: &Option<Instant>| deadline.is_some_and(|deadline| Instant::now() < deadline);
        if deadline.wait_for(open).await.is_err() {
            // The election has ended for good; its supervisor stops the process.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until writes may no longer be sent.
    pub async fn closed(self) {
        let Some(mut deadline) = self.0 else { return std::future::pending().await };
        loop {
            let until = *deadline.borrow_and_update();
            match until {
                Some(until) if Instant::now() < until => tokio::select! {
                    biased;
                    // After the election has ended, the last deadline stays.
                    Ok(()) = deadline.changed() => {}
                    () = tokio::time::sleep_until(until) => {}
                },
                _ => return,
            }
        }
    }
}

/// A write was held back because this replica does not hold the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the lease")]
pub struct NotLeader;

#[derive(Clone)]
pub(super) struct GateLayer(pub(super) Gate);

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.0.clone(), inner }
    }
}

/// Lets reads pass, and writes until the deadline.
pub(super) struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError> + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let unguarded = failpoints::has(Bug::LeaseUnchecked);
        if request.method() == Method::GET || is_lease(&request) || unguarded {
            return self.inner.call(request).map(|answer| answer.map_err(Into::into)).boxed();
        }
        if !self.gate.is_open() {
            return futures::future::ready(Err(NotLeader.into())).boxed();
        }
        while_open(self.gate.clone(), self.inner.call(request)).boxed()
    }
}

/// Goes on with a call only while the gate is open.
///
/// The gate is checked before every poll, not only when a timer fires: a process that was stopped
/// for a minute must not send first and read the clock afterwards.
async fn while_open<T, E: Into<BoxError>>(
    gate: Gate,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    let mut answer = pin!(answer);
    let mut closed = pin!(gate.clone().closed());
    poll_fn(|context| {
        if !gate.is_open() || closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(NotLeader.into()));
        }
        answer.as_mut().poll(context).map_err(Into::into)
    })
    .await
}

/// The lease itself must be written before there is a deadline.
fn is_lease(request: &Request<Body>) -> bool {
    request.uri().path().starts_with("/apis/coordination.k8s.io/")
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use tower::{ServiceExt, service_fn};

    use super::*;

    const ROUTE: &str = "/apis/route.openshift.io/v1/namespaces/web/routes/shop";
    const LEASE: &str =
        "/apis/coordination.k8s.io/v1/namespaces/trustplane/leases/trustplane-inject";

    async fn send(gate: &Gate, method: Method, path: &str, takes: Duration) -> (bool, Vec<String>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = sent.clone();
        let server = service_fn(move |request: Request<Body>| {
            let seen = seen.clone();
            async move {
                tokio::time::sleep(takes).await;
                seen.lock().unwrap().push(request.method().to_string());
                Ok::<_, BoxError>(())
            }
        });
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let passed = GateLayer(gate.clone()).layer(server).oneshot(request).await.is_ok();
        let sent = sent.lock().unwrap().clone();
        (passed, sent)
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_is_sent_without_the_lease_but_reads_and_the_lease_itself_are() {
        let (_hold, deadline) = watch::channel(None);
        let gate = Gate::until(deadline);
        assert_eq!(send(&gate, Method::PATCH, ROUTE, Duration::ZERO).await, (false, vec![]));
        assert!(send(&gate, Method::GET, ROUTE, Duration::ZERO).await.0);
        assert!(send(&gate, Method::PUT, LEASE, Duration::ZERO).await.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_still_on_its_way_out_at_the_deadline_is_dropped() {
        let in_five = Instant::now() + Duration::from_secs(5);
        let (_hold, deadline) = watch::channel(Some(in_five));
        let gate = Gate::until(deadline);
        assert!(send(&gate, Method::PATCH, ROUTE, Duration::from_secs(4)).await.0);
        let (passed, sent) = send(&gate, Method::PATCH, ROUTE, Duration::from_secs(2)).await;
        assert_eq!((passed, sent), (false, vec![]), "one second was left, it took two");
        assert_eq!(send(&gate, Method::PATCH, ROUTE, Duration::ZERO).await, (false, vec![]));
    }

    /// Sends a PATCH that needs `takes` to get a connection; answers when it left, if it did.
    fn sending(
        gate: Gate,
        takes: Duration,
    ) -> (tokio::task::JoinHandle<bool>, Arc<Mutex<Option<Instant>>>) {
        let left = Arc::new(Mutex::new(None));
        let note = left.clone();
        let server = service_fn(move |_: Request<Body>| {
            let note = note.clone();
            async move {
                tokio::time::sleep(takes).await;
                *note.lock().unwrap() = Some(Instant::now());
                Ok::<_, BoxError>(())
            }
        });
        let request =
            Request::builder().method(Method::PATCH).uri(ROUTE).body(Body::empty()).unwrap();
        let answer = GateLayer(gate).layer(server).call(request);
        let task = tokio::spawn(async move { answer.await.is_ok() });
        (task, left)
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_is_sent_past_the_deadline_by_a_process_that_was_stopped_meanwhile() {
        let deadline = Instant::now() + Duration::from_secs(10);
        let (_hold, receiver) = watch::channel(Some(deadline));
        let (task, left) = sending(Gate::until(receiver), Duration::from_secs(2));
        tokio::task::yield_now().await;
        // SIGSTOP, a frozen cgroup, a paused virtual machine: a minute passes between two polls.
        tokio::time::advance(Duration::from_secs(60)).await;
        let passed = task.await.unwrap();
        let left = *left.lock().unwrap();
        assert!(
            left.is_none_or(|left| left < deadline) && !passed,
            "sent {:?} after the deadline",
            left.unwrap() - deadline
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_is_sent_after_the_lease_was_given_up() {
        let (election, receiver) = watch::channel(Some(Instant::now() + Duration::from_secs(10)));
        let (task, left) = sending(Gate::until(receiver), Duration::from_secs(3));
        tokio::time::sleep(Duration::from_secs(1)).await;
        // What `Election::release` and "another replica leads now" do.
        election.send_replace(None);
        let given_up = Instant::now();
        let _ = task.await;
        let left = *left.lock().unwrap();
        assert!(
            left.is_none(),
            "sent {:?} after the lease was given up, while another replica may lead",
            left.unwrap() - given_up
        );
    }
}
