//! What a turn knows of a Route's Secret without a read, and the reads.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use kube::Api;
use tokio::time::Instant;

use super::Reconciler;
use crate::{
    api::{
        route::{Route, TlsConfig},
        secret::Secret,
    },
    inject::{
        apply::ApplyError,
        facts::{HeldCertificate, Holding, ObjectRef, RouteFacts},
        index::Known,
        plan::SecretState,
        secret_reads::SecretRead,
    },
    kit::{
        call::{self, CallError},
        seeded::{self, Bug},
    },
    tls,
};

/// What is known without a read.
pub(super) enum Knowledge {
    /// This is the Route's Secret.
    Secret(SecretState),
    /// The Secret has to be read.
    SecretUnread,
    /// The same, but it can wait: an earlier judgement accepted it.
    SecretUnreadByOurRules,
    /// The Secret is what the Route holds; what that is worth has to be read off the Route.
    RouteUnread,
}

impl Reconciler {
    /// What can be said about the Route's Secret without a read.
    pub(super) fn known(&self, route: &RouteFacts) -> Knowledge {
        let Some(at) = route.deciding_secret() else {
            return Knowledge::Secret(SecretState::Missing { since: self.clock.now() });
        };
        if !self.watches().secrets_are_current(&at.namespace, Instant::now()) {
            return Knowledge::SecretUnread;
        }
        let known = self.index().known_secret(route, &at);
        let held = route.holding();
        match known {
            Known::Unread => Knowledge::SecretUnread,
            Known::UnreadByOurRules => Knowledge::SecretUnreadByOurRules,
            Known::State(SecretState::Missing { .. }) => {
                Knowledge::Secret(SecretState::Missing { since: self.missing_since(&at) })
            }
            Known::State(SecretState::Usable(pair)) => {
                let is_held = matches!(held, Holding::Certificate(held, _) if held == pair);
                match self.index().ca_problems(route, pair) {
                    None if is_held => Knowledge::RouteUnread,
                    None => Knowledge::SecretUnread,
                    Some(_) if is_held && route.certificate == HeldCertificate::Unread => {
                        Knowledge::RouteUnread
                    }
                    Some(problems) if problems.is_empty() => {
                        Knowledge::Secret(SecretState::Usable(pair))
                    }
                    Some(problems) => Knowledge::Secret(SecretState::CaMismatch(problems)),
                }
            }
            Known::State(_) if route.certificate == HeldCertificate::Unread => {
                Knowledge::RouteUnread
            }
            Known::State(unusable) => Knowledge::Secret(unusable),
        }
    }

    /// Whether a good pair gets on with the Route's own `caCertificate`; none where there is no pair.
    pub(super) async fn ca_problems(
        &self,
        route: &RouteFacts,
        read: Arc<SecretRead>,
        ca_certificate: String,
    ) -> Option<Box<[tls::Problem]>> {
        let fingerprint = read.pair.as_ref()?.pair.fingerprint();
        let work = move || {
            let certificate = read.pair.as_ref().map_or("", |read| read.pair.certificate());
            tls::ca_problems(certificate, &ca_certificate).into_boxed_slice()
        };
        let problems = self.judge.run(&route.at.namespace, work).await;
        self.index().ca_checked(route, fingerprint, problems.clone());
        Some(problems)
    }

    pub(super) async fn reread(&self, at: &ObjectRef) -> Result<Option<Route>, ApplyError> {
        let api: Api<Route> = Api::namespaced(self.client.clone(), &at.namespace);
        let route = call::bounded(api.get_opt(&at.name))
            .await
            .map_err(|cause| ApplyError::Read { route: at.clone(), cause })?;
        if let Some(route) = &route {
            self.index().route_read(RouteFacts::read(route), Instant::now());
        }
        Ok(route)
    }

    /// A consistent read: what is written is never decided from a cache alone.
    pub(super) async fn read_secret(
        &self,
        route: &RouteFacts,
    ) -> Result<Arc<SecretRead>, ApplyError> {
        let Some(at) = route.deciding_secret() else {
            return Ok(Arc::new(SecretRead::missing(self.clock.now(), Instant::now())));
        };
        let is_current = self.watches().secrets_are_current(&at.namespace, Instant::now());
        // News must reach us to end the use of a shared read.
        let after = self.share_after(route, &at).filter(|_| is_current);
        let read = self.read_secret_alone(route, &at);
        let found = match after {
            Some(after) => self.reads.share(&at, after, read).await?,
            None => read.await?,
        };
        let missing = || SecretRead::missing(self.missing_since(&at), Instant::now());
        Ok(found.unwrap_or_else(|| Arc::new(missing())))
    }

    /// From when on a read of others serves this Route, where others name the Secret too. Whoever
    /// changed the Secret and then the Route must not meet one from before that, and the end of a
    /// grace needs an answer of its own.
    fn share_after(&self, route: &RouteFacts, at: &ObjectRef) -> Option<Instant> {
        let index = self.index();
        let changed = index.share_after(&route.at, at)?;
        let grace = self.policy.missing_grace.to_std().unwrap_or_default();
        let grace_ended = index
            .missing_since(at)
            .and_then(|since| since.checked_add(grace))
            .filter(|ended| *ended <= Instant::now());
        Some(grace_ended.map_or(changed, |ended| changed.max(ended)))
    }

    async fn read_secret_alone(
        &self,
        route: &RouteFacts,
        at: &ObjectRef,
    ) -> Result<Option<Arc<SecretRead>>, ApplyError> {
        if seeded::has(Bug::ClearsFromCache)
            && self.index().known_secret(route, at) == Known::Unread
        {
            return Ok(None);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &at.namespace);
        let asked = Instant::now();
        let secret = match call::bounded(api.get_opt(&at.name)).await {
            Err(CallError::Server { .. }) if seeded::has(Bug::ClearsOnServerError) => None,
            other => other.map_err(|cause| ApplyError::Secret {
                route: route.at.clone(),
                secret: at.clone(),
                cause,
            })?,
        };
        let read = match secret {
            Some(secret) => {
                let work = move || SecretRead::judge(&secret, asked);
                Some(Arc::new(self.judge.run(&at.namespace, work).await))
            }
            None => None,
        };
        self.index().secret_read(at, read.as_deref(), asked, Instant::now());
        Ok(read)
    }

    /// From when the answer came: however long it took, it opens the grace, not ends it. Counted on
    /// the monotonic clock: one that is set back must not stretch the grace.
    pub(super) fn missing_since(&self, at: &ObjectRef) -> DateTime<Utc> {
        let missing_for = self.index().missing_since(at).map_or(Duration::ZERO, |at| at.elapsed());
        self.clock.now() - TimeDelta::from_std(missing_for).unwrap_or(TimeDelta::MAX)
    }
}

/// What is read of a Route in full: its facts, and what its own `caCertificate` says of its pair.
pub(super) fn examined(route: &Route) -> (RouteFacts, Box<[tls::Problem]>) {
    let text = |text: fn(&TlsConfig) -> Option<&String>| {
        route.spec.tls.as_ref().and_then(text).map(String::as_str).unwrap_or_default()
    };
    let certificate = text(|tls| tls.certificate.as_ref());
    let problems = tls::ca_problems(certificate, text(|tls| tls.ca_certificate.as_ref()));
    (RouteFacts::read_whole(route), problems.into())
}
