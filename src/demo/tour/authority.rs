//! A tour of `trustplane authority`: our own trust domain in one cluster, and a partner with a
//! stand-in for SPIRE in another. Both bundle endpoints have ports of their own.
//!
//! Every step acts as an administrator would, and then polls until it sees the expected result: the
//! bundle that the partner's SPIRE server gets from our endpoint over TCP, whether a new SVID of the
//! partner verifies with `status.currentBundle`, the conditions, and the newest audit record.

pub mod audit_trail;
pub mod expect;
pub mod printer;
pub mod stage;
pub mod steps;

use std::sync::{Arc, Mutex};

use rustls::pki_types::CertificateDer;

use self::{
    expect::{Expected, Fetches, Seen, Signer},
    stage::{PARTNER, Stage, TRUST_DOMAIN},
    steps::{Act, ActError, Step},
};
use super::{observed::Received, walk::Scenario};
use crate::{
    api::spiffe_federation::SpiffeFederation,
    bundle::fetch::{self, Endpoint, Trust},
    runtime::lock::lock,
    spiffe::{bundle::Bundle, id::SpiffeId, svid},
};

/// Path of the partner's workload.
const WORKLOAD: &str = "/shop";

pub struct Tour {
    pub stage: Stage,
    fetches: Mutex<Fetches>,
    /// An SVID of the partner from before its rotation, in the step after it.
    outdated: Mutex<Option<(SpiffeId, CertificateDer<'static>)>>,
}

impl Tour {
    pub fn new(stage: Stage) -> Self {
        Self { stage, fetches: Mutex::default(), outdated: Mutex::default() }
    }

    /// Fetches our bundle as the partner's SPIRE server, which verifies our endpoint with the bundle
    /// that it got before.
    async fn receive(&self) -> Result<Bundle, String> {
        let Stage { partner, endpoint_id, endpoint_url, .. } = &self.stage;
        let fetched = partner.fetch_from(endpoint_id.clone(), endpoint_url.clone()).await;
        lock(&self.fetches).count(fetched.is_ok());
        fetched.map(|it| it.bundle).map_err(|error| error.to_string())
    }

    /// Asks our endpoint again, and trusts the newest CA alone.
    async fn signer(&self, bundle: &Bundle) -> Option<Signer> {
        let newest = bundle.x509.last()?.clone();
        let alone = Arc::new(Bundle { x509: vec![newest], ..bundle.clone() });
        let (id, url) = (self.stage.endpoint_id.clone(), self.stage.endpoint_url.clone());
        let endpoint = Endpoint { url, trust: Trust::Spiffe { id, bundle: alone } };
        let fetched = fetch::fetch(&endpoint, self.stage.clock.now()).await;
        Some(if fetched.is_ok() { Signer::NewestCa } else { Signer::CaBefore })
    }

    /// Whether a new SVID of the partner verifies with the bundle that counts here.
    fn partner_svid(&self, federation: Option<&SpiffeFederation>) -> Result<String, String> {
        let issued = self.stage.partner.workload(WORKLOAD).map_err(|error| error.to_string());
        let (id, svid) = issued?;
        self.verify(federation, &id, svid.der)
    }

    fn verify(
        &self,
        federation: Option<&SpiffeFederation>,
        id: &SpiffeId,
        svid: CertificateDer<'static>,
    ) -> Result<String, String> {
        let federation = federation.ok_or(format!("there is no SPIFFEFederation {PARTNER}"))?;
        let document = federation.status.current_bundle.as_deref();
        let document = document.ok_or(format!("there is no bundle of {PARTNER} yet"))?;
        let bundle = Bundle::parse(document.as_bytes()).map_err(|error| error.to_string())?;
        let verified = svid::verify(&[svid], id, &bundle, self.stage.clock.now());
        verified.map(|_| id.to_string()).map_err(|error| error.to_string())
    }
}

impl Scenario for Tour {
    type Act = Act;
    type Expected = Expected;
    type Seen = Seen;
    type Error = ActError;

    fn steps(&self) -> Vec<Step> {
        steps::all(&self.stage)
    }

    async fn carry_out(&self, act: Act) -> Result<(), ActError> {
        self.act(act).await
    }

    async fn observe(&self) -> Seen {
        let bundle = self.receive().await;
        let signer = match &bundle {
            Ok(bundle) => self.signer(bundle).await,
            Err(_) => None,
        };
        let federation = self.stage.federation().await.unwrap_or_default();
        let outdated = lock(&self.outdated).clone();
        let there = federation.as_ref();
        Seen {
            received: bundle.map(|it| Received::new(TRUST_DOMAIN.to_owned(), &it)),
            signer,
            fetches: *lock(&self.fetches),
            partner: self.partner_svid(there),
            outdated: outdated.map(|(id, svid)| self.verify(there, &id, svid)),
            federation: federation.map(Into::into),
            audit: self.stage.audit.newest(),
        }
    }

    fn differences(expected: &Expected, seen: &Seen) -> Vec<String> {
        expected.differences(seen)
    }
}
