//! Stands in for a SPIRE server and its controller manager where no Pods run: a trust domain with a
//! bundle endpoint, and the bundles of the trust domains that its cluster federates with.
//!
//! Like the real ones it reads `federates_with` in the rendered server.conf and the
//! ClusterFederatedTrustDomains, and keeps the last bundle of a peer that does not answer or is no
//! longer configured until somebody deletes it. It has no entries, agents or JWT keys, and supports
//! only the profile https_spiffe.

pub mod agent;
pub mod trust_domain;

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpSocket},
    time::{Instant, sleep},
};

use self::trust_domain::{TrustDomain, TrustDomainError};
use super::authority::Issued;
use crate::{
    api::federated_trust_domain::FederatedTrustDomain,
    bundle::{
        fetch::{self, FetchError, Fetched, Trust},
        serve::{Endpoint, ServeError, ServerSvid},
    },
    federate::decide::render,
    k8s::api_error::{self, ApiError},
    runtime::{clock::Clock, lock::lock},
    spiffe::{
        bundle::Bundle,
        id::SpiffeId,
        svid::{self, SvidError},
    },
};

/// Path of the SPIFFE ID of every SPIRE server.
const SERVER: &str = "/spire/server";
/// Interval between syncs. A real server polls peers four times per refresh hint.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// A closed port is free again within this.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Backlog of the listener.
const BACKLOG: u32 = 128;

#[derive(Debug, thiserror::Error)]
pub enum SpireError {
    #[error(transparent)]
    TrustDomain(#[from] TrustDomainError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot listen on a port of 127.0.0.1 for the bundle endpoint")]
    Port(#[from] io::Error),
}

/// Why an SVID of another trust domain is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No bundle of its trust domain.
    #[error("there is no bundle of {0} here")]
    NoBundle(String),
    #[error(transparent)]
    Svid(#[from] SvidError),
    /// The bundle endpoint did not answer.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// Stand-in for a SPIRE server.
pub struct Spire {
    client: Client,
    namespace: String,
    clock: Clock,
    address: SocketAddr,
    own: Mutex<TrustDomain>,
    endpoint: tokio::sync::Mutex<Port>,
    held: Mutex<BTreeMap<String, Arc<Bundle>>>,
    /// Bundles imported from ClusterFederatedTrustDomains: each is imported once and then refreshed
    /// from its endpoint.
    imported: Mutex<BTreeMap<String, String>>,
    /// Held while peers are polled, so that no poll uses an outdated configuration.
    sync_lock: tokio::sync::Mutex<()>,
}

enum Port {
    Open(Endpoint),
    /// Bound but not listening: nobody else can take the port, and connections are refused.
    Closed(TcpSocket),
}

/// A trust domain to poll for its bundle.
struct Peer {
    trust_domain: String,
    url: Uri,
    /// SPIFFE ID of its server.
    id: SpiffeId,
}

impl Spire {
    /// Creates the trust domain and serves its bundle, with this refresh hint in seconds.
    /// [`Self::run`] follows the cluster.
    pub async fn start(
        trust_domain: &str,
        refresh_hint: u64,
        client: Client,
        namespace: &str,
        clock: Clock,
    ) -> Result<Arc<Self>, SpireError> {
        let own = TrustDomain::new(trust_domain, refresh_hint, clock.now())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let endpoint = Endpoint::start(listener, own.document(), server_svid(&own, &clock)?)?;
        Ok(Arc::new(Self {
            client,
            namespace: namespace.to_owned(),
            clock,
            address,
            own: Mutex::new(own),
            endpoint: tokio::sync::Mutex::new(Port::Open(endpoint)),
            held: Mutex::default(),
            imported: Mutex::default(),
            sync_lock: tokio::sync::Mutex::default(),
        }))
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn trust_domain(&self) -> String {
        lock(&self.own).name().to_owned()
    }

    /// The bundle document.
    pub fn document(&self) -> String {
        lock(&self.own).document()
    }

    pub fn server_id(&self) -> Result<SpiffeId, TrustDomainError> {
        lock(&self.own).id(SERVER)
    }

    pub fn workload(&self, path: &str) -> Result<(SpiffeId, Issued), TrustDomainError> {
        let own = lock(&self.own);
        Ok((own.id(path)?, own.svid(path, self.clock.now())?))
    }

    /// Whether a workload here accepts this SVID of another trust domain.
    pub fn judge(&self, id: &SpiffeId, chain: &[CertificateDer<'_>]) -> Result<(), Refused> {
        let name = id.trust_domain().as_str();
        let bundle = self.held(name).ok_or_else(|| Refused::NoBundle(name.to_owned()))?;
        svid::verify(chain, id, &bundle, self.clock.now())?;
        Ok(())
    }

    /// Fetches the bundle from another's endpoint.
    pub async fn fetch_from(&self, id: SpiffeId, url: Uri) -> Result<Fetched, Refused> {
        let name = id.trust_domain().to_string();
        let bundle = self.held(&name).ok_or(Refused::NoBundle(name))?;
        let endpoint = fetch::Endpoint { url, trust: Trust::Spiffe { id, bundle } };
        Ok(fetch::fetch(&endpoint, self.clock.now()).await?)
    }

    fn held(&self, trust_domain: &str) -> Option<Arc<Bundle>> {
        lock(&self.held).get(trust_domain).cloned()
    }

    /// `spire-server bundle delete -mode dissociate`.
    pub async fn delete_bundle(&self, trust_domain: &str) {
        let _lock = self.sync_lock.lock().await;
        lock(&self.held).remove(trust_domain);
    }

    /// Adds an authority to the bundle that does not sign yet.
    pub async fn prepare_authority(&self) -> Result<(), SpireError> {
        lock(&self.own).prepare_authority(self.clock.now())?;
        self.update_endpoint().await
    }

    /// Makes the new authority sign and removes the old one from the bundle.
    pub async fn activate_authority(&self) -> Result<(), SpireError> {
        lock(&self.own).activate_authority();
        self.update_endpoint().await
    }

    /// Removes all authorities from the bundle: no SVID of the trust domain is valid any more.
    pub async fn revoke_authorities(&self) -> Result<(), SpireError> {
        lock(&self.own).revoke_authorities();
        self.update_endpoint().await
    }

    /// Serves another document in place of the bundle, until the bundle changes.
    pub async fn serve_instead(&self, document: String) -> Result<(), SpireError> {
        if let Port::Open(endpoint) = &*self.endpoint.lock().await {
            endpoint.replace(document, self.offer()?.1)?;
        }
        Ok(())
    }

    async fn update_endpoint(&self) -> Result<(), SpireError> {
        self.serve_instead(self.document()).await
    }

    fn offer(&self) -> Result<(String, ServerSvid), TrustDomainError> {
        let own = lock(&self.own);
        Ok((own.document(), server_svid(&own, &self.clock)?))
    }

    /// Takes the bundle endpoint down.
    pub async fn close_endpoint(&self) -> Result<(), SpireError> {
        let mut port = self.endpoint.lock().await;
        if matches!(*port, Port::Closed(_)) {
            return Ok(());
        }
        // Another socket keeps the port as soon as it is free.
        let open = std::mem::replace(&mut *port, Port::Closed(TcpSocket::new_v4()?));
        if let Port::Open(endpoint) = open {
            endpoint.stop().await;
        }
        *port = Port::Closed(bound(self.address).await?);
        Ok(())
    }

    /// Brings the endpoint back at the same port.
    pub async fn open_endpoint(&self) -> Result<(), SpireError> {
        let mut port = self.endpoint.lock().await;
        if matches!(*port, Port::Open(_)) {
            return Ok(());
        }
        let (document, svid) = self.offer()?;
        let closed = std::mem::replace(&mut *port, Port::Closed(TcpSocket::new_v4()?));
        if let Port::Closed(socket) = closed {
            *port = Port::Open(Endpoint::start(socket.listen(BACKLOG)?, document, svid)?);
        }
        Ok(())
    }

    /// Follows the configuration in the cluster. Never returns.
    pub async fn run(self: Arc<Self>) {
        loop {
            if let Err(error) = self.sync().await {
                tracing::debug!(%error, "SPIRE stand-in: reading the cluster failed");
            }
            sleep(SYNC_INTERVAL).await;
        }
    }

    async fn sync(&self) -> Result<(), ApiError> {
        let _lock = self.sync_lock.lock().await;
        self.publish().await?;
        let api: Api<FederatedTrustDomain> = Api::all(self.client.clone());
        let domains = api_error::with_timeout(api.list(&Default::default())).await?.items;
        self.import_bundles(&domains);
        let mut peers = self.configured().await?;
        peers.extend(domains.iter().filter_map(relationship));
        for peer in peers {
            // `trustplane federate` reports problems of peers.
            if let Ok(fetched) = self.fetch_from(peer.id, peer.url).await {
                lock(&self.held).insert(peer.trust_domain, Arc::new(fetched.bundle));
            }
        }
        Ok(())
    }

    /// Writes the authorities to the ConfigMap for agents, if there is one.
    async fn publish(&self) -> Result<(), ApiError> {
        const KEY: &str = "bundle.crt";
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(standing) = api_error::with_timeout(api.get_opt(render::BUNDLE)).await? else {
            return Ok(());
        };
        let wanted = lock(&self.own).pem();
        if standing.data.unwrap_or_default().get(KEY) == Some(&wanted) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "data": { KEY: wanted } }));
        api_error::with_timeout(api.patch(render::BUNDLE, &PatchParams::default(), &patch))
            .await
            .map(drop)
    }

    /// Imports the bundles of ClusterFederatedTrustDomains.
    fn import_bundles(&self, domains: &[FederatedTrustDomain]) {
        let mut imported = lock(&self.imported);
        let is_present = |name: &String| domains.iter().any(|it| it.spec.trust_domain == *name);
        imported.retain(|name, _| is_present(name));
        for domain in domains {
            let name = &domain.spec.trust_domain;
            let Some(document) = &domain.spec.trust_domain_bundle else { continue };
            if imported.get(name) != Some(document)
                && let Ok(bundle) = Bundle::parse(document.as_bytes())
            {
                imported.insert(name.clone(), document.clone());
                lock(&self.held).insert(name.clone(), Arc::new(bundle));
            }
        }
    }

    /// Peers in the rendered server.conf.
    async fn configured(&self) -> Result<Vec<Peer>, ApiError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api_error::with_timeout(api.get_opt(render::SERVER)).await?;
        let text = found.and_then(|it| it.data?.remove("server.conf")).unwrap_or_default();
        let read: Value = serde_json::from_str(&text).unwrap_or_default();
        let peers = read["server"]["federation"]["federates_with"].as_object();
        let peer = |(name, peer): (&String, &Value)| {
            let id = &peer["bundle_endpoint_profile"]["https_spiffe"]["endpoint_spiffe_id"];
            peer_of(name, peer["bundle_endpoint_url"].as_str()?, id.as_str()?)
        };
        Ok(peers.into_iter().flatten().filter_map(peer).collect())
    }
}

fn relationship(domain: &FederatedTrustDomain) -> Option<Peer> {
    let spec = &domain.spec;
    let id = spec.bundle_endpoint_profile.endpoint_spiffe_id.as_deref()?;
    peer_of(&spec.trust_domain, &spec.bundle_endpoint_url, id)
}

fn peer_of(trust_domain: &str, url: &str, id: &str) -> Option<Peer> {
    // Fragments are never sent.
    let url = url.split('#').next()?.parse().ok()?;
    Some(Peer { trust_domain: trust_domain.to_owned(), url, id: SpiffeId::parse(id).ok()? })
}

fn server_svid(own: &TrustDomain, clock: &Clock) -> Result<ServerSvid, TrustDomainError> {
    let issued = own.svid(SERVER, clock.now())?;
    Ok(ServerSvid { key: issued.key_der(), chain: vec![issued.der] })
}

/// Binds the port without listening on it.
async fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let start = Instant::now();
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            // The task that accepts connections may not have ended yet.
            Err(error) if start.elapsed() > PORT_TIMEOUT => return Err(error),
            Err(_) => sleep(Duration::from_millis(2)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::api_server;

    fn client() -> Client {
        api_server::server(api_server::store(1_000, 1), Clock::system()).client()
    }

    async fn spire(trust_domain: &str) -> Arc<Spire> {
        Spire::start(trust_domain, 300, client(), "spire", Clock::system()).await.unwrap()
    }

    async fn fetched(by: &Spire, from: &Spire) -> Result<Fetched, Refused> {
        by.fetch_from(from.server_id().unwrap(), from.url().parse().unwrap()).await
    }

    async fn import(to: &Spire, from: &Spire) {
        let api: Api<FederatedTrustDomain> = Api::all(to.client.clone());
        let domain = serde_json::from_value(json!({
            "apiVersion": "spire.spiffe.io/v1alpha1", "kind": "ClusterFederatedTrustDomain",
            "metadata": { "name": from.trust_domain() },
            "spec": {
                "trustDomain": from.trust_domain(),
                "bundleEndpointURL": format!("{}#0123", from.url()),
                "bundleEndpointProfile": {
                    "type": "https_spiffe",
                    "endpointSPIFFEID": from.server_id().unwrap().to_string(),
                },
                "trustDomainBundle": from.document(),
            },
        }));
        api.create(&Default::default(), &domain.unwrap())
            .await
            .expect("the sandbox knows the kind");
    }

    #[tokio::test]
    async fn a_peer_is_followed_as_long_as_somebody_names_it_and_trusted_until_its_bundle_is_deleted()
     {
        let (a, b) = tokio::join!(spire("a.test"), spire("b.test"));
        let trusted = || {
            let (id, svid) = a.workload("/shop").unwrap();
            b.judge(&id, &[svid.der]).is_ok()
        };
        b.sync().await.unwrap();
        assert!(!trusted() && matches!(fetched(&b, &a).await, Err(Refused::NoBundle(_))));

        import(&b, &a).await;
        b.sync().await.unwrap();
        assert!(trusted() && fetched(&b, &a).await.is_ok());

        a.prepare_authority().await.unwrap();
        b.sync().await.unwrap();
        a.activate_authority().await.unwrap();
        assert!(trusted(), "b followed");
        b.sync().await.unwrap();

        let api: Api<FederatedTrustDomain> = Api::all(b.client.clone());
        api.delete("a.test", &Default::default()).await.unwrap();
        b.sync().await.unwrap();
        assert!(trusted(), "the bundle stays");
        a.prepare_authority().await.unwrap();
        b.sync().await.unwrap();
        a.activate_authority().await.unwrap();
        b.sync().await.unwrap();
        assert!(!trusted(), "nobody asks any more");
        b.delete_bundle("a.test").await;
        assert!(matches!(fetched(&b, &a).await, Err(Refused::NoBundle(_))));
    }

    #[tokio::test]
    async fn an_endpoint_goes_down_and_comes_back_at_the_same_port() {
        let (a, b) = tokio::join!(spire("a.test"), spire("b.test"));
        import(&b, &a).await;
        b.sync().await.unwrap();
        for _ in 0..2 {
            a.close_endpoint().await.unwrap();
            a.close_endpoint().await.unwrap();
            let refused = fetched(&b, &a).await;
            assert!(matches!(refused, Err(Refused::Fetch(_))), "{refused:?}");
            a.open_endpoint().await.unwrap();
            a.open_endpoint().await.unwrap();
            assert!(fetched(&b, &a).await.is_ok());
        }
    }

    #[tokio::test]
    async fn its_authorities_are_published_in_the_config_map_that_is_there_for_them() {
        let a = spire("a.test").await;
        a.sync().await.expect("nothing is there yet");
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(a.client.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": "spire" } })).unwrap();
        namespaces.create(&Default::default(), &namespace).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(a.client.clone(), "spire");
        let map = serde_json::from_value(json!({ "metadata": { "name": "spire-bundle" } }));
        maps.create(&Default::default(), &map.unwrap()).await.unwrap();
        a.sync().await.unwrap();
        let published = maps.get("spire-bundle").await.unwrap().data.unwrap();
        let published = Bundle::from_pem(&published["bundle.crt"]).unwrap();
        assert!(published.same_keys(&Bundle::parse(a.document().as_bytes()).unwrap()));
    }
}
