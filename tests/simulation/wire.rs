//! The way between a controller and the API server: no socket, but everything that can happen on
//! one. Each replica's process has a wire of its own.

use apiserver::api::ApiServer;
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::BoxStream,
};
use http::{Method, Request, Response, request::Parts};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};
use tower::{BoxError, Service};

use crate::{
    faults::{Damage, Done, Fate, Met, Moment, Watched},
    journal::{Actor, Target},
    tamper,
    world::World,
};

/// The production client gives a connection up that is silent for so long (`k8s::client::connect`).
pub const SILENCE: Duration = Duration::from_secs(70);

type Chunk = Result<http_body::Frame<Bytes>, BoxError>;
type ServerAnswer = <ApiServer as Service<Request<Body>>>::Response;
pub type Answer = Response<StreamBody<BoxStream<'static, Chunk>>>;

#[derive(Clone)]
pub struct Wire {
    pub world: Arc<World>,
    pub replica: usize,
    pub life: u32,
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

/// A request on its way, and what it meets.
struct Sent {
    parts: Parts,
    body: Bytes,
    target: Target,
    /// Its place in the journal.
    call: usize,
    met: Met,
}

impl Wire {
    fn actor(&self) -> Actor {
        Actor::Ours { replica: self.replica, life: self.life }
    }

    async fn send(self, request: Request<Body>) -> Result<Answer, BoxError> {
        if !self.world.lives(self.replica, self.life) {
            return pending().await;
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let query = parts.uri.query().unwrap_or_default();
        let target = Target::of(parts.uri.path(), query);
        let number = self.world.count_call(self.replica);
        let met =
            self.world.faults().meet(self.replica, number, &parts.method, &target, Instant::now());
        if met.crash == Some(Moment::BeforeSend) {
            self.world.crash(self.replica);
            return pending().await;
        }
        let call = self.world.record_sent(self.actor(), &parts, &target);
        let sent = Sent { parts, body, target, call, met };
        // What has left goes its way, whatever becomes of who sent it.
        let (reply, replied) = oneshot::channel();
        let wire = self.clone();
        tokio::spawn(async move {
            let answer = wire.deliver(sent).await;
            let _ = reply.send(answer);
        });
        // What the production client does with a connection that is silent for too long.
        match timeout(SILENCE, replied).await {
            Ok(answer) => answer?,
            Err(_) => Err("the connection was silent for too long".into()),
        }
    }

    async fn deliver(self, sent: Sent) -> Result<Answer, BoxError> {
        let (out, back) = self.world.latency();
        sleep(out + sent.met.slower).await;
        if let Some(until) = sent.met.held_until {
            sleep_until(until).await;
        }
        if let Some(Done::No) = sent.met.lost {
            return pending().await;
        }
        if let Some((code, Done::No)) = sent.met.refused {
            sleep(back).await;
            return Ok(self.refuse(sent.call, code));
        }
        if sent.target.watch && self.world.refuses_lost_version(&sent.parts.uri) {
            return Ok(self.refuse(sent.call, 410));
        }
        let (answer, object) = self.commit(&sent).await?;
        if sent.met.crash == Some(Moment::AfterCommit) {
            self.world.crash(self.replica);
            return pending().await;
        }
        sleep(back + sent.met.answered_later).await;
        match (sent.met.lost, sent.met.refused) {
            (Some(_), _) => pending().await,
            (None, Some((code, _))) => Ok(self.refuse(sent.call, code)),
            (None, None) => {
                self.world.record_answered(sent.call, answer.status().as_u16(), &object);
                Ok(answer)
            }
        }
    }

    /// Lets the API server do it. Answers what it says, and its bytes where they come at once.
    async fn commit(&self, sent: &Sent) -> Result<(Answer, Bytes), BoxError> {
        let is_route = sent.target.is_about("routes");
        let is_pair_patch =
            is_route && sent.parts.method == Method::PATCH && sent.target.subresource.is_none();
        let mut bodies =
            if is_pair_patch { tamper::patches(&sent.body) } else { vec![sent.body.clone()] };
        let last = bodies.pop().unwrap_or_default();
        for body in bodies {
            let answer = self.hand_over(sent, body)?;
            if !answer.status().is_success() {
                return self.read_answer(sent, answer, is_route).await;
            }
        }
        let answer = self.hand_over(sent, last)?;
        self.read_answer(sent, answer, is_route).await
    }

    fn hand_over(&self, sent: &Sent, body: Bytes) -> Result<ServerAnswer, BoxError> {
        let mut request = Request::from_parts(sent.parts.clone(), Body::from(body));
        request.extensions_mut().clear();
        let mut server = self.world.server_for(sent.met.lagging);
        Ok(self.world.watch_commits(self.actor(), sent.call, || {
            server.call(request).now_or_never().expect("the sandbox answers at once")
        })?)
    }

    async fn read_answer(
        &self,
        sent: &Sent,
        answer: ServerAnswer,
        is_route: bool,
    ) -> Result<(Answer, Bytes), BoxError> {
        let (head, body) = answer.into_parts();
        if sent.target.watch && head.status.is_success() {
            let watched =
                if sent.target.is_about("routes") { Watched::Routes } else { Watched::Secrets };
            let lines = body.into_data_stream().map(|chunk| chunk.map_err(BoxError::from));
            let stream = self.clone().events(watched, lines.boxed());
            return Ok((Response::from_parts(head, StreamBody::new(stream)), Bytes::new()));
        }
        let collected = body.collect().await;
        let bytes = collected.map_err(|_| "the answer broke off")?.to_bytes();
        let bytes = if is_route { tamper::answer(bytes) } else { bytes };
        Ok((Response::from_parts(head, once(bytes.clone())), bytes))
    }

    fn refuse(&self, call: usize, code: u16) -> Answer {
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
        let bytes = Bytes::from(status.to_string());
        self.world.record_answered(call, code, &Bytes::new());
        let answer = Response::builder().status(code).header("content-type", "application/json");
        answer.header("retry-after", "3").body(once(bytes)).expect("a plain answer")
    }

    /// The events of a watch, each with what it meets on its way.
    fn events(
        self,
        watched: Watched,
        chunks: BoxStream<'static, Result<Bytes, BoxError>>,
    ) -> BoxStream<'static, Chunk> {
        let lines = Lines { chunks, rest: Vec::new() };
        let state = Some((self, lines));
        futures::stream::unfold(state, move |state| async move {
            let (wire, mut lines) = state?;
            let next = timeout(SILENCE, lines.next()).await;
            let line = match next {
                Err(_) => {
                    return Some((Err("the connection was silent for too long".into()), None));
                }
                Ok(None) => return None,
                Ok(Some(Err(error))) => return Some((Err(error), None)),
                Ok(Some(Ok(line))) => line,
            };
            let (chunk, ends) = wire.carry(watched, line).await;
            Some((chunk.map(http_body::Frame::data), (!ends).then_some((wire, lines))))
        })
        .boxed()
    }

    /// What becomes of one event, and whether the stream ends with it.
    async fn carry(&self, watched: Watched, line: Bytes) -> (Result<Bytes, BoxError>, bool) {
        loop {
            let fate = self.fate(watched, &line);
            match fate {
                Fate::Arrives => {
                    sleep(self.world.latency().1).await;
                    let line = match watched {
                        Watched::Routes => tamper::event(line),
                        Watched::Secrets => line,
                    };
                    return (Ok(line), false);
                }
                Fate::HeldUntil(until) => sleep_until(until).await,
                Fate::Damaged(damage) => return self.damage(watched, line, damage).await,
            }
        }
    }

    fn fate(&self, watched: Watched, line: &Bytes) -> Fate {
        let mut faults = self.world.faults();
        if !faults.concern_events() {
            return Fate::Arrives;
        }
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let version = &event["object"]["metadata"]["resourceVersion"];
        let version = version.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        faults.event(self.replica, watched, version, Instant::now())
    }

    async fn damage(
        &self,
        watched: Watched,
        line: Bytes,
        damage: Damage,
    ) -> (Result<Bytes, BoxError>, bool) {
        match damage {
            Damage::Reset => (Err("connection reset by peer".into()), true),
            Damage::HalfOpen => {
                sleep(SILENCE).await;
                (Err("the connection was silent for too long".into()), true)
            }
            Damage::Truncated => (Ok(line.slice(..line.len() / 2)), true),
            Damage::Gone => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 410, "reason": "Expired", "message": "too old resource version",
                });
                let event = json!({ "type": "ERROR", "object": status });
                (Ok(Bytes::from(format!("{event}\n"))), true)
            }
            Damage::Undecodable => {
                let mut event: Value = serde_json::from_slice(&line).unwrap_or_default();
                match watched {
                    Watched::Routes => event["object"]["spec"] = json!("what is this"),
                    Watched::Secrets => event["object"]["metadata"]["uid"] = json!(7),
                }
                if event["type"] != "BOOKMARK" {
                    self.world.record_undecodable(watched, &event["object"]);
                }
                // The type comes first, as every API server writes it.
                let (what, object) = (&event["type"], &event["object"]);
                let line = format!("{{\"type\":{what},\"object\":{object}}}\n");
                (Ok(Bytes::from(line)), false)
            }
        }
    }
}

fn once(bytes: Bytes) -> StreamBody<BoxStream<'static, Chunk>> {
    let chunk = Ok(http_body::Frame::data(bytes));
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
