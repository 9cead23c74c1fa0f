//! Knowledge of a Route's Secret without a read, and the reads.

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
        cache::{index::KnownSecret, secret_reads::SecretRead},
        decide::{
            apply_error::ApplyError,
            facts::{Holding, RouteFacts},
            secret_state::SecretState,
        },
    },
    k8s::{
        api_error::{self, ApiError},
        object_ref::ObjectRef,
    },
    runtime::failpoints::{self, Bug},
    tls::{self, Fingerprint},
};

pub(super) enum Knowledge {
    Secret(SecretState),
    SecretUnread,
    /// The same, but it can wait: an earlier judgement accepted it.
    SecretUnreadByOurRules,
    /// The Route holds the Secret's pair; whether it matches the Route's own `caCertificate` has to be
    /// read off the Route.
    CaUnchecked,
}

impl Reconciler {
    pub(super) fn knowledge(&self, route: &RouteFacts) -> Knowledge {
        let Some(at) = route.deciding_secret() else {
            return Knowledge::Secret(SecretState::Missing { since: self.clock.now() });
        };
        if !self.watch_health().secrets_are_current(&at.namespace, Instant::now()) {
            return Knowledge::SecretUnread;
        }
        let known = self.index().known_secret(route, &at);
        let state = match known {
            KnownSecret::Unread => return Knowledge::SecretUnread,
            KnownSecret::UnreadByOurRules => return Knowledge::SecretUnreadByOurRules,
            KnownSecret::State(SecretState::Missing { .. }) => {
                SecretState::Missing { since: self.missing_since(&at) }
            }
            KnownSecret::State(state) => state,
        };
        let Some((pair, is_held)) = pair_to_check(route, &state) else {
            return Knowledge::Secret(state);
        };
        match self.index().ca_problems(route, pair) {
            None if is_held => Knowledge::CaUnchecked,
            None => Knowledge::SecretUnread,
            Some(problems) if problems.is_empty() => Knowledge::Secret(state),
            Some(problems) => Knowledge::Secret(SecretState::CaMismatch(problems)),
        }
    }

    /// Reads the Route in full, and checks the pair in it with its own `caCertificate`.
    pub(super) async fn check_ca(
        &self,
        route: &RouteFacts,
    ) -> Result<Option<RouteFacts>, ApplyError> {
        let Some((facts, problems)) = self.examine(route).await? else { return Ok(None) };
        if let Holding::Certificate(pair, _) = facts.holding() {
            self.index().ca_checked(&facts, pair, problems);
        }
        Ok(Some(facts))
    }

    /// Reads the Route for what is too long for the watch: its certificate, and what its own
    /// `caCertificate` says of that.
    pub(super) async fn examine(
        &self,
        route: &RouteFacts,
    ) -> Result<Option<(RouteFacts, Box<[tls::Problem]>)>, ApplyError> {
        let Some(reread) = self.reread(&route.at).await? else { return Ok(None) };
        let now = self.clock.now();
        let work = move || {
            let text = |text: fn(&TlsConfig) -> Option<&String>| {
                reread.spec.tls.as_ref().and_then(text).map(String::as_str).unwrap_or_default()
            };
            let certificate = text(|tls| tls.certificate.as_ref());
            let problems =
                tls::ca_problems(certificate, text(|tls| tls.ca_certificate.as_ref()), now);
            (RouteFacts::read_whole(&reread), problems.into_boxed_slice())
        };
        let examined = self.judge.run(&route.at.namespace, work).await;
        self.index().route_read(examined.0.clone(), Instant::now());
        Ok(Some(examined))
    }

    /// Why the Route's own `caCertificate` does not match the Secret's pair; none if there is no pair
    /// to check.
    pub(super) async fn ca_problems(
        &self,
        route: &RouteFacts,
        read: &Arc<SecretRead>,
        tls: Option<TlsConfig>,
    ) -> Option<Box<[tls::Problem]>> {
        let (pair, _) = pair_to_check(route, &read.state)?;
        let known = self.index().ca_problems(route, pair);
        if known.is_some() {
            return known;
        }
        let (tls, read, now) = (tls.unwrap_or_default(), read.clone(), self.clock.now());
        let work = move || {
            let held = tls.certificate.as_deref().unwrap_or_default();
            let certificate = read.pair.as_ref().map_or(held, |read| read.pair.certificate());
            let ca_certificate = tls.ca_certificate.as_deref().unwrap_or_default();
            tls::ca_problems(certificate, ca_certificate, now).into_boxed_slice()
        };
        let problems = self.judge.run(&route.at.namespace, work).await;
        self.index().ca_checked(route, pair, problems.clone());
        Some(problems)
    }

    pub(super) async fn reread(&self, at: &ObjectRef) -> Result<Option<Route>, ApplyError> {
        let _permit = self.judge.read_permit(&at.namespace).await;
        let api: Api<Route> = Api::namespaced(self.client.clone(), &at.namespace);
        let route = api_error::with_timeout(api.get_opt(&at.name))
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
            return Ok(Arc::new(SecretRead::missing(self.clock.now())));
        };
        let is_current = self.watch_health().secrets_are_current(&at.namespace, Instant::now());
        // News must reach us to end the use of a shared read.
        let after = self.share_after(route, &at).filter(|_| is_current);
        let read = self.read_secret_alone(route, &at);
        let found = match after {
            Some(after) => self.reads.share(&at, after, read).await?,
            None => read.await?,
        };
        let missing = || SecretRead::missing(self.missing_since(&at));
        Ok(found.unwrap_or_else(|| Arc::new(missing())))
    }

    /// From when on a read for other Routes serves this one, if others name the Secret too. A user
    /// may have changed the Secret and then the Route, so the read has to be newer than the Route;
    /// the end of a grace needs a read of its own.
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
        if failpoints::has(Bug::ClearsFromCache)
            && self.index().known_secret(route, at) == KnownSecret::Unread
        {
            return Ok(None);
        }
        let permit = self.judge.read_permit(&at.namespace).await;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &at.namespace);
        let asked = Instant::now();
        let secret = match api_error::with_timeout(api.get_opt(&at.name)).await {
            Err(ApiError::Server { .. }) if failpoints::has(Bug::ClearsOnServerError) => None,
            other => other.map_err(|cause| ApplyError::Secret {
                route: route.at.clone(),
                secret: at.clone(),
                cause,
            })?,
        };
        let mut read = None;
        if let Some(secret) = secret {
            let work = move || SecretRead::judge(&secret);
            read = Some(Arc::new(self.judge.run(&at.namespace, work).await));
        }
        drop(permit);
        self.index().secret_read(at, read.as_deref(), asked, Instant::now());
        Ok(read)
    }

    /// Counted from the answer, which opens the grace however long it took, and on the monotonic
    /// clock: one that is set back must not stretch the grace.
    pub(super) fn missing_since(&self, at: &ObjectRef) -> DateTime<Utc> {
        let missing_for = self.index().missing_since(at).map_or(Duration::ZERO, |at| at.elapsed());
        self.clock.now() - TimeDelta::from_std(missing_for).unwrap_or(TimeDelta::MAX)
    }
}

/// The pair to compare with the Route's own `caCertificate`, and whether the Route holds it: a usable
/// one, or one that our rules refuse and that stays because it is there already.
fn pair_to_check(route: &RouteFacts, state: &SecretState) -> Option<(Fingerprint, bool)> {
    let held = route.holding();
    match state {
        SecretState::Usable(pair) => Some((*pair, held.pair() == Some(*pair))),
        SecretState::Invalid { pair: Some(pair), .. } if held.is_ours(*pair) => Some((*pair, true)),
        _ => None,
    }
}
