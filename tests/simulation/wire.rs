//! Connects one replica's process with the API server: injects the faults of the case through the
//! fault layer of `apiserver`, and records everything in the journal.

use std::{sync::Arc, time::Duration};

use apiserver::{
    api::Body,
    faults::{EventFault, FaultPlan, RequestFaults},
};
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, request::Parts};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

use crate::{
    faults::{Moment, Watched},
    journal::{Actor, Target},
    tamper,
    world::World,
};

#[derive(Clone)]
pub struct Wire {
    pub world: Arc<World>,
    pub replica: usize,
    pub life: u32,
}

#[derive(Clone)]
pub struct SentCall {
    /// Index in the journal.
    number: usize,
    target: Target,
    lagging: bool,
}

impl SentCall {
    fn watched(&self) -> Watched {
        if self.is_about_routes() { Watched::Routes } else { Watched::Secrets }
    }

    fn is_about_routes(&self) -> bool {
        self.target.is_about("routes")
    }
}

impl FaultPlan for Wire {
    type Call = SentCall;

    fn send(&self, request: &Parts) -> Option<(SentCall, RequestFaults)> {
        if !self.world.is_alive(self.replica, self.life) {
            return None;
        }
        let target = Target::of(request.uri.path(), request.uri.query().unwrap_or_default());
        let number = self.world.count_call(self.replica);
        let now = Instant::now();
        let faults =
            self.world.faults().on_call(self.replica, number, &request.method, &target, now);
        if faults.crash == Some(Moment::BeforeSend) {
            self.world.crash(self.replica);
            return None;
        }
        let number =
            self.world.record_sent(self.actor(), &request.method, request.uri.path(), &target);
        Some((SentCall { number, target, lagging: faults.lagging }, faults.request))
    }

    fn latency(&self) -> (Duration, Duration) {
        self.world.latency()
    }

    fn refuse_arrived(&self, call: &SentCall, request: &Parts) -> Option<u16> {
        (call.target.watch && self.world.refuses_lost_version(&request.uri)).then_some(410)
    }

    fn serve(&self, call: &SentCall, request: &Parts, body: &Bytes) -> Response<Body> {
        let is_pair_patch = call.is_about_routes()
            && request.method == Method::PATCH
            && call.target.subresource.is_none();
        let mut bodies = if is_pair_patch { tamper::patches(body) } else { vec![body.clone()] };
        let last = bodies.pop().unwrap_or_default();
        for body in bodies {
            let answer = self.serve_one(call, request, body);
            if !answer.status().is_success() {
                return answer;
            }
        }
        self.serve_one(call, request, last)
    }

    fn crash(&self) {
        self.world.crash(self.replica);
    }

    fn answered(&self, call: &SentCall, code: u16, body: &Bytes) {
        self.world.record_answered(call.number, code, body);
    }

    fn event_fault(&self, call: &SentCall, event: &[u8]) -> EventFault {
        let mut faults = self.world.faults();
        if !faults.affect_events() {
            return EventFault::None;
        }
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        let version = &event["object"]["metadata"]["resourceVersion"];
        let version = version.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        faults.event(self.replica, call.watched(), version, Instant::now())
    }

    fn spoil(&self, call: &SentCall, event: &mut Value) {
        let watched = call.watched();
        match watched {
            Watched::Routes => event["object"]["spec"] = json!("what is this"),
            Watched::Secrets => event["object"]["metadata"]["uid"] = json!(7),
        }
        if event["type"] != "BOOKMARK" {
            self.world.record_undecodable(watched, &event["object"]);
        }
    }

    fn rewrite_answer(&self, call: &SentCall, body: Bytes) -> Bytes {
        if call.is_about_routes() { tamper::answer(body) } else { body }
    }

    fn rewrite_event(&self, call: &SentCall, event: Bytes) -> Bytes {
        if call.is_about_routes() { tamper::event(event) } else { event }
    }
}

impl Wire {
    fn actor(&self) -> Actor {
        Actor::Ours { replica: self.replica, life: self.life }
    }

    fn serve_one(&self, call: &SentCall, request: &Parts, body: Bytes) -> Response<Body> {
        let request = Request::from_parts(request.clone(), kube::client::Body::from(body));
        let mut server = self.world.server_for(call.lagging);
        let answer = self.world.watch_commits(self.actor(), call.number, || {
            server.call(request).now_or_never().expect("the sandbox answers at once")
        });
        answer.unwrap_or_else(|never| match never {})
    }
}
