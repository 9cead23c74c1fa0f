//! Our own trust domain: its state is read by every replica and changed by the leader.

mod report;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::{net::TcpListener, time::Instant};

use super::{Authority, Options, PATH};
use crate::{
    authority::{
        act::{
            apply::{Keys, Published, StoreError, Stored},
            signer::{self, LocalSigner, SignError, Signer},
        },
        decide::{
            audit::AuditedOwn,
            ca::{self, AuthorityState, CaPlan, Changed, MAX_STALENESS, Requests, StateError},
        },
        join::view::Issuer,
    },
    bundle::serve::{Endpoint, ServerSvid},
    k8s::{api_error::ApiError, backoff::Backoff},
    names::{AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, REQUESTS_CONFIG_MAP},
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
        tls_listener::CertReloader,
    },
    spiffe::bundle::Bundle,
};

/// Between two looks at our state.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);

/// Our state as this replica knows it.
#[derive(Default)]
pub(super) struct Own {
    stored: Option<Stored>,
    /// When it was last read.
    read_at: Option<Instant>,
    /// Why there is none, or why it may not be changed.
    problem: Option<String>,
    /// Whether the state is of the trust domain that we are configured with, or there is none yet.
    is_trust_domain_right: bool,
    /// What is served now.
    served: Option<Served>,
    /// The CAs that this replica last saw published.
    published: BTreeSet<String>,
    /// What of it was audited, as far as this replica knows.
    audited: Option<AuditedOwn>,
}

struct Served {
    document: Arc<str>,
    /// Of the SVID.
    chain: Arc<[CertificateDer<'static>]>,
    bundle: Arc<Bundle>,
    ca_id: String,
    signer: Arc<LocalSigner>,
    svid: Option<ServerSvid>,
    signed_at: DateTime<Utc>,
    /// At half of the SVID's life.
    renew_at: DateTime<Utc>,
    /// Whether the endpoints have it.
    is_offered: bool,
}

#[derive(Debug, thiserror::Error)]
enum OwnError {
    #[error("{kind} {name} could not be {verb}: {cause}{}", namespace_hint(.cause))]
    Call { verb: &'static str, kind: &'static str, name: &'static str, cause: ApiError },
    #[error("{0}")]
    Damaged(StoreError),
    #[error("the audit log can't be written, so our CAs stay as they are")]
    NotAudited,
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(
        "Secret {AUTHORITY_SECRET} with the keys of our CA is gone, and ConfigMap {BUNDLE_CONFIG_MAP} shows that there \
         was one: others trust it. Restore the Secret from a backup; or, if the keys are lost, start once with \
         --new-authority, which makes a new CA: whoever federates with us by https_spiffe needs a new bootstrap bundle then"
    )]
    Lost,
    #[error(
        "Secret {AUTHORITY_SECRET} has the sequence {stored}, and {published} was published already: it was restored from \
         an old copy. Restore the newest; or start once with --new-authority, which makes a new CA. If the Secret is \
         right and somebody altered ConfigMap {BUNDLE_CONFIG_MAP}, delete the ConfigMap: it is published again"
    )]
    Outdated { stored: u64, published: u64 },
    #[error(
        "ConfigMap {BUNDLE_CONFIG_MAP} holds no readable bundle, so its sequence is unknown, and Secret {AUTHORITY_SECRET} is \
         gone. Restore one of the two; or delete the ConfigMap, if nobody has ever fetched from it"
    )]
    Unreadable,
    #[error(
        "Secret {AUTHORITY_SECRET} is of the trust domain {found}, and --trust-domain says {configured}. Correct the flag, \
         or use another --namespace"
    )]
    OtherTrustDomain { found: String, configured: String },
}

/// A create answers 404 if its namespace is missing, as in an empty cluster or sandbox.
fn namespace_hint(cause: &ApiError) -> &'static str {
    match cause {
        ApiError::NotFound => ". Does the namespace of --namespace exist?",
        _ => "",
    }
}

/// An API call for one of our objects failed.
fn call(
    verb: &'static str,
    kind: &'static str,
    name: &'static str,
) -> impl FnOnce(ApiError) -> OwnError {
    move |cause| OwnError::Call { verb, kind, name, cause }
}

/// The same for the Secret.
fn secret(verb: &'static str) -> impl FnOnce(StoreError) -> OwnError {
    move |error| match error {
        StoreError::Api(cause) => call(verb, "Secret", AUTHORITY_SECRET)(cause),
        StoreError::Damaged => OwnError::Damaged(error),
    }
}

impl Own {
    pub(super) fn waiting_for(&self, options: &Options, now: Instant) -> Option<String> {
        let is_fresh = self.read_at.is_some_and(|at| now.duration_since(at) <= staleness(options));
        match &self.problem {
            Some(problem) => Some(problem.clone()),
            None if self.served.is_none() => Some("the CA of our trust domain".to_owned()),
            None if !is_fresh => {
                Some("a new look at the state of our CA: the API server does not answer".to_owned())
            }
            None => None,
        }
    }
}

/// A replica that could not read the state for this long is not ready: it may serve an old bundle.
fn staleness(options: &Options) -> Duration {
    let hint = options.ca.refresh_hint.min(MAX_STALENESS).to_std().unwrap_or_default();
    hint.max(3 * options.poll)
}

/// The state must not be older than what was published last, which has the sequence `newest`.
fn check_not_outdated(stored: Option<&Stored>, newest: Option<u64>) -> Result<(), OwnError> {
    let stored = stored.map(|it| it.state.sequence);
    match (stored, newest) {
        (Some(stored), Some(published)) if published > stored => {
            Err(OwnError::Outdated { stored, published })
        }
        _ => Ok(()),
    }
}

/// What is new about a first state.
fn begun(state: &AuthorityState) -> Changed {
    Changed { activated: state.active().map(|ca| ca.id.clone()), ..Changed::default() }
}

impl Authority {
    /// Reads our state again and again, and changes it where this replica leads.
    pub(super) async fn keep_own(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            match self.look_after_own().await {
                Ok(()) => {
                    failures = 0;
                    self.own_succeeded();
                }
                Err(error) => {
                    failures += 1;
                    self.own_failed(&error).await;
                }
            }
            let poll = self.options.poll.mul_f64(0.9 + fastrand::f64() / 5.0);
            let due = match failures {
                0 => self.own_due().max(SHORTEST_WAIT),
                failures => Backoff::OBJECT.after(failures),
            };
            tokio::time::sleep(due.min(poll)).await;
        }
    }

    /// Until the next change of our CAs, or the renewal of our SVID.
    fn own_due(&self) -> Duration {
        let now = self.clock.now();
        let own = lock(&self.own);
        let renewal = own.served.as_ref().map(|it| it.renew_at);
        let change = own.stored.as_ref().filter(|_| self.gate.is_open()).map(|it| {
            match ca::plan(&it.state, &it.state.handled, &self.options.ca, now) {
                CaPlan::Wait(at) => at,
                CaPlan::Change(_) => now,
            }
        });
        let next = renewal.into_iter().chain(change).min();
        next.map_or(Duration::MAX, |at| self.clock.until(at))
    }

    async fn look_after_own(&self) -> Result<(), OwnError> {
        // Before the Secret, which is written first: in the other order a step that another replica takes in
        // between would look like a Secret that was lost, or restored from an old copy.
        let published = self.writer.load_published().await;
        let published = published.map_err(call("read", "ConfigMap", BUNDLE_CONFIG_MAP))?;
        let read_at = Instant::now();
        let stored = self.writer.load().await.map_err(secret("read"))?;
        self.check_trust_domain(stored.as_ref())?;
        let leads = self.gate.is_open();
        let newest = self.newest_sequence(&published);
        if !(leads && self.options.new_authority) {
            check_not_outdated(stored.as_ref(), newest)?;
        }
        if !leads {
            return match stored {
                Some(stored) => self.know(stored, read_at),
                None if published.document.is_some() => Err(OwnError::Lost),
                None => Ok(()),
            };
        }
        let (stored, changed) = match self.advance(stored.clone(), &published).await {
            Ok(advanced) => advanced,
            Err(error) => {
                // A step that can't be written yet is no reason to stop serving.
                let served = stored.map_or(Ok(()), |stored| self.know(stored, read_at));
                return Err(served.err().unwrap_or(error));
            }
        };
        let sequence = stored.state.sequence;
        let served = self.publish_own(stored, read_at, &published).await;
        // At last: Events that are answered late must not keep a stolen key signing.
        self.report_own(&changed, sequence).await;
        served
    }

    /// Serves our state, publishes it, and records what is new.
    async fn publish_own(
        &self,
        stored: Stored,
        read_at: Instant,
        before: &Published,
    ) -> Result<(), OwnError> {
        let state = stored.state.clone();
        let (document, view) = (state.document()?, json!(state).to_string());
        // An active CA that has expired signs nothing, and the next one must be published before it may.
        let known = self.know(stored, read_at);
        let written = self.writer.publish(before, &document, &view).await;
        if written.is_ok() {
            lock(&self.own).published = state.cas.iter().map(|ca| ca.id.clone()).collect();
        }
        known?;
        // What was not published is recorded all the same: the endpoint serves it.
        self.audit_own(&state).await?;
        written.map_err(call("written", "ConfigMap", BUNDLE_CONFIG_MAP))
    }

    /// The sequence that was published last. Where the ConfigMap was restored together with the Secret, or
    /// deleted, we still know what we served ourselves.
    fn newest_sequence(&self, published: &Published) -> Option<u64> {
        let served = lock(&self.own).stored.as_ref().map(|it| it.state.sequence);
        published.sequence.max(served)
    }

    fn check_trust_domain(&self, stored: Option<&Stored>) -> Result<(), OwnError> {
        let configured = self.options.trust_domain.as_str();
        let other = stored.map(|it| &it.state.trust_domain).filter(|found| *found != configured);
        lock(&self.own).is_trust_domain_right = other.is_none();
        match other {
            None => Ok(()),
            Some(found) => Err(OwnError::OtherTrustDomain {
                found: found.clone(),
                configured: configured.to_owned(),
            }),
        }
    }

    /// With the wrong trust domain a federation could be taken for our own, and lose its bundle.
    pub(super) fn may_sync(&self) -> bool {
        lock(&self.own).is_trust_domain_right
    }

    /// Takes the step that is due, if one is, after the last one was recorded.
    async fn advance(
        &self,
        stored: Option<Stored>,
        published: &Published,
    ) -> Result<(Stored, Changed), OwnError> {
        let requests = self.requests().await?;
        let Some(stored) = stored else { return self.begin(published).await };
        self.audit_own(&stored.state).await?;
        if self.newest_sequence(published).is_some_and(|newest| newest > stored.state.sequence) {
            return self.replace_all(&stored, published).await;
        }
        let now = self.clock.now();
        let change = match ca::plan(&stored.state, &requests, &self.options.ca, now) {
            CaPlan::Wait(_) => return Ok((stored, Changed::default())),
            CaPlan::Change(change) => change,
        };
        let is_published = published.document.as_ref() == Some(&stored.state.document()?);
        // First the caller publishes the next CA, and then it may sign.
        let change = match is_published || failpoints::has(Bug::SignsUnpublished) {
            true => Some(change),
            false => {
                let next = change.activate.as_ref();
                let was_published = next.is_some_and(|id| lock(&self.own).published.contains(id));
                change.before_publication(&stored.state, was_published)
            }
        };
        let Some(change) = change else { return Ok((stored, Changed::default())) };
        let made = match change.new {
            Some(_) => Some(self.make_ca(now)?),
            None => None,
        };
        let mut keys = stored.keys.clone();
        keys.retain(|id, _| !change.remove.contains(id));
        let new = made.map(|made| {
            keys.insert(made.ca.id.clone(), made.key);
            made.ca
        });
        let (mut state, changed) = ca::apply(&stored.state, &change, new, &self.options.ca, now);
        if failpoints::has(Bug::ActivatesAtOnce) {
            state.cas.iter_mut().for_each(|ca| ca.usable_at = now);
        }
        self.replace(&stored, &state, &keys, changed).await
    }

    async fn replace(
        &self,
        before: &Stored,
        state: &AuthorityState,
        keys: &Keys,
        changed: Changed,
    ) -> Result<(Stored, Changed), OwnError> {
        let replaced = self.writer.replace(before, state, keys).await.map_err(secret("written"))?;
        Ok((replaced, changed))
    }

    /// What administrators ask for, on an object that is there for it.
    async fn requests(&self) -> Result<Requests, OwnError> {
        let found = self.writer.load_requests().await;
        match found.map_err(call("read", "ConfigMap", REQUESTS_CONFIG_MAP))? {
            Some(requests) => Ok(requests),
            None => {
                let created = self.writer.create_requests().await;
                created.map_err(call("written", "ConfigMap", REQUESTS_CONFIG_MAP))?;
                Ok(Requests::default())
            }
        }
    }

    fn make_ca(&self, now: DateTime<Utc>) -> Result<signer::MadeCa, SignError> {
        signer::make_ca(self.options.trust_domain.as_str(), self.options.ca.ca_ttl, now)
    }

    /// The first CA, unless others already trust one that is gone.
    async fn begin(&self, published: &Published) -> Result<(Stored, Changed), OwnError> {
        let was_known = lock(&self.own).stored.is_some();
        if was_known && !self.options.new_authority {
            return Err(OwnError::Lost);
        }
        if published.document.is_some() {
            if !self.options.new_authority {
                return Err(OwnError::Lost);
            }
            published.sequence.ok_or(OwnError::Unreadable)?;
        }
        let now = self.clock.now();
        let (state, keys) = self.first_state(published, now)?;
        match self.writer.create(&state, &keys).await {
            // Another replica was faster, and its CA counts.
            Err(StoreError::Api(ApiError::AlreadyExists)) => {
                let found = self.writer.load().await.map_err(secret("read"))?;
                let found =
                    found.ok_or_else(|| secret("read")(StoreError::Api(ApiError::NotFound)))?;
                Ok((found, Changed::default()))
            }
            created => {
                let stored = created.map_err(secret("written"))?;
                let changed = begun(&stored.state);
                Ok((stored, changed))
            }
        }
    }

    /// After `--new-authority`, with a Secret that is older than what was published.
    async fn replace_all(
        &self,
        before: &Stored,
        published: &Published,
    ) -> Result<(Stored, Changed), OwnError> {
        let now = self.clock.now();
        let (state, keys) = self.first_state(published, now)?;
        let removed = before.state.cas.iter().map(|ca| ca.id.clone()).collect();
        self.replace(before, &state, &keys, Changed { removed, ..begun(&state) }).await
    }

    fn first_state(
        &self,
        published: &Published,
        now: DateTime<Utc>,
    ) -> Result<(AuthorityState, Keys), OwnError> {
        let refresh_hint = TimeDelta::from_std(published.refresh_hint.unwrap_or_default());
        let before = ca::Before {
            sequence: self.newest_sequence(published),
            refresh_hint: refresh_hint.unwrap_or_default(),
        };
        let made = self.make_ca(now)?;
        let keys = Keys::from([(made.ca.id.clone(), made.key)]);
        let trust_domain = self.options.trust_domain.as_str();
        Ok((ca::first(trust_domain, made.ca, before, &self.options.ca, now), keys))
    }

    /// Takes a state over: what is served, and the SVID of our endpoint. It is no older than `read_at`.
    fn know(&self, stored: Stored, read_at: Instant) -> Result<(), OwnError> {
        let now = self.clock.now();
        let document: Arc<str> = stored.state.document()?.into();
        let bundle = Bundle::parse(document.as_bytes()).map_err(|_| StateError::Damaged)?;
        let active = stored.state.active().ok_or(StateError::Damaged)?.clone();
        let mut own = lock(&self.own);
        if let Some(before) =
            own.stored.as_ref().filter(|it| it.state.sequence > stored.state.sequence)
        {
            let (stored, published) = (stored.state.sequence, before.state.sequence);
            return Err(OwnError::Outdated { stored, published });
        }
        let ttl = TimeDelta::try_seconds(active.longest_svid).unwrap_or(self.options.ca.svid_ttl);
        let ttl = ttl.min(self.options.ca.svid_ttl);
        // An SVID from before the clock was put back is not valid yet.
        let is_same = own.served.as_ref().is_some_and(|it| {
            *it.document == *document
                && it.ca_id == active.id
                && (it.signed_at..it.renew_at).contains(&now)
        });
        if !is_same {
            let key =
                stored.keys.get(&active.id).ok_or_else(|| SignError::Key(active.id.clone()))?;
            let signer = LocalSigner::new(self.options.trust_domain.as_str(), &active, key)?;
            let id = Self::endpoint_id(&self.options.trust_domain).ok_or(SignError::Id)?;
            let svid = signer.sign(&id, ttl, now)?;
            let life = ttl.min(active.not_after - now);
            own.served = Some(Served {
                document,
                bundle: Arc::new(bundle),
                chain: svid.chain.clone().into(),
                ca_id: signer.ca_id().to_owned(),
                signer: Arc::new(signer),
                svid: Some(svid),
                signed_at: now,
                renew_at: now + life / 2,
                is_offered: false,
            });
        }
        self.metrics.set_own(&stored.state);
        own.stored = Some(stored);
        own.read_at = Some(read_at);
        let signer = own.served.as_ref().map(|it| it.signer.clone());
        drop(own);
        // First: whoever gets a certificate of a new CA can verify it.
        self.refresh_trusted();
        self.view.set_issuer(signer.map(|signer| Issuer { signer, ttl, read_at }));
        self.own_changed.notify_one();
        Ok(())
    }

    /// What this replica serves now: our document, and the chain of its SVID.
    pub fn served(&self) -> Option<(Arc<str>, Arc<[CertificateDer<'static>]>)> {
        lock(&self.own).served.as_ref().map(|it| (it.document.clone(), it.chain.clone()))
    }

    pub(super) fn own_document(&self) -> Option<Arc<str>> {
        lock(&self.own).served.as_ref().map(|it| it.document.clone())
    }

    /// Our own bundle, to verify endpoints in our trust domain.
    pub(super) fn own_bundle(&self) -> Option<Arc<Bundle>> {
        lock(&self.own).served.as_ref().map(|it| it.bundle.clone())
    }

    /// Hands what is new to the endpoints, for ever.
    pub(super) async fn serve(
        self: Arc<Self>,
        mut spiffe: Option<TcpListener>,
        mut web: Option<(TcpListener, Arc<CertReloader>)>,
        endpoints: Arc<Mutex<Vec<Endpoint>>>,
    ) {
        loop {
            if let Some((document, svid)) = self.take_offer() {
                for endpoint in lock(&endpoints).iter() {
                    endpoint.replace_document(&document);
                }
                if let Err(error) = self.svid.replace(&svid) {
                    tracing::error!(%error, "our SVID can't be served");
                }
                self.offer_svid(&document, svid, &mut spiffe, &endpoints);
                if let Some((listener, pair)) = web.take() {
                    match Endpoint::start_web(
                        listener,
                        PATH,
                        document.to_string(),
                        pair,
                        self.metrics.requests(),
                    ) {
                        Ok(endpoint) => lock(&endpoints).push(endpoint),
                        Err(error) => tracing::error!(%error, "https_web is not served"),
                    }
                }
            }
            self.own_changed.notified().await;
        }
    }

    fn take_offer(&self) -> Option<(Arc<str>, ServerSvid)> {
        let mut own = lock(&self.own);
        let served = own.served.as_mut().filter(|it| !it.is_offered)?;
        served.is_offered = true;
        Some((served.document.clone(), served.svid.take()?))
    }

    fn offer_svid(
        &self,
        document: &str,
        svid: ServerSvid,
        spiffe: &mut Option<TcpListener>,
        endpoints: &Mutex<Vec<Endpoint>>,
    ) {
        let mut endpoints = lock(endpoints);
        let offered = match spiffe.take() {
            Some(listener) => Endpoint::start_at(
                listener,
                PATH,
                document.to_owned(),
                svid,
                self.metrics.requests(),
            )
            .map(|endpoint| endpoints.insert(0, endpoint)),
            None if self.options.spiffe_listen.is_some() => match endpoints.first() {
                Some(endpoint) => endpoint.replace(document.to_owned(), svid),
                None => Ok(()),
            },
            None => Ok(()),
        };
        if let Err(error) = offered {
            tracing::error!(%error, "https_spiffe is not served");
        }
    }
}
