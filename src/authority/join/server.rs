//! The service that others join with: gRPC over TLS, one method.
//!
//! Callers are unknown until their SVID is verified, so everything that they can make us hold is bounded:
//! connections, streams, the size of messages, the time that they may be silent, records and Events.

mod admission;
mod answer;
mod connections;
mod conversation;
mod follow;
mod limits;
mod open_connections;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt as _, TryStreamExt as _, future, stream::BoxStream};
use kube::Client;
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    messages::{Request, Response},
    view::View,
};
use crate::{
    authority::{
        act::apply::Writer,
        decide::join_audit::{JoinRecord, RefusalSums},
        metrics::Metrics,
    },
    k8s::events::{Message, Publisher, Reported},
    names::AUTHORITY_REPORTER,
    runtime::{
        audit_log::AuditLog,
        clock::Clock,
        lock::lock,
        tls_listener::{CertReloader, PeerAddress, TlsListener},
    },
    spiffe::id::TrustDomain,
};
use answer::Answer;
use limits::{Limits, StreamSlot};
use open_connections::OpenStream;

/// How often sums of refusals are reported.
const SUMS_EVERY: Duration = Duration::from_secs(60);
/// Events that wait to be published. More are dropped; the audit log has every join.
const MOST_EVENTS: usize = 256;

#[derive(Clone)]
pub struct JoinOptions {
    /// None where nobody connects, as in the fault simulator.
    pub listen: Option<SocketAddr>,
    /// Without the lease's gate: every replica serves joins, and notes their uses.
    pub client: Client,
    /// None to serve TLS with our own SVID.
    pub certificate: Option<Arc<CertReloader>>,
    pub peers: PeerAddress,
}

pub struct JoinService {
    trust_domain: TrustDomain,
    clock: Clock,
    view: Arc<View>,
    writer: Writer,
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    publisher: Publisher,
    /// To the task that publishes.
    events: mpsc::Sender<Message>,
    waiting_events: Mutex<Option<mpsc::Receiver<Message>>>,
    refusals: Mutex<RefusalSums>,
    limits: Limits,
    stop: CancellationToken,
}

/// What the service shares with the controller.
pub struct Parts {
    pub trust_domain: TrustDomain,
    pub namespace: String,
    /// Our name in Events.
    pub instance: String,
    pub clock: Clock,
    pub view: Arc<View>,
    pub audit: Arc<AuditLog>,
    pub metrics: Arc<Metrics>,
    pub stop: CancellationToken,
}

impl JoinService {
    pub fn new(options: &JoinOptions, parts: Parts) -> Arc<Self> {
        let Parts { trust_domain, namespace, instance, clock, view, audit, metrics, stop } = parts;
        let client = options.client.clone();
        let publisher = Publisher::new(client.clone(), clock.clone(), AUTHORITY_REPORTER, instance);
        let (events, waiting) = mpsc::channel(MOST_EVENTS);
        Arc::new(Self {
            writer: Writer::new(client, namespace),
            limits: Limits::new(options.peers),
            refusals: Mutex::default(),
            waiting_events: Mutex::new(Some(waiting)),
            trust_domain,
            clock,
            view,
            audit,
            metrics,
            publisher,
            events,
            stop,
        })
    }

    /// Serves until asked to stop. Joins under way get a moment, followers are sent elsewhere.
    ///
    /// Without a listener there is only `answer`.
    pub async fn run(self: Arc<Self>, listener: Option<TlsListener>) {
        let serving = async {
            match listener {
                Some(listener) => connections::serve(self.clone(), listener).await,
                None => self.stop.cancelled().await,
            }
        };
        tokio::select! {
            () = serving => {}
            () = self.report() => {}
        }
        let rest = lock(&self.refusals).take_all(self.clock.now());
        for record in &rest {
            self.record(record);
        }
    }

    /// Answers a client at this address, whose messages did not come over a connection of ours.
    pub fn answer(
        self: &Arc<Self>,
        address: IpAddr,
        requests: impl Stream<Item = Result<Request, Status>> + Send + 'static,
    ) -> Result<Answers, Status> {
        let answers = conversation::start(self, requests, Peer { address }, None)?;
        Ok(answers.map_ok(Answer::into_response).boxed())
    }

    /// Publishes Events and sums of refusals, for ever.
    async fn report(&self) {
        let Some(mut waiting) = lock(&self.waiting_events).take() else {
            return future::pending().await;
        };
        let mut minutes = tokio::time::interval(SUMS_EVERY);
        minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = minutes.tick() => self.report_sums().await,
                Some(message) = waiting.recv() => {
                    if let Err(error) = self.publisher.publish(&message).await {
                        tracing::warn!(%error, "Event not published");
                    }
                }
            }
        }
    }

    async fn report_sums(&self) {
        let (records, tokens) = {
            let mut refusals = lock(&self.refusals);
            (refusals.take(self.clock.now()), refusals.take_tokens())
        };
        for record in &records {
            self.record(record);
        }
        for (name, checks) in tokens {
            let Some(known) = self.view.token(&name) else { continue };
            let counts: Vec<_> =
                checks.iter().map(|(check, count)| format!("{check}: {count}")).collect();
            let message = Message {
                regarding: known.token.reference(),
                kind: "Warning",
                reason: "JoinsRefused",
                action: "Join",
                note: format!(
                    "Joins were refused in the last minute, by failed check: {}. The audit log has the reasons",
                    counts.join(", ")
                ),
                topic: Some("refused".to_owned()),
            };
            if let Err(error) = self.publisher.publish_ongoing(&message, Reported::NotYet).await {
                tracing::warn!(%error, "Event not published");
            }
        }
    }

    /// Whether it was written.
    fn record(&self, record: &JoinRecord) -> bool {
        let written = self.audit.write(record);
        if let Err(error) = &written {
            tracing::error!(%error, event = record.event, "the audit log can't be written");
        }
        written.is_ok()
    }

    fn publish(&self, message: Message) {
        if self.events.try_send(message).is_err() {
            tracing::debug!("Event dropped: too many wait");
        }
    }
}

type Requests = BoxStream<'static, Result<Request, Status>>;
pub type Answers = BoxStream<'static, Result<Response, Status>>;

/// What a stream holds for as long as it lasts.
struct Held {
    slot: StreamSlot,
    stream: Option<OpenStream>,
}

fn second_try() -> Status {
    Status::invalid_argument("one stream is one try: nothing comes after challenge_solution")
}

/// The other side of a connection.
#[derive(Clone, Copy, Debug)]
struct Peer {
    address: IpAddr,
}

#[cfg(test)]
mod tests;
