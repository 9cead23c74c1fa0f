//! The way from one replica's process to a remote cluster, with the faults of the case.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use apiserver::{
    api::Body,
    faults::{Committed, EventFault, FaultPlan, FaultyTransport, RequestFaults},
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header, request::Parts};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use tower::{ServiceExt as _, service_fn};
use trustplane::{
    k8s::{
        client::{self, Bearer, NoToken},
        gate::Gate,
    },
    runtime::failpoints::{self, Bug},
};

use super::remote::{Arriving, Down, Remote};
use crate::{
    cluster::Cluster,
    faults::Moment,
    journal::{Actor, Target},
};

/// The token of the replica's own Pod, which is for its own cluster alone.
pub const LOCAL_TOKEN: &str = "bG9jYWw.dG9rZW4.b2YtdGhlLVBvZA";

#[derive(Clone)]
pub struct Path {
    pub cluster: Arc<Cluster>,
    pub remote: Arc<Remote>,
    pub replica: usize,
    pub life: u32,
}

#[derive(Clone)]
pub struct SentCall {
    number: usize,
    sent: Instant,
    bearer: String,
}

impl Path {
    /// As `connect_http2` does, every request has the token of its moment.
    pub fn client(self, bearer: Arc<dyn Bearer>) -> Client {
        let first = Arc::new(OnceLock::new());
        let service = service_fn(move |mut request: Request<kube::client::Body>| {
            let transport = FaultyTransport(self.clone());
            let token = token(&*bearer, &first);
            async move {
                let token = token.ok_or(NoToken)?;
                request.headers_mut().insert(header::AUTHORIZATION, token);
                transport.oneshot(request).await
            }
        });
        client::over(service, Gate::open())
    }

    fn actor(&self) -> Actor {
        Actor::Ours { replica: self.replica, life: self.life }
    }
}

fn token(bearer: &dyn Bearer, first: &OnceLock<HeaderValue>) -> Option<HeaderValue> {
    let token = bearer.header();
    if failpoints::has(Bug::LocalTokenSentOut) {
        let local = HeaderValue::from_str(&format!("Bearer {LOCAL_TOKEN}")).ok();
        return token.or(local);
    }
    match token {
        Some(token) if failpoints::has(Bug::OldBearerKept) => {
            Some(first.get_or_init(|| token).clone())
        }
        token => token,
    }
}

impl FaultPlan for Path {
    type Call = SentCall;

    fn send(&self, request: &Parts) -> Option<(SentCall, RequestFaults)> {
        if !self.cluster.is_alive(self.replica, self.life) {
            return None;
        }
        let (path, now) = (request.uri.path(), Instant::now());
        let target = Target::of(path, "");
        let number = self.cluster.count_call(self.replica);
        let mut faults =
            self.cluster.faults().on_call(self.replica, number, &request.method, &target, now);
        if faults.crash == Some(Moment::BeforeSend) {
            self.cluster.crash(self.replica);
            return None;
        }
        let named = format!("/{}{path}", self.remote.name);
        let number = self.cluster.record_sent(self.actor(), &request.method, &named, &target);
        // Reviews are for every replica; these are of renewals.
        if target.is_about("serviceaccounts") {
            self.cluster.check_lease(number);
        }
        let state = self.remote.state();
        match state.down {
            Some(Down::Broken) => faults.request.refused = Some((503, Committed::No)),
            Some(Down::Hanging) => faults.request.lost = Some(Committed::No),
            None => {}
        }
        if target.is_about("tokenreviews") {
            faults.request.answer_delay += state.review_takes;
        }
        let header = request.headers.get(header::AUTHORIZATION);
        let bearer = header.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
        let bearer = bearer.unwrap_or_default().to_owned();
        Some((SentCall { number, sent: now, bearer }, faults.request))
    }

    fn latency(&self) -> (Duration, Duration) {
        self.cluster.latency()
    }

    fn refuse_arrived(&self, _: &SentCall, _: &Parts) -> Option<u16> {
        None
    }

    fn serve(&self, call: &SentCall, request: &Parts, body: &Bytes) -> Response<Body> {
        let (code, answer) = self.remote.answer(&Arriving {
            by: self.actor(),
            path: request.uri.path(),
            bearer: &call.bearer,
            body,
            sent: call.sent,
            now: self.cluster.time(Instant::now()),
        });
        let body = Body::from(answer.to_string().into_bytes());
        Response::builder().status(code).body(body).expect("a code and a body")
    }

    fn crash(&self) {
        self.cluster.crash(self.replica);
    }

    fn answered(&self, call: &SentCall, code: u16, body: &Bytes) {
        self.cluster.record_answered(call.number, code, body);
    }

    fn event_fault(&self, _: &SentCall, _: &[u8]) -> EventFault {
        EventFault::None
    }

    fn spoil(&self, _: &SentCall, _: &mut Value) {}
}
