//! Polls our own bundle endpoint as a peer would: by its public address and by its profile.
//!
//! An admitted Route says nothing about what answers there. The leader polls, as often as peers should.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use rustls::RootCertStore;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    api::spire_server::Profile,
    bundle::fetch::{self, Endpoint, FetchError, Trust},
    federate::{
        act::peers,
        cache::bundle_cache,
        decide::{
            own_endpoint::{EndpointError, EndpointPlan, EndpointView, NO_BUNDLE, Target},
            validate,
        },
    },
    k8s::gate::Gate,
    runtime::{clock::Clock, lock::lock},
    spiffe::{bundle::Bundle, id::SpiffeId},
};

/// The interval of a peer with the shortest refresh hint.
const AFTER_A_FAILURE: Duration = Duration::from_secs(15);

pub struct OwnEndpoint {
    clock: Clock,
    gate: Gate,
    roots: Arc<RootCertStore>,
    target: Mutex<Option<Target>>,
    /// The last answer of the target.
    answer: Mutex<Option<Result<(), EndpointError>>>,
    retarget: Notify,
    /// Notified when the answer changed.
    pub news: Notify,
}

impl OwnEndpoint {
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

    /// Applies the plan. Returns what is known of the endpoint at this address.
    pub fn follow(&self, plan: EndpointPlan, url: Option<&str>) -> Option<EndpointView> {
        match plan {
            EndpointPlan::None => self.aim(None),
            EndpointPlan::Wait(why) => {
                self.aim(None);
                return Some(EndpointView::Waiting(why));
            }
            EndpointPlan::Ask(target) => self.aim(Some(target)),
            EndpointPlan::Keep => {}
        }
        url.map(|url| self.view(url))
    }

    pub fn forget(&self) {
        self.aim(None);
    }

    fn aim(&self, target: Option<Target>) {
        let mut existing = lock(&self.target);
        if *existing == target {
            return;
        }
        // A rotation does not invalidate the last answer of the same address.
        let place = |it: &Option<Target>| it.as_ref().map(|it| (it.url.clone(), it.profile));
        if place(&existing) != place(&target) {
            *lock(&self.answer) = None;
        }
        *existing = target;
        drop(existing);
        self.retarget.notify_one();
    }

    fn view(&self, url: &str) -> EndpointView {
        let same = lock(&self.target).as_ref().is_some_and(|it| it.url == url);
        match lock(&self.answer).clone().filter(|_| same) {
            Some(answer) => EndpointView::Answered(url.to_owned(), answer),
            None => EndpointView::NotAsked(url.to_owned()),
        }
    }

    /// Never ends; stop it by dropping it.
    pub async fn run(self: Arc<Self>) {
        loop {
            let target = lock(&self.target).clone();
            let Some(target) = target else {
                self.retarget.notified().await;
                continue;
            };
            // A standby polls nobody.
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
            (Profile::HttpsWeb, _) => Trust::web(self.roots.clone()),
        };
        let fetched = fetch::fetch(&Endpoint { url, trust }, self.clock.now()).await;
        let fetched = fetched.map_err(|error| match error {
            // The error's text is about a missing bundle of another trust domain.
            FetchError::Svid(_) => EndpointError::Stranger(target.trust_domain.clone()),
            other => other.into(),
        })?;
        let fetched = fetched.bundle;
        let ours = published.is_none_or(|ours| bundle_cache::share_an_authority(&ours, &fetched));
        if ours { Ok(()) } else { Err(EndpointError::Foreign) }
    }

    fn record(&self, target: &Target, answer: Result<(), EndpointError>) -> Duration {
        let wait = match &answer {
            Ok(()) => peers::hint(Some(target.hint)) / peers::ATTEMPTS_PER_REFRESH_HINT,
            Err(_) => AFTER_A_FAILURE,
        };
        if !self.gate.is_open() || lock(&self.target).as_ref() != Some(target) {
            return wait;
        }
        if let Err(error) = &answer {
            tracing::warn!(url = target.url, %error, "own endpoint not fetched");
        }
        let mut existing = lock(&self.answer);
        if existing.as_ref() != Some(&answer) {
            *existing = Some(answer);
            self.news.notify_one();
        }
        wait
    }
}
