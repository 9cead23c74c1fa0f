//! A workload: keeps one stream of its agent's Workload API open, and opens another when it ends.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::pki_types::CertificateDer;
use tokio::time::sleep;

use crate::{
    authority::agent::{
        messages::X509SvidResponse,
        workload_client::{self, WorkloadApiError},
    },
    runtime::{clock::Clock, lock::lock},
    spiffe::{
        bundle::Bundle,
        chain,
        id::{SpiffeId, TrustDomain},
        svid,
    },
};

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub struct Workload {
    socket: PathBuf,
    clock: Clock,
    received: Mutex<Result<Identity, String>>,
}

/// The newest message. Its key is not kept: nobody here shows it.
#[derive(Clone)]
pub struct Identity {
    /// How many messages have come.
    pub messages: u64,
    pub id: SpiffeId,
    chain: Vec<CertificateDer<'static>>,
    pub bundles: BTreeMap<TrustDomain, Bundle>,
}

impl Workload {
    pub fn new(socket: PathBuf, clock: Clock) -> Self {
        let received = Mutex::new(Err("no message has come yet".to_owned()));
        Self { socket, clock, received }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What counts at the workload now, or why nothing does.
    pub fn received(&self) -> Result<Identity, String> {
        lock(&self.received).clone()
    }

    /// Never returns.
    pub async fn run(self: Arc<Self>) {
        let mut messages = 0;
        loop {
            let Err(why) = self.follow(&mut messages).await;
            *lock(&self.received) = Err(why);
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn follow(&self, messages: &mut u64) -> Result<Infallible, String> {
        let in_words = |error: WorkloadApiError| match error {
            WorkloadApiError::Failed { why, .. } => why,
            other => other.to_string(),
        };
        let mut stream = workload_client::subscribe(&self.socket).await.map_err(in_words)?;
        loop {
            let message = stream.message().await;
            let message = message
                .map_err(|status| in_words(workload_client::failed(&self.socket, &status)))?;
            let message = message.ok_or("the agent ended the stream")?;
            *messages += 1;
            let identity = read(message, *messages).ok_or("the agent's message can't be read")?;
            *lock(&self.received) = Ok(identity);
        }
    }

    /// Whether it accepts an SVID of another trust domain.
    pub fn judge(
        &self,
        identity: &Identity,
        id: &SpiffeId,
        svid: CertificateDer<'_>,
    ) -> Result<String, String> {
        let trust_domain = id.trust_domain();
        let bundle = identity.bundles.get(trust_domain);
        let bundle =
            bundle.ok_or_else(|| format!("the workload has no bundle of {trust_domain}"))?;
        let verified = svid::verify(&[svid], id, bundle, self.clock.now());
        verified.map(|_| id.to_string()).map_err(|error| error.to_string())
    }

    /// Whether the newest authority of ours signed its SVID.
    pub fn is_signed_by_newest(&self, identity: &Identity) -> bool {
        let own = identity.bundles.get(identity.id.trust_domain());
        let newest = own.and_then(|it| it.x509.last().cloned());
        newest.is_some_and(|newest| {
            let alone =
                Bundle { x509: vec![newest], jwt: Vec::new(), sequence: None, refresh_hint: None };
            svid::verify(&identity.chain, &identity.id, &alone, self.clock.now()).is_ok()
        })
    }
}

/// None for what a workload could not use either.
fn read(message: X509SvidResponse, messages: u64) -> Option<Identity> {
    let svid = message.svids.into_iter().next()?;
    let id = SpiffeId::parse(&svid.spiffe_id).ok()?;
    let chain = chain::split(&svid.x509_svid)?;
    let mut bundles =
        BTreeMap::from([(id.trust_domain().clone(), Bundle::from_der(&svid.bundle).ok()?)]);
    for (name, authorities) in message.federated_bundles {
        let name = TrustDomain::parse(name.strip_prefix("spiffe://")?).ok()?;
        bundles.insert(name, Bundle::from_der(&authorities).ok()?);
    }
    let chain = chain.into_iter().map(CertificateDer::into_owned).collect();
    Some(Identity { messages, id, chain, bundles })
}
