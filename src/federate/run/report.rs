//! What a reconcile reports: status, Events and the log.

use super::Federator;
use crate::{
    api::spire_server::{FederationStatus, PeerStatus, SpireFetch, SpireServer, SpireServerStatus},
    federate::decide::{
        conditions::{self, ApplyResult, ConditionValue, Findings},
        last_valid, own_endpoint,
        render::Component,
        spire_fetches,
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
        let standing = &server.status;
        let generation = server.metadata.generation.unwrap_or_default();
        let now = self.clock.now();
        let status = SpireServerStatus {
            conditions: conditions::stamped(&standing.conditions, &values, generation, now),
            federation,
            last_valid_spec: last_valid_spec(server, findings),
        };
        // The next reconcile finds the updated objects in place, and can't report the updates any more.
        let published = self.report_updates(server, findings).await;
        let published = published.and(self.report_recoveries(server, &findings.peers).await);
        if status != *standing {
            self.writer.write_status(server, &status).await?;
        }
        self.warn(server, &values, &findings.peers).await.and(published)
    }

    /// A finalizer can keep a deleted SpireServer for ever. Nothing is reconciled then, so it must not look
    /// ready.
    pub(super) async fn report_deletion(&self, server: &SpireServer) -> Result<(), ApiError> {
        let verdict = conditions::deleting(server);
        let generation = server.metadata.generation.unwrap_or_default();
        let standing = &server.status;
        let conditions =
            conditions::with(&standing.conditions, &verdict, generation, self.clock.now());
        let status = SpireServerStatus { conditions, ..standing.clone() };
        if status != *standing {
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
        let standing = server.status.federation.as_ref();
        let told = standing.map(|it| &*it.peers).unwrap_or_default();
        let ours: Vec<_> = told.iter().map(spire_fetches::without_answer).collect();
        let peers = self.peers.statuses(&federation.federates_with, &ours);
        let with_spire = |peer: PeerStatus| {
            let told = told.iter().find(|it| it.trust_domain == peer.trust_domain);
            let answer = self.server_metrics.answer(&peer.trust_domain);
            spire_fetches::with_answer(peer, told, answer)
        };
        let peers: Vec<_> = peers.into_iter().map(with_spire).collect();
        let url = standing.and_then(|it| it.endpoint_url.clone());
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

    async fn report_updates(
        &self,
        server: &SpireServer,
        findings: &Findings,
    ) -> Result<(), ApiError> {
        let mut published = Ok(());
        for (part, outcome) in &findings.outcomes {
            // Only our own annotations changed: nothing to report.
            if let ApplyResult::Updated(fields, _) = outcome
                && !fields.is_empty()
            {
                let fields = fields.join(", ");
                let note = format!("{part:?} was made what the SpireServer asks for: {fields}");
                let message = message(server, ("Normal", "Updated", "Update"), note);
                published = published.and(self.publisher.publish(&message).await);
            }
        }
        published
    }

    /// One Event for each peer that the status reported as failing, and that is fine now.
    pub(super) async fn report_recoveries(
        &self,
        server: &SpireServer,
        peers: &[PeerStatus],
    ) -> Result<(), ApiError> {
        let standing = server.status.federation.as_ref().map(|it| &*it.peers).unwrap_or_default();
        let was_wrong = |peer: &&PeerStatus| {
            let before = standing.iter().find(|it| it.trust_domain == peer.trust_domain);
            before.is_some_and(conditions::is_wrong)
        };
        let mut published = Ok(());
        for peer in peers.iter().filter(|it| conditions::is_well(it)).filter(was_wrong) {
            let note = format!("{}: all is well, its bundle is fetched", peer.trust_domain);
            let message = message(server, ("Normal", conditions::PEERS, "Fetch"), note);
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
        let runs = values.iter().any(|it| it.about == SERVER_RUNS && it.status == "True");
        let wrong = |it: &&ConditionValue| it.status == "False" && !it.message.is_empty();
        let worth = |it: &&ConditionValue| match it.about {
            "Ready" | SERVER_RUNS | conditions::PEERS => false,
            // Nothing can answer there before the server runs.
            conditions::ENDPOINT => runs,
            _ => true,
        };
        for value in values.iter().filter(wrong).filter(worth) {
            let about = ("Warning", value.reason, "Reconcile");
            let message = message(server, about, value.message.clone());
            // The text depends on whatever answers at our endpoint.
            let topic = (value.about == conditions::ENDPOINT).then(|| value.reason.to_owned());
            self.publisher.publish_ongoing(&Message { topic, ..message }, Reported::NotYet).await?;
        }
        if let Some(note) = self.options.setting.proxy.withheld() {
            let message = message(server, ("Warning", "ProxyWithheld", "Render"), note);
            self.publisher.publish_ongoing(&message, Reported::NotYet).await?;
        }
        // If we can't fetch a bundle either, that is reported already.
        let spire_alone = |it: &&PeerStatus| {
            it.spire_fetch == Some(SpireFetch::Failing) && it.last_error.is_none()
        };
        for PeerStatus { trust_domain, spire_detail, .. } in peers.iter().filter(spire_alone) {
            let note = format!("{trust_domain}: {}", spire_detail.as_deref().unwrap_or_default());
            let about = ("Warning", conditions::SPIRE_CANNOT_FETCH, "Fetch");
            let topic = Some(trust_domain.clone());
            let message = Message { topic, ..message(server, about, note) };
            self.publisher.publish_ongoing(&message, Reported::NotYet).await?;
        }
        for (trust_domain, error) in self.peers.failing() {
            // One Event per peer: peers that come and go must not repeat the Events of others. And a peer may
            // choose a new text each time.
            let topic = Some(format!("{trust_domain} {}", error.topic()));
            let about = ("Warning", conditions::UNREACHABLE, "Fetch");
            let message = message(server, about, format!("{trust_domain}: {error}"));
            self.publisher.publish_ongoing(&Message { topic, ..message }, Reported::NotYet).await?;
        }
        for (trust_domain, warning) in self.peers.warnings() {
            // The peer chooses the numbers in its text.
            let topic = Some(trust_domain.clone());
            let about = ("Warning", warning.reason(), "Fetch");
            let message = message(server, about, format!("{trust_domain}: {warning}"));
            self.publisher.publish_ongoing(&Message { topic, ..message }, Reported::NotYet).await?;
        }
        self.publisher.forget_old();
        Ok(())
    }
}

/// A digest of what was rendered last, once the ConfigMap has it.
fn last_valid_spec(server: &SpireServer, findings: &Findings) -> Option<String> {
    match findings.outcome(Component::ServerConfigMap) {
        Some(ApplyResult::Created | ApplyResult::Updated(..) | ApplyResult::InPlace(_)) => {
            last_valid::digest(&server.spec)
        }
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
