//! Other trust domains: what their endpoints answer, and the way there.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, TimeDelta, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trustplane::{
    authority::{
        act::{
            fetch::Fetcher,
            signer::{LocalSigner, make_ca},
        },
        decide::{
            ca::{self, Policy},
            endpoint::{Proof, Source},
            problem::Problem,
            sync::Received,
        },
    },
    bundle::fetch::FetchError,
    runtime::failpoints::{self, Bug},
    spiffe::{
        bundle::{Bundle, write},
        id::TrustDomain,
        svid::SvidError,
    },
};

use super::world::World;
use crate::cluster::noon;

pub const PEERS: usize = 3;
/// Of every peer.
pub const HINT: Duration = Duration::from_secs(120);
pub const CAS: usize = 8;
/// Of what peers sign.
pub const LONG: TimeDelta = TimeDelta::days(3650);

pub fn trust_domain(peer: usize) -> String {
    format!("peer{peer}.test")
}

pub struct PeerCa {
    pub certificate: CertificateDer<'static>,
    pub signer: LocalSigner,
}

impl PeerCa {
    fn new(trust_domain: &str) -> Self {
        let policy = Policy { refresh_hint: LONG, ca_ttl: LONG, svid_ttl: LONG };
        let made = make_ca(trust_domain, LONG, noon()).expect("a CA");
        let state = ca::first(trust_domain, made.ca, ca::Before::default(), &policy, noon());
        let signer = LocalSigner::new(trust_domain, &state.cas[0], &made.key).expect("a CA");
        let der = STANDARD.decode(&state.cas[0].chain[0]).expect("it is base64");
        Self { certificate: der.into(), signer }
    }
}

/// CAs of the trust domains, made once: that takes longer than a whole simulation.
pub fn ca(peer: usize, number: usize) -> &'static PeerCa {
    static ALL: OnceLock<Vec<Vec<PeerCa>>> = OnceLock::new();
    let of = |peer| (0..CAS).map(|_| PeerCa::new(&trust_domain(peer))).collect();
    let all = ALL.get_or_init(|| (0..PEERS).map(of).collect());
    &all[peer][number % CAS]
}

/// The document of a peer with these CAs.
fn document(peer: usize, keys: &[usize], sequence: u64) -> String {
    let keys: Vec<_> = keys.iter().map(|key| ca(peer, *key).certificate.clone()).collect();
    write::document(&keys, sequence, HINT).expect("the certificates are CAs'")
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Honest,
    Down,
    Garbage,
    /// Something else than it should.
    Lies(String),
}

/// Another trust domain.
pub struct Peer {
    number: usize,
    sequence: u64,
    keys: Vec<usize>,
    next: usize,
    mode: Mode,
}

impl Peer {
    pub fn new(number: usize) -> Self {
        Self { number, sequence: 1, keys: vec![0], next: 1, mode: Mode::Honest }
    }

    /// A new CA, which signs for the endpoint from the next rotation on.
    pub fn rotate(&mut self) {
        self.keys.push(self.next);
        self.next += 1;
        if self.keys.len() > 2 {
            self.keys.remove(0);
        }
        self.sequence += 1;
    }

    pub fn change_without_counting(&mut self) {
        self.rotate();
        self.sequence -= 1;
    }

    pub fn revoke_everything(&mut self) {
        self.keys.clear();
        self.sequence += 1;
    }

    pub fn replay(&mut self) {
        self.mode = Mode::Lies(document(self.number, &[0], 1));
    }

    pub fn fail(&mut self) {
        self.mode = Mode::Down;
    }

    pub fn answer_garbage(&mut self) {
        self.mode = Mode::Garbage;
    }

    pub fn recover(&mut self) {
        self.mode = Mode::Honest;
    }

    pub fn document(&self) -> String {
        document(self.number, &self.keys, self.sequence)
    }

    /// The CA that signs the SVIDs of its workloads, and of its endpoint.
    pub fn active_ca(&self) -> Option<usize> {
        self.keys.first().copied()
    }

    /// What its endpoint answers now. Its certificate is of its oldest CA.
    fn answer(&self, proof: &Proof) -> Result<String, FetchError> {
        let text = match &self.mode {
            Mode::Down => return Err(FetchError::Refused),
            Mode::Garbage => "no bundle".to_owned(),
            Mode::Lies(text) => text.clone(),
            Mode::Honest => self.document(),
        };
        if let Proof::Spiffe { id, bundle } = proof {
            let signed_by = self.keys.first().map(|key| &ca(self.number, *key).certificate);
            let is_known = |der| bundle.x509.iter().any(|it| it.der() == der);
            if !signed_by.is_some_and(is_known) {
                let unknown = SvidError::UnknownAuthority(id.trust_domain().clone());
                return Err(FetchError::Svid(unknown));
            }
        }
        Ok(text)
    }

    pub fn source(&self, profile: Profile, path: u32) -> Value {
        let domain = trust_domain(self.number);
        let url = format!("https://{domain}/{path}");
        match profile {
            Profile::Static => json!({ "static": { "bundle": self.document() } }),
            Profile::Web => json!({ "httpsWeb": { "bundleEndpointURL": url } }),
            Profile::Spiffe => json!({ "httpsSPIFFE": {
                "bundleEndpointURL": url,
                "endpointSPIFFEID": format!("spiffe://{domain}/server"),
                "bundleBootstrap": self.document(),
            } }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Web,
    Spiffe,
    Static,
}

/// A fetch that was answered, or failed.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub at: Instant,
    pub replica: usize,
    pub url: String,
    pub document: Option<String>,
}

/// The way from a replica to the endpoints.
pub struct SimulatedFetcher {
    pub world: Arc<World>,
    pub replica: usize,
}

impl Fetcher for SimulatedFetcher {
    fn receive(
        &self,
        source: Source,
        _: DateTime<Utc>,
    ) -> BoxFuture<'_, Result<Received, Problem>> {
        async move {
            let (url, proof) = match source {
                Source::Static(document) => {
                    let parsed = Bundle::parse(document.as_bytes());
                    let bundle = parsed.map_err(Problem::StaticBundle)?;
                    return Ok(Received { bundle, document });
                }
                Source::Fetch { url, proof, .. } => (url, proof),
            };
            sleep(self.world.fetch_takes()).await;
            let host = TrustDomain::parse(url.host().unwrap_or_default());
            let peer = (0..PEERS)
                .find(|peer| host.as_ref().is_ok_and(|host| host.as_str() == trust_domain(*peer)));
            let answer = self.world.peers()[peer.expect("a peer's host")].answer(&proof);
            let at = Instant::now();
            // It takes a moment to come back.
            sleep(Duration::from_millis(20)).await;
            let document = answer.as_ref().ok().cloned();
            let (replica, url) = (self.replica, url.to_string());
            self.world.record_fetch(Fetch { at, replica, url, document });
            let document = answer.map_err(Problem::Fetch)?;
            let parsed = Bundle::parse(document.as_bytes());
            let bundle = parsed.map_err(|error| Problem::Fetch(FetchError::Bundle(error)))?;
            if failpoints::has(Bug::EmptyIsFailure) && bundle.x509.is_empty() {
                return Err(Problem::Fetch(FetchError::Broken));
            }
            Ok(Received { bundle, document })
        }
        .boxed()
    }
}
