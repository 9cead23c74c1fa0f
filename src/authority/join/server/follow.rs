//! What a client that joined hears afterwards: all bundles that count, at once and at each change.
//!
//! The next message is made when the client can take it, so a slow reader gets the newest, and nothing
//! waits for it here.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::{StreamExt as _, stream};
use tokio::{sync::watch, task::AbortHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    Held, JoinService, Requests,
    answer::{Answer, Answers},
    limits::{Counted, Share},
    open_connections::OpenFollower,
    second_try,
};
use crate::{
    authority::join::view::{Trusted, View},
    runtime::lock::lock,
};

/// How often it is checked whether this replica still knows what counts.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// What a follower holds for as long as it lasts.
pub(super) type FollowerHeld = (Held, Option<OpenFollower>, Share<String>);

pub(super) struct FollowStream {
    view: Arc<View>,
    trusted: watch::Receiver<Arc<Trusted>>,
    requests: Option<Requests>,
    /// The end of the client's certificate.
    until: Instant,
    stop: CancellationToken,
    _held: HeldUntil,
}

type All = (FollowerHeld, Counted);

/// What a follower holds, until it leaves or its certificate ends: one that no longer reads is not asked for its
/// next message, and would hold it for as long as it likes.
struct HeldUntil {
    all: Arc<Mutex<Option<All>>>,
    end: AbortHandle,
}

impl HeldUntil {
    fn new(all: All, until: Instant) -> Self {
        let all = Arc::new(Mutex::new(Some(all)));
        let held = all.clone();
        let end = tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            lock(&held).take();
        });
        Self { all, end: end.abort_handle() }
    }
}

impl Drop for HeldUntil {
    fn drop(&mut self) {
        self.end.abort();
        lock(&self.all).take();
    }
}

impl FollowStream {
    pub(super) fn new(
        service: &JoinService,
        until: DateTime<Utc>,
        requests: Requests,
        held: FollowerHeld,
    ) -> Self {
        let until = Instant::now() + service.clock.until(until);
        let all = (held, Counted::new(service.metrics.join_followers()));
        Self {
            view: service.view.clone(),
            trusted: service.view.follow_trusted(),
            requests: Some(requests),
            until,
            stop: service.stop.clone(),
            _held: HeldUntil::new(all, until),
        }
    }

    pub(super) fn bundles(self: Box<Self>) -> Answers {
        let next = |follow: Option<Box<Self>>| async {
            let mut follow = follow?;
            match follow.next().await? {
                Ok(answer) => Some((Ok(answer), Some(follow))),
                Err(status) => Some((Err(status), None)),
            }
        };
        stream::unfold(Some(self), next).boxed()
    }

    /// None at the end of the certificate, or if the client has left.
    async fn next(&mut self) -> Option<Result<Answer, Status>> {
        loop {
            let request = async {
                match &mut self.requests {
                    Some(requests) => requests.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.until) => return None,
                () = self.stop.cancelled() => {
                    return Some(Err(Status::unavailable("this server stops; join another one")));
                }
                request = request => match request {
                    Some(Ok(_)) => return Some(Err(second_try())),
                    Some(Err(_)) => return None,
                    // It has said everything, and still listens.
                    None => self.requests = None,
                },
                changed = self.trusted.changed() => {
                    changed.ok()?;
                    return Some(Ok(Answer::Bundles(self.trusted.borrow_and_update().clone())));
                }
                () = tokio::time::sleep(CHECK_EVERY) => {
                    // Others may know better by now which bundles count.
                    if let Err(unready) = self.view.check_ready(Instant::now()) {
                        tracing::warn!(%unready, "a follower is sent to another replica");
                        return Some(Err(Status::unavailable("this server does not know what counts; join another one")));
                    }
                }
            }
        }
    }
}
