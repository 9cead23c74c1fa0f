//! What a reconcile reports: status, Events and the log.

use super::Federator;
use crate::{
    api::spire_server::{FederationStatus, PeerStatus, SpireFetch, SpireServer, SpireServerStatus},
    federate::{
        act::effective::Effective,
        decide::{
            conditions::{self, ApplyResult, ConditionValue, Findings},
            last_valid, own_endpoint,
            render::Component,
            spire_fetches,
        },
    },
    k8s::{
        api_error::ApiError,
        events::{Message, Reported},
    },
    runtime::lock::lock,
};

/// The condition that tells whether the server's Pod runs.
const SERVER_RUNS: &str = "StatefulSetAvailable";

impl Federator {
    pub(super) async fn report(
        &self,
        server: &SpireServer,
        findings: &Findings,
    ) -> Result<(), ApiError> {
        let federation = self.federation_status(server, findings);
        let peers = federation.as_ref().map(|it| it.peers.clone()).unwrap_or_default();
        let endpoint = self.poll_own_endpoint(server, findings, federation.as_ref());
        let findings = &Findings { peers, endpoint, ..findings.clone() };
        let values = conditions::evaluate(server, findings);
        self.log(&values);
        let existing = &server.status;
        let generation = server.metadata.generation.unwrap_or_default();
        let now = self.clock.now();
        let status = SpireServerStatus {
            conditions: conditions::stamped(&existing.conditions, &values, generation, now),
            federation,
            last_valid_spec: last_valid_spec(server, findings),
        };
        // The next reconcile finds the updated objects in place, and can't report the updates any more.
        let events = updates(server, findings).chain(recoveries(server, &findings.peers));
        let published = self.publish(events).await;
        if status != *existing {
            self.writer.write_status(server, &status).await?;
        }
        self.warn(server, &values, &findings.peers).await.and(published)
    }

    /// Writes to the status which spec the ConfigMap is about to have.
    pub(super) async fn announce(&self, effective: &mut Effective) -> Result<(), ApiError> {
        let server = &effective.server;
        // The last valid spec is announced already.
        let new = last_valid::announced(server).filter(|_| effective.problems.is_empty());
        let Some(new) = new else { return Ok(()) };
        let status = SpireServerStatus { last_valid_spec: Some(new), ..server.status.clone() };
        let written = self.writer.write_status(server, &status).await?;
        effective.server.metadata.resource_version = written.metadata.resource_version;
        effective.server.status = status;
        Ok(())
    }

    /// A finalizer can keep a deleted SpireServer for ever. Nothing is reconciled then, so it must not look
    /// ready.
    pub(super) async fn report_deletion(&self, server: &SpireServer) -> Result<(), ApiError> {
        let verdict = conditions::deleting(server);
        let generation = server.metadata.generation.unwrap_or_default();
        let existing = &server.status;
        let conditions =
            conditions::with(&existing.conditions, &verdict, generation, self.clock.now());
        let status = SpireServerStatus { conditions, ..existing.clone() };
        if status != *existing {
            self.writer.write_status(server, &status).await?;
        }
        self.log(std::slice::from_ref(&verdict));
        let message = message(server, ("Warning", verdict.reason, "Reconcile"), verdict.message);
        self.publisher.publish_ongoing(&message, Reported::NotYet).await?;
        Ok(())
    }

    /// Polls our own endpoint where possible. Returns what is known of it.
    fn poll_own_endpoint(
        &self,
        server: &SpireServer,
        findings: &Findings,
        federation: Option<&FederationStatus>,
    ) -> Option<own_endpoint::EndpointView> {
        let url = federation.and_then(|it| it.endpoint_url.as_deref());
        let plan = match findings.is_rendered() {
            true => own_endpoint::plan(server, findings, url),
            false => own_endpoint::EndpointPlan::Keep,
        };
        self.own_endpoint.follow(plan, url)
    }

    pub(super) fn federation_status(
        &self,
        server: &SpireServer,
        findings: &Findings,
    ) -> Option<FederationStatus> {
        let federation = server.spec.federation.as_ref()?;
        let existing = server.status.federation.as_ref();
        let reported = server.status.peers();
        let ours: Vec<_> = reported.iter().map(spire_fetches::without_answer).collect();
        let peers = self.peers.statuses(&federation.federates_with, &ours);
        let with_spire = |peer: PeerStatus| {
            let reported = reported.iter().find(|it| it.trust_domain == peer.trust_domain);
            let answer = self.server_metrics.answer(&peer.trust_domain);
            spire_fetches::with_answer(peer, reported, answer)
        };
        let peers: Vec<_> = peers.into_iter().map(with_spire).collect();
        let url = existing.and_then(|it| it.endpoint_url.clone());
        Some(FederationStatus {
            endpoint_url: findings.endpoint_url(federation, url),
            peers_summary: (!peers.is_empty()).then(|| conditions::summary(&peers)),
            peers,
        })
    }

    /// Logs a condition when it turns False, and when it recovers.
    fn log(&self, values: &[ConditionValue]) {
        let mut logged = lock(&self.logged);
        for ConditionValue { about, status, reason, message } in
            values.iter().filter(|it| !logged.contains(it))
        {
            let was_wrong = logged.iter().any(|it| it.about == *about && it.status == "False");
            match *status {
                "False" if !message.is_empty() => {
                    tracing::warn!(condition = about, reason, "{message}")
                }
                "True" if was_wrong => {
                    tracing::info!(condition = about, reason, "condition recovered")
                }
                _ => {}
            }
        }
        *logged = values.to_vec();
    }

    /// Publishes all Events, and returns the first error.
    pub(super) async fn publish(
        &self,
        events: impl Iterator<Item = Message>,
    ) -> Result<(), ApiError> {
        let mut published = Ok(());
        for message in events {
            published = published.and(self.publisher.publish(&message).await);
        }
        published
    }

    pub(super) async fn warn(
        &self,
        server: &SpireServer,
        values: &[ConditionValue],
        peers: &[PeerStatus],
    ) -> Result<(), ApiError> {
        for message in self.warnings(server, values, peers) {
            self.publisher.publish_ongoing(&message, Reported::NotYet).await?;
        }
        self.publisher.forget_old();
        Ok(())
    }

    fn warnings(
        &self,
        server: &SpireServer,
        values: &[ConditionValue],
        peers: &[PeerStatus],
    ) -> Vec<Message> {
        let warning = |reason, action, note, topic: Option<String>| Message {
            topic,
            ..message(server, ("Warning", reason, action), note)
        };
        let runs = values.iter().any(|it| it.about == SERVER_RUNS && it.status == "True");
        let wrong = |it: &&ConditionValue| it.status == "False" && !it.message.is_empty();
        let worth = |it: &&ConditionValue| match it.about {
            "Ready" | SERVER_RUNS | conditions::PEERS => false,
            // Nothing can answer there before the server runs.
            conditions::ENDPOINT => runs,
            _ => true,
        };
        let of_conditions = values.iter().filter(wrong).filter(worth).map(|it| {
            // The text depends on whatever answers at our endpoint.
            let topic = (it.about == conditions::ENDPOINT).then(|| it.reason.to_owned());
            warning(it.reason, "Reconcile", it.message.clone(), topic)
        });
        let withheld = self.options.setting.proxy.withheld();
        let of_proxy = withheld.map(|note| warning("ProxyWithheld", "Render", note, None));
        // If we can't fetch a bundle either, that is reported already.
        let spire_alone = |it: &&PeerStatus| {
            it.spire_fetch == Some(SpireFetch::Failing) && it.last_error.is_none()
        };
        let of_spire = peers.iter().filter(spire_alone).map(|it| {
            let detail = it.spire_detail.as_deref().unwrap_or_default();
            let note = format!("{}: {detail}", it.trust_domain);
            let topic = Some(it.trust_domain.clone());
            warning(conditions::SPIRE_CANNOT_FETCH, "Fetch", note, topic)
        });
        let of_errors = self.peers.failing().into_iter().map(|(trust_domain, error)| {
            // One Event per peer: peers that come and go must not repeat the Events of others. And a
            // peer may choose a new text each time.
            let topic = Some(format!("{trust_domain} {}", error.topic()));
            warning(conditions::UNREACHABLE, "Fetch", format!("{trust_domain}: {error}"), topic)
        });
        let of_peers = self.peers.warnings().into_iter().map(|(trust_domain, odd)| {
            // The peer chooses the numbers in its text.
            let topic = Some(trust_domain.clone());
            warning(odd.reason(), "Fetch", format!("{trust_domain}: {odd}"), topic)
        });
        let all = of_conditions.chain(of_proxy).chain(of_spire).chain(of_errors).chain(of_peers);
        all.collect()
    }
}

fn updates(server: &SpireServer, findings: &Findings) -> impl Iterator<Item = Message> {
    findings.outcomes.iter().filter_map(move |(part, outcome)| match outcome {
        // If only our own annotations changed, there is nothing to report.
        ApplyResult::Updated(fields, _) if !fields.is_empty() => {
            let fields = fields.join(", ");
            let note = format!("{part:?} was made what the SpireServer asks for: {fields}");
            Some(message(server, ("Normal", "Updated", "Update"), note))
        }
        _ => None,
    })
}

/// One Event for each peer that the status reported as failing, and that is fine now.
pub(super) fn recoveries(
    server: &SpireServer,
    peers: &[PeerStatus],
) -> impl Iterator<Item = Message> {
    let was_wrong = |peer: &&PeerStatus| {
        let mut before = server.status.peers().iter();
        before.any(|it| it.trust_domain == peer.trust_domain && conditions::is_wrong(it))
    };
    let recovered = peers.iter().filter(|it| conditions::is_well(it)).filter(was_wrong);
    recovered.map(|peer| {
        let note = format!("{}: all is well, its bundle is fetched", peer.trust_domain);
        message(server, ("Normal", conditions::PEERS, "Fetch"), note)
    })
}

/// A digest of what was rendered last, once the ConfigMap has it.
fn last_valid_spec(server: &SpireServer, findings: &Findings) -> Option<String> {
    match findings.outcome(Component::ServerConfigMap) {
        Some(outcome) if outcome.is_as_rendered() => last_valid::digest(&server.spec),
        _ => server.status.last_valid_spec.clone(),
    }
}

/// An Event of this kind, reason and action.
fn message(
    server: &SpireServer,
    (kind, reason, action): (&'static str, &'static str, &'static str),
    note: String,
) -> Message {
    Message { regarding: server.reference(), kind, reason, action, note, topic: None }
}
