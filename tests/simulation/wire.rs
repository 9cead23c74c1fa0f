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
    cluster::Cluster,
    faults::{Moment, Watched},
    journal::{Actor, Target},
};

#[derive(Clone)]
pub struct Wire<T> {
    pub cluster: Arc<Cluster>,
    pub replica: usize,
    pub life: u32,
    /// What is sent by whoever leads, or by every replica.
    pub sender: Sender,
    pub tamper: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Leader,
    /// Notes uses of JoinTokens, and publishes Events of them.
    JoinService,
}

impl Sender {
    fn needs_lease(self, target: &Target) -> bool {
        let is_of_joins = ["jointokens", "events"].iter().any(|it| target.is_about(it));
        self == Self::Leader || !is_of_joins
    }
}

/// Seeded bugs without a failpoint in the product's code: changed requests and answers make the
/// controller behave as if it had them.
pub trait Tamper: Clone + Send + Sync + 'static {
    /// Changes the body of a write, or splits it.
    fn bodies(&self, method: &Method, target: &Target, body: &Bytes) -> Vec<Bytes>;

    /// Changes the body of an answer.
    fn answer(&self, target: &Target, body: Bytes) -> Bytes;

    /// Changes an event of a watch; empty to drop it.
    fn event(&self, target: &Target, event: Bytes) -> Bytes;

    /// Called when a request leaves: a chance to look at the process that sends it.
    fn sent(&self) {}
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
        let all = [Watched::Routes, Watched::Secrets, Watched::Federations, Watched::Tokens];
        let about = all.into_iter().find(|it| self.target.is_about(it.resource()));
        about.expect("nothing else is watched")
    }
}

impl<T: Tamper> FaultPlan for Wire<T> {
    type Call = SentCall;

    fn send(&self, request: &Parts) -> Option<(SentCall, RequestFaults)> {
        if !self.cluster.is_alive(self.replica, self.life) {
            return None;
        }
        self.tamper.sent();
        let target = Target::of(request.uri.path(), request.uri.query().unwrap_or_default());
        let number = self.cluster.count_call(self.replica);
        let now = Instant::now();
        let faults =
            self.cluster.faults().on_call(self.replica, number, &request.method, &target, now);
        if faults.crash == Some(Moment::BeforeSend) {
            self.cluster.crash(self.replica);
            return None;
        }
        let number =
            self.cluster.record_sent(self.actor(), &request.method, request.uri.path(), &target);
        if self.sender.needs_lease(&target) {
            self.cluster.check_lease(number);
        }
        Some((SentCall { number, target, lagging: faults.lagging }, faults.request))
    }

    fn latency(&self) -> (Duration, Duration) {
        self.cluster.latency()
    }

    fn refuse_arrived(&self, call: &SentCall, request: &Parts) -> Option<u16> {
        (call.target.watch && self.cluster.refuses_lost_version(&request.uri)).then_some(410)
    }

    fn serve(&self, call: &SentCall, request: &Parts, body: &Bytes) -> Response<Body> {
        let mut bodies = match request.method {
            Method::GET => vec![body.clone()],
            _ => self.tamper.bodies(&request.method, &call.target, body),
        };
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
        self.cluster.crash(self.replica);
    }

    fn answered(&self, call: &SentCall, code: u16, body: &Bytes) {
        self.cluster.record_answered(call.number, code, body);
    }

    fn event_fault(&self, call: &SentCall, event: &[u8]) -> EventFault {
        let mut faults = self.cluster.faults();
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
            Watched::Routes | Watched::Federations | Watched::Tokens => {
                event["object"]["spec"] = json!("what is this");
            }
            Watched::Secrets => event["object"]["metadata"]["uid"] = json!(7),
        }
        if event["type"] != "BOOKMARK" {
            self.cluster.record_undecodable(watched, &event["object"]);
        }
    }

    fn rewrite_answer(&self, call: &SentCall, body: Bytes) -> Bytes {
        self.tamper.answer(&call.target, body)
    }

    fn rewrite_event(&self, call: &SentCall, event: Bytes) -> Bytes {
        self.tamper.event(&call.target, event)
    }
}

impl<T: Tamper> Wire<T> {
    fn actor(&self) -> Actor {
        Actor::Ours { replica: self.replica, life: self.life }
    }

    fn serve_one(&self, call: &SentCall, request: &Parts, body: Bytes) -> Response<Body> {
        let request = Request::from_parts(request.clone(), kube::client::Body::from(body));
        let mut server = self.cluster.server_for(call.lagging);
        let answer = self.cluster.watch_commits(self.actor(), call.number, || {
            server.call(request).now_or_never().expect("the sandbox answers at once")
        });
        answer.unwrap_or_else(|never| match never {})
    }
}
