//! Stands in for a SPIRE agent: a Workload API where one workload of the trust domain gets its SVID. It is
//! served by the code of `trustplane agent`. The SVID's key is never written to disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use prometheus_client::registry::Registry;
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

use super::{Spire, trust_domain::TrustDomainError};
use crate::{
    authority::{
        agent::{
            metrics::Metrics,
            service::WorkloadApi,
            socket::{self, BoundSocket, Reach, SocketError},
        },
        decide::agent::{BundlesError, IssuedSvid, Snapshot, TrustedBundles},
    },
    demo::authority::Issued,
    runtime::redact::Pkcs8Key,
    spiffe::{
        id::SpiffeId,
        svid::{PresentedSvid, SvidError},
    },
};

#[derive(Debug, thiserror::Error)]
pub enum SpireAgentError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    TrustDomain(#[from] TrustDomainError),
    #[error(transparent)]
    Svid(#[from] SvidError),
    #[error(transparent)]
    Bundles(#[from] BundlesError),
}

/// Stand-in for a SPIRE agent.
pub struct SpireAgent {
    server: Arc<Spire>,
    /// Of the workload's SPIFFE ID.
    path: &'static str,
    socket: PathBuf,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
}

impl SpireAgent {
    /// Also returns what serves the socket.
    pub async fn start(
        server: Arc<Spire>,
        path: &'static str,
        socket: PathBuf,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), SpireAgentError> {
        let (listener, bound) = socket::bind(&socket, Reach::OwnUser).await?;
        let this = Self { server, path, socket, snapshots: watch::Sender::new(None) };
        this.renew()?;
        let api = WorkloadApi {
            snapshots: this.snapshots.subscribe(),
            allowed: Arc::new(BTreeSet::from([bound.owner])),
            clock: this.server.clock().clone(),
            metrics: Metrics::register(&mut Registry::default()),
            refusals: Arc::default(),
            stop: CancellationToken::new(),
        };
        Ok((this, serve(api, listener, bound)))
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gets a new SVID, as a SPIRE agent does when another authority of its server signs.
    pub fn renew(&self) -> Result<(), SpireAgentError> {
        let (id, issued) = self.server.workload(self.path)?;
        let own = id.trust_domain().clone();
        let document = self.server.document().into_bytes();
        let bundles = TrustedBundles::read(&own, &BTreeMap::from([(own.to_string(), document)]))?;
        let (svid, bundles) = (Arc::new(svid(id, &issued)?), Arc::new(bundles));
        self.snapshots.send_replace(Some(Arc::new(Snapshot { svid, bundles })));
        Ok(())
    }
}

/// Never returns.
async fn serve(api: WorkloadApi, listener: UnixListener, _bound: BoundSocket) {
    if let Err(error) = api.serve(listener).await {
        tracing::error!(%error, "SPIRE stand-in: the Workload API failed");
    }
}

fn svid(id: SpiffeId, issued: &Issued) -> Result<IssuedSvid, SvidError> {
    let chain = vec![issued.der.clone()];
    let (_, not_after) = PresentedSvid::read(&chain)?.validity().ok_or(SvidError::Unreadable)?;
    let key = Pkcs8Key::new(issued.key_der().secret_der().to_vec());
    Ok(IssuedSvid { id, chain, key, not_after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        authority::agent::workload_client::fetch_svid,
        demo::{api_server, private_folder::PrivateFolder},
        runtime::clock::Clock,
        spiffe::{bundle::Bundle, chain, svid},
    };

    #[tokio::test]
    async fn its_workload_gets_an_svid_of_the_authority_that_signs() {
        let client = api_server::server(api_server::store(100, 1), Clock::system()).client();
        let server = Spire::start("a.test", 300, client, "spire", Clock::system()).await.unwrap();
        let folder = PrivateFolder::new().unwrap();
        let socket = folder.path().join("spire.sock");
        let (agent, serving) = SpireAgent::start(server.clone(), "/shop", socket).await.unwrap();
        let serving = tokio::spawn(serving);
        let id = SpiffeId::parse("spiffe://a.test/shop").unwrap();
        let is_valid = async || {
            let (der, _) = fetch_svid(agent.socket()).await.unwrap();
            let bundle = Bundle::parse(server.document().as_bytes()).unwrap();
            let chain = chain::split(&der).unwrap();
            svid::verify(&chain, &id, &bundle, server.clock().now()).is_ok()
        };
        assert!(is_valid().await);
        server.prepare_authority().await.unwrap();
        server.activate_authority().await.unwrap();
        assert!(!is_valid().await, "its authority is gone");
        agent.renew().unwrap();
        assert!(is_valid().await);
        serving.abort();
    }
}
