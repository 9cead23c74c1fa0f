//! Asks our own bundle endpoint as a peer would: by its public address and by its profile.
//!
//! That a Route was admitted says nothing of what answers there. The leader asks, as often as peers are
//! asked to.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use rustls::RootCertStore;
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    api::spire_server::{Profile, SpireServer},
    bundle::fetch::{self, Endpoint, FetchError, Trust},
    federate::{
        act::peers,
        cache::bundle_cache,
        decide::{
            conditions::{self, Findings, Outcome},
            render::Component,
            validate,
        },
    },
    k8s::gate::Gate,
    runtime::clock::Clock,
    spiffe::{bundle::Bundle, id::SpiffeId},
};

/// As peers with the shortest refresh interval are asked.
const AFTER_A_FAILURE: Duration = Duration::from_secs(15);
/// As SPIRE has it.
const TRIES_PER_REFRESH_HINT: u32 = 4;
const NO_BUNDLE: &str = "the SPIRE server has not published its bundle yet: ConfigMap spire-bundle has no bundle.crt. Is the server running?";
const NO_ROUTER: &str = "no router has admitted its Route yet";

/// What to ask, and by what to know who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: String,
    profile: Profile,
    trust_domain: String,
    /// What the SPIRE server published, in PEM.
    published: Option<String>,
    /// How often peers are to ask.
    hint: Duration,
}

/// What is known of the endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// It can't be asked yet.
    Waiting(&'static str),
    /// It is about to be asked there.
    NotYet(String),
    /// It was asked there.
    PollTarget(String, Result<(), EndpointError>),
}

/// What a peer would have met.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EndpointError {
    /// Its address can't be one, or what was published is no bundle.
    #[error("{0}")]
    Unusable(String),
    /// https_spiffe: somebody else's certificate.
    #[error(
        "what answers there does not prove to be the SPIRE server of {0} with an authority of ConfigMap spire-bundle. Does the router pass TLS through, and to this server?"
    )]
    Stranger(String),
    /// Another trust domain's bundle, or an old one.
    #[error(
        "the bundle there has none of the authorities that the SPIRE server published in ConfigMap spire-bundle. Does something else answer there?"
    )]
    Foreign,
    /// A fault of ours.
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    /// There is no bundle.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl EndpointError {
    /// Whether peers meet the same. A Pod may have no way to its own cluster's public address, and a CA
    /// that is unknown in here may be known to peers.
    pub fn is_conclusive(&self) -> bool {
        match self {
            Self::Fetch(FetchError::UnknownCa) | Self::Panicked => false,
            Self::Fetch(error) => error.reached(),
            Self::Unusable(_) | Self::Stranger(_) | Self::Foreign => true,
        }
    }
}

/// What a pass decided about the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// There is none, or only its owner knows where.
    None,
    /// It can't be asked yet.
    Wait(&'static str),
    /// It can be asked.
    Ask(Target),
    /// The API server did not say; what was decided before goes on.
    Keep,
}

/// Decides whether and how to ask. Pure.
pub fn plan(server: &SpireServer, findings: &Findings, url: Option<&str>) -> Plan {
    let (Some(federation), Some(url)) = (&server.spec.federation, url) else { return Plan::None };
    if federation.manages_route() {
        match findings.outcome(Component::Route) {
            Some(Outcome::Failed(..)) => return Plan::Keep,
            Some(
                Outcome::InPlace(live) | Outcome::Updated(_, live) | Outcome::OutOfStep(_, live),
            ) if conditions::is_admitted(live) => {}
            _ => return Plan::Wait(NO_ROUTER),
        }
    }
    let published = match findings.outcome(Component::BundleConfigMap) {
        Some(Outcome::Failed(..)) => return Plan::Keep,
        Some(Outcome::InPlace(live) | Outcome::Updated(_, live) | Outcome::OutOfStep(_, live)) => {
            let text = live.pointer("/data/bundle.crt").and_then(Value::as_str);
            text.filter(|it| !it.is_empty()).map(str::to_owned)
        }
        _ => None,
    };
    let endpoint = &federation.bundle_endpoint;
    if endpoint.profile == Profile::HttpsSpiffe && published.is_none() {
        return Plan::Wait(NO_BUNDLE);
    }
    Plan::Ask(Target {
        url: url.to_owned(),
        profile: endpoint.profile,
        trust_domain: server.spec.trust_domain.clone(),
        published,
        hint: Duration::from_secs(endpoint.refresh_hint.into()),
    })
}

/// Our own endpoint.
pub struct OwnEndpoint {
    clock: Clock,
    gate: Gate,
    roots: Arc<RootCertStore>,
    target: Mutex<Option<Target>>,
    /// What the target answered.
    answer: Mutex<Option<Result<(), EndpointError>>>,
    retarget: Notify,
    /// Told when the answer is another.
    pub news: Notify,
}

impl OwnEndpoint {
    /// Nothing to ask so far.
    pub fn new(clock: Clock, gate: Gate, roots: Arc<RootCertStore>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            gate,
            roots,
            target: Mutex::default(),
            answer: Mutex::default(),
            retarget: Notify::new(),
            news: Notify::new(),
        })
    }

    /// Follows the plan from now on. Answers what is known of the endpoint at this address.
    pub fn follow(&self, plan: Plan, url: Option<&str>) -> Option<View> {
        match plan {
            Plan::None => self.aim(None),
            Plan::Wait(why) => {
                self.aim(None);
                return Some(View::Waiting(why));
            }
            Plan::Ask(target) => self.aim(Some(target)),
            Plan::Keep => {}
        }
        url.map(|url| self.view(url))
    }

    /// Asks nobody: another replica leads.
    pub fn forget(&self) {
        self.aim(None);
    }

    fn aim(&self, target: Option<Target>) {
        let mut standing = lock(&self.target);
        if *standing == target {
            return;
        }
        // A rotation is no reason to forget what the same address answered.
        let place = |it: &Option<Target>| it.as_ref().map(|it| (it.url.clone(), it.profile));
        if place(&standing) != place(&target) {
            *lock(&self.answer) = None;
        }
        *standing = target;
        drop(standing);
        self.retarget.notify_one();
    }

    fn view(&self, url: &str) -> View {
        let same = lock(&self.target).as_ref().is_some_and(|it| it.url == url);
        match lock(&self.answer).clone().filter(|_| same) {
            Some(answer) => View::PollTarget(url.to_owned(), answer),
            None => View::NotYet(url.to_owned()),
        }
    }

    /// Keeps asking. Ends only when it is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            let target = lock(&self.target).clone();
            let Some(target) = target else {
                self.retarget.notified().await;
                continue;
            };
            // A standby asks nobody.
            self.gate.clone().opened().await;
            let started = Instant::now();
            let asking = AssertUnwindSafe(self.ask(&target)).catch_unwind();
            let answer = tokio::select! {
                answer = asking => answer.unwrap_or(Err(EndpointError::Panicked)),
                () = self.retarget.notified() => continue,
            };
            let wait = self.record(&target, answer);
            tokio::select! {
                () = sleep_until(started + wait) => {}
                () = self.retarget.notified() => {}
            }
        }
    }

    async fn ask(&self, target: &Target) -> Result<(), EndpointError> {
        let unusable = |why: &dyn std::fmt::Display| EndpointError::Unusable(why.to_string());
        let published = target.published.as_deref().map(Bundle::from_pem).transpose();
        let published = published.map_err(|why| unusable(&why))?.map(Arc::new);
        let url = validate::https_url(&target.url).map_err(|why| unusable(&why))?;
        let trust = match (target.profile, &published) {
            (Profile::HttpsSpiffe, Some(bundle)) => {
                let id = format!("spiffe://{}/spire/server", target.trust_domain);
                let id = SpiffeId::parse(&id).map_err(|why| unusable(&why))?;
                Trust::Spiffe { id, bundle: bundle.clone() }
            }
            (Profile::HttpsSpiffe, None) => return Err(unusable(&NO_BUNDLE)),
            (Profile::HttpsWeb, _) => Trust::Web(self.roots.clone()),
        };
        let fetched = fetch::fetch(&Endpoint { url, trust }, self.clock.now()).await;
        let fetched = fetched.map_err(|error| match error {
            // Its words are for somebody who lacks the bundle of another trust domain.
            FetchError::Svid(_) => EndpointError::Stranger(target.trust_domain.clone()),
            other => other.into(),
        })?;
        let fetched = fetched.bundle;
        let ours = published.is_none_or(|ours| bundle_cache::share_an_authority(&ours, &fetched));
        if ours { Ok(()) } else { Err(EndpointError::Foreign) }
    }

    fn record(&self, target: &Target, answer: Result<(), EndpointError>) -> Duration {
        let wait = match &answer {
            Ok(()) => peers::hint(Some(target.hint)) / TRIES_PER_REFRESH_HINT,
            Err(_) => AFTER_A_FAILURE,
        };
        if !self.gate.is_open() || lock(&self.target).as_ref() != Some(target) {
            return wait;
        }
        if let Err(error) = &answer {
            tracing::warn!(url = target.url, %error, "own endpoint not fetched");
        }
        let mut standing = lock(&self.answer);
        if standing.as_ref() != Some(&answer) {
            *standing = Some(answer);
            self.news.notify_one();
        }
        wait
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::federate::decide::render::tests::{server, spiffe};

    fn admitted() -> Outcome {
        let conditions = json!([{ "type": "Admitted", "status": "True" }]);
        Outcome::InPlace(json!({
            "spec": { "host": "a.example" },
            "status": { "ingress": [{ "host": "a.example", "conditions": conditions }] },
        }))
    }

    fn findings(route: Outcome, bundle: Value) -> Findings {
        let bundle = Outcome::InPlace(json!({ "data": bundle }));
        let outcomes = vec![(Component::BundleConfigMap, bundle), (Component::Route, route)];
        Findings { outcomes, ..Findings::default() }
    }

    #[test]
    fn our_endpoint_is_asked_once_a_router_serves_it_and_the_server_can_be_known() {
        let server = server(spiffe());
        let planned = |findings: &Findings| plan(&server, findings, Some("https://a.example"));
        let published = json!({ "bundle.crt": "PEM" });
        let unserved = findings(Outcome::InPlace(json!({})), published.clone());
        assert_eq!(planned(&unserved), Plan::Wait(NO_ROUTER));
        assert_eq!(planned(&findings(admitted(), Value::Null)), Plan::Wait(NO_BUNDLE));
        let Plan::Ask(target) = planned(&findings(admitted(), published)) else {
            panic!("it can be asked")
        };
        assert_eq!(target.published.as_deref(), Some("PEM"));
        assert_eq!(plan(&server, &Findings::default(), None), Plan::None, "nobody knows where");
    }

    #[test]
    fn what_a_pod_cannot_reach_from_inside_its_cluster_is_no_verdict() {
        let elsewhere = [FetchError::Refused, FetchError::Proxy, FetchError::UnknownCa];
        for error in elsewhere.map(EndpointError::from) {
            assert!(!error.is_conclusive(), "{error}");
        }
        for error in [EndpointError::from(FetchError::Status(503)), EndpointError::Foreign] {
            assert!(error.is_conclusive(), "{error}");
        }
    }
}
