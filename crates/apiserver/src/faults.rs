//! A fault layer between a client and an API server in the same process: requests are late, lost or
//! refused, watches break, and the client's process dies around a request.
//!
//! A [`FaultPlan`] decides what goes wrong, [`FaultyTransport`] does it. It knows requests, answers
//! and watch events, but no kind of object. All waiting is on tokio's clock, which tests can pause.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::BoxStream,
};
use http::{Request, Response, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};
use tower::{BoxError, Service};

use crate::api::Body;

/// Clients give up a connection on which nothing arrives for this long.
const SILENCE: Duration = Duration::from_secs(70);

/// Decides what goes wrong on the way from one process to the API server.
pub trait FaultPlan: Clone + Send + Sync + 'static {
    /// Identifies a sent request.
    type Call: Clone + Send + Sync + 'static;

    /// Called before a request leaves. `None` if the process is dead, or dies now.
    fn send(&self, request: &Parts) -> Option<(Self::Call, RequestFaults)>;

    /// Travel time to the server and back.
    fn latency(&self) -> (Duration, Duration);

    /// Called when a request has arrived. `Some` refuses it with this code.
    fn refuse_arrived(&self, call: &Self::Call, request: &Parts) -> Option<u16>;

    /// Has an API server carry out the request.
    fn serve(&self, call: &Self::Call, request: &Parts, body: &Bytes) -> Response<Body>;

    /// Called instead of answering a request with [`RequestFaults::crash_after_commit`].
    fn crash(&self);

    /// Called when the client gets an answer. `body` is empty for watches and refusals.
    fn answered(&self, call: &Self::Call, code: u16, body: &Bytes);

    /// Decides about the next event of a watch.
    fn event_fault(&self, call: &Self::Call, event: &[u8]) -> EventFault;

    /// Makes an event undecodable for [`Damage::Undecodable`].
    fn spoil(&self, call: &Self::Call, event: &mut Value);

    /// Changes the body of an answer before the client sees it.
    fn rewrite_answer(&self, _: &Self::Call, body: Bytes) -> Bytes {
        body
    }

    /// Changes an event before the client sees it.
    fn rewrite_event(&self, _: &Self::Call, event: Bytes) -> Bytes {
        event
    }
}

/// Faults of one request.
#[derive(Clone, Debug, Default)]
pub struct RequestFaults {
    /// The process dies once the server has carried out the request.
    pub crash_after_commit: bool,
    pub refused: Option<(u16, Committed)>,
    pub lost: Option<Committed>,
    pub delay: Duration,
    pub answer_delay: Duration,
    pub held_until: Option<Instant>,
}

/// Whether the server carries out a request that it refuses or that gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    No,
    Yes,
}

/// Fault of one event of a watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventFault {
    None,
    HeldUntil(Instant),
    Damaged(Damage),
}

/// How an event of a watch is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The connection is reset.
    Reset,
    /// The connection stays open, but nothing arrives any more.
    HalfOpen,
    /// The stream ends in the middle of the event.
    Truncated,
    /// The event says that the version is gone (410).
    Gone,
    /// The object can't be decoded.
    Undecodable,
}

impl Damage {
    pub const ALL: [Self; 5] =
        [Self::Reset, Self::HalfOpen, Self::Truncated, Self::Gone, Self::Undecodable];
}

type Chunk = Result<Frame<Bytes>, BoxError>;
type Answer = Response<StreamBody<BoxStream<'static, Chunk>>>;

/// Connects a client with an API server, with the faults of a plan.
#[derive(Clone)]
pub struct FaultyTransport<P>(pub P);

impl<P: FaultPlan> Service<Request<kube::client::Body>> for FaultyTransport<P> {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

struct Sent<C> {
    parts: Parts,
    body: Bytes,
    call: C,
    faults: RequestFaults,
}

impl<P: FaultPlan> FaultyTransport<P> {
    async fn send(self, request: Request<kube::client::Body>) -> Result<Answer, BoxError> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let Some((call, faults)) = self.0.send(&parts) else { return pending().await };
        parts.extensions.clear();
        let sent = Sent { parts, body, call, faults };
        // A request that has left reaches the server even if its sender dies.
        let (reply, replied) = oneshot::channel();
        tokio::spawn(async move {
            let answer = self.deliver(sent).await;
            let _ = reply.send(answer);
        });
        match timeout(SILENCE, replied).await {
            Ok(answer) => answer?,
            Err(_) => Err(silent()),
        }
    }

    async fn deliver(self, sent: Sent<P::Call>) -> Result<Answer, BoxError> {
        let Sent { call, faults, .. } = &sent;
        let (out, back) = self.0.latency();
        sleep(out + faults.delay).await;
        if let Some(until) = faults.held_until {
            sleep_until(until).await;
        }
        if let Some(Committed::No) = faults.lost {
            return pending().await;
        }
        if let Some((code, Committed::No)) = faults.refused {
            sleep(back).await;
            return Ok(self.refuse(call, code));
        }
        if let Some(code) = self.0.refuse_arrived(call, &sent.parts) {
            return Ok(self.refuse(call, code));
        }
        let (answer, body) = self.commit(&sent).await?;
        if faults.crash_after_commit {
            self.0.crash();
            return pending().await;
        }
        sleep(back + faults.answer_delay).await;
        match (faults.lost, faults.refused) {
            (Some(_), _) => pending().await,
            (None, Some((code, _))) => Ok(self.refuse(call, code)),
            (None, None) => {
                self.0.answered(call, answer.status().as_u16(), &body);
                Ok(answer)
            }
        }
    }

    /// The server's answer, and its body unless it is a watch.
    async fn commit(&self, sent: &Sent<P::Call>) -> Result<(Answer, Bytes), BoxError> {
        let call = &sent.call;
        let (head, body) = self.0.serve(call, &sent.parts, &sent.body).into_parts();
        if is_watch(&sent.parts) && head.status.is_success() {
            let chunks = body.into_data_stream().map(|chunk| chunk.map_err(BoxError::from));
            let events = self.clone().events(call.clone(), chunks.boxed());
            return Ok((Response::from_parts(head, StreamBody::new(events)), Bytes::new()));
        }
        let body = self.0.rewrite_answer(call, body.collect().await?.to_bytes());
        Ok((Response::from_parts(head, whole(body.clone())), body))
    }

    fn refuse(&self, call: &P::Call, code: u16) -> Answer {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            _ => "ServiceUnavailable",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": "the fault plan says so", "details": { "retryAfterSeconds": 3 },
        });
        self.0.answered(call, code, &Bytes::new());
        let answer = Response::builder().status(code).header("content-type", "application/json");
        let body = whole(Bytes::from(status.to_string()));
        answer.header("retry-after", "3").body(body).expect("a code and two constant headers")
    }

    fn events(
        self,
        call: P::Call,
        chunks: BoxStream<'static, Result<Bytes, BoxError>>,
    ) -> BoxStream<'static, Chunk> {
        let state = Some((self, call, Lines { chunks, rest: Vec::new() }));
        futures::stream::unfold(state, |state| async move {
            let (transport, call, mut lines) = state?;
            let line = match timeout(SILENCE, lines.next()).await {
                Err(_) => return Some((Err(silent()), None)),
                Ok(None) => return None,
                Ok(Some(Err(error))) => return Some((Err(error), None)),
                Ok(Some(Ok(line))) => line,
            };
            let (chunk, ends) = transport.deliver_event(&call, line).await;
            Some((chunk.map(Frame::data), (!ends).then_some((transport, call, lines))))
        })
        .boxed()
    }

    /// The event as it arrives, and whether the stream ends with it.
    async fn deliver_event(&self, call: &P::Call, event: Bytes) -> (Result<Bytes, BoxError>, bool) {
        loop {
            match self.0.event_fault(call, &event) {
                EventFault::None => {
                    sleep(self.0.latency().1).await;
                    return (Ok(self.0.rewrite_event(call, event)), false);
                }
                EventFault::HeldUntil(until) => sleep_until(until).await,
                EventFault::Damaged(damage) => return self.damage(call, event, damage).await,
            }
        }
    }

    async fn damage(
        &self,
        call: &P::Call,
        event: Bytes,
        damage: Damage,
    ) -> (Result<Bytes, BoxError>, bool) {
        match damage {
            Damage::Reset => (Err("connection reset by peer".into()), true),
            Damage::HalfOpen => {
                sleep(SILENCE).await;
                (Err(silent()), true)
            }
            Damage::Truncated => (Ok(event.slice(..event.len() / 2)), true),
            Damage::Gone => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 410, "reason": "Expired", "message": "too old resource version",
                });
                let event = json!({ "type": "ERROR", "object": status });
                (Ok(Bytes::from(format!("{event}\n"))), true)
            }
            Damage::Undecodable => {
                let mut event: Value = serde_json::from_slice(&event).unwrap_or_default();
                self.0.spoil(call, &mut event);
                (Ok(event_line(&event)), false)
            }
        }
    }
}

/// One line of a watch, with the type first, as every API server writes it.
pub fn event_line(event: &Value) -> Bytes {
    let (kind, object) = (&event["type"], &event["object"]);
    Bytes::from(format!("{{\"type\":{kind},\"object\":{object}}}\n"))
}

fn is_watch(request: &Parts) -> bool {
    request.uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn silent() -> BoxError {
    "the connection was silent for too long".into()
}

fn whole(body: Bytes) -> StreamBody<BoxStream<'static, Chunk>> {
    let chunk = Ok(Frame::data(body));
    StreamBody::new(futures::stream::once(async { chunk }).boxed())
}

/// Cuts a stream of bytes into lines.
struct Lines {
    chunks: BoxStream<'static, Result<Bytes, BoxError>>,
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                return Some(Ok(std::mem::replace(&mut self.rest, after).into()));
            }
            match self.chunks.next().await? {
                Ok(chunk) => self.rest.extend_from_slice(&chunk),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
