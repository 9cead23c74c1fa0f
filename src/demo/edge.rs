//! A small TLS edge in place of a router: it serves every Route's host with the certificate in the
//! Route, and names Route and certificate in every answer.
//!
//! Like a router it admits Routes, refuses the same ones, and writes `.status.ingress`. Unlike a
//! router it speaks no plain HTTP, has one backend in this process, and uses rustls instead of
//! HAProxy; it reports where that makes a difference.
//!
//! `admit.rs`, `table.rs` and `status.rs` decide, without client or clock. This file connects them
//! with a watch; `connection.rs` serves clients.

mod admit;
mod backend;
mod connection;
mod hello;
mod route;
mod status;
mod table;
mod trust;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use http::HeaderName;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rustls::{
    ClientConfig, ServerConfig,
    server::{NoServerSessionStorage, ResolvesServerCert},
    sign::SingleCertAndKey,
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::BoxError;

use self::{
    admit::Certificate,
    backend::Backends,
    route::Route,
    table::{Entry, Table},
};
use super::{
    authority::{Authority, self_signed},
    certificate_summary::CertificateSummary,
    loopback::{self, Port},
};
use crate::{
    k8s::{
        api_error::{self, ApiError},
        backoff::Backoff,
        object_ref::ObjectRef,
        queue::Queue,
        watch::{Change, Watch},
    },
    runtime::clock::Clock,
};

pub use status::ROUTER_NAME;

/// Response header with the Route, as NAMESPACE/NAME.
pub const ROUTE_HEADER: HeaderName = HeaderName::from_static("x-trustplane-route");
/// Response header with the certificate of the handshake, as sha256:DIGEST.
pub const CERTIFICATE_HEADER: HeaderName = HeaderName::from_static("x-trustplane-certificate");
/// Request header for backends with the line that the edge would answer.
const EDGE_HEADER: HeaderName = HeaderName::from_static("x-trustplane-edge");

const WATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Concurrent status writes. Enough to admit 10,000 Routes quickly.
const WRITERS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    #[error("cannot listen on 127.0.0.1 port {port} for the edge. Choose another with --edge-port")]
    Listen { port: u16, source: io::Error },
    #[error("cannot make the edge's certificates")]
    Certificate(#[source] BoxError),
}

/// A running edge. Dropping it stops it.
#[derive(Debug)]
pub struct RunningEdge {
    address: SocketAddr,
    default: CertificateSummary,
    services: String,
    tasks: JoinSet<()>,
    _stop: DropGuard,
}

impl RunningEdge {
    /// Serves the Routes of the cluster behind this client.
    pub async fn start(client: Client, port: Port, clock: Clock) -> Result<Self, EdgeError> {
        let (Port::Exactly(number) | Port::Rather(number)) = port;
        let failed = |source| EdgeError::Listen { port: number, source };
        let listener = loopback::listen(port).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let authority = Authority::new("trustplane sandbox services", clock.now());
        let authority = authority.map_err(certificate_error)?;
        let services = authority.pem();
        let edge = Arc::new(Edge::new(client, authority, clock).map_err(certificate_error)?);
        let default = edge.default.summary.clone();

        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(edge.clone().follow_routes());
        for _ in 0..WRITERS {
            tasks.spawn(edge.clone().write_status());
        }
        tasks.spawn(loopback::accept(listener, stop.clone(), move |stream, client| {
            connection::serve(edge.clone(), stream, client)
        }));
        Ok(Self { address, default, services, tasks, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate for Routes without one.
    pub fn default_certificate(&self) -> &CertificateSummary {
        &self.default
    }

    /// CA of the backend in this process, in PEM, for `destinationCACertificate`.
    pub fn service_authority(&self) -> &str {
        &self.services
    }

    /// Resolves only if the edge stops by itself, which is a bug.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}

fn certificate_error(error: impl Into<BoxError>) -> EdgeError {
    EdgeError::Certificate(error.into())
}

struct Edge {
    client: Client,
    clock: Clock,
    table: RwLock<Table>,
    unwritten: Queue<ObjectRef>,
    default: Arc<Certificate>,
    config: ServerConfig,
    services: Arc<ClientConfig>,
    backends: Backends,
}

impl Edge {
    fn new(client: Client, services: Authority, clock: Clock) -> Result<Self, BoxError> {
        let issued = self_signed("trustplane sandbox default", &["localhost"], clock.now())?;
        let default = Arc::new(Certificate::new(vec![issued.der.clone()], &issued.key_der())?);
        Ok(Self {
            config: base_config(Arc::new(SingleCertAndKey::from(default.certified.clone())))?,
            services: trust::in_services(services.der())?,
            backends: Backends::new(client.clone(), services, clock.clone())?,
            client,
            clock,
            table: RwLock::default(),
            unwritten: Queue::default(),
            default,
        })
    }

    /// TLS configuration that serves this certificate.
    fn config(&self, certificate: &Certificate) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certificate.certified.clone()));
        Arc::new(config)
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow_routes(self: Arc<Self>) {
        let api = Api::all(self.client.clone());
        let follow: Watch<Route> =
            Watch { api, fields: None, timeout: WATCH_TIMEOUT, lists: Arc::new(Semaphore::new(1)) };
        follow
            .run(|change| {
                let concerned = match change {
                    Change::Applied(route) => self.applied(route),
                    Change::Deleted(place) | Change::Undecodable(place) => {
                        self.table_mut().remove(&place)
                    }
                    Change::Listing => Vec::new(),
                    Change::Listed(places) => {
                        let listed = places.into_iter().collect();
                        self.table_mut().listed(&listed)
                    }
                    Change::Failing(error, failures) => {
                        tracing::debug!(%error, failures, "edge: watch failed, reopening");
                        Vec::new()
                    }
                };
                for at in concerned {
                    self.unwritten.add(at);
                }
            })
            .await;
    }

    fn applied(&self, route: Route) -> Vec<ObjectRef> {
        let at = ObjectRef::new(
            route.metadata.namespace.clone().unwrap_or_default(),
            route.metadata.name.clone().unwrap_or_default(),
        );
        // Most changes are to the status and leave the certificate as it is.
        let known = self.table().get(&at).filter(|it| it.spec == route.spec).cloned();
        let offer = match known {
            Some(known) => known.offer.clone(),
            None => admit::offer(&route.spec, &self.services).map(Arc::new),
        };
        // From here on new handshakes get the new certificate; running ones keep theirs.
        self.table_mut().apply(Entry::new(route, offer))
    }

    async fn write_status(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let (at, _) = self.unwritten.next().await;
            match self.write_one(&at).await {
                Ok(()) => failures = 0,
                // The watch delivers the newer version or the deletion, which is processed then.
                Err(ApiError::Conflict | ApiError::NotFound) => {}
                Err(error) => {
                    failures += 1;
                    tracing::warn!(route = %at, %error, "edge: writing .status.ingress failed");
                    let again = Instant::now() + Backoff::WATCH.after(failures);
                    self.unwritten.add_at(at.clone(), again);
                }
            }
            self.unwritten.done(&at);
        }
    }

    async fn write_one(&self, at: &ObjectRef) -> Result<(), ApiError> {
        let patch = {
            let table = self.table();
            let Some(entry) = table.get(at) else { return Ok(()) };
            status::patch(entry, &table.admission(entry), self.clock.now())
        };
        let Some(patch) = patch else { return Ok(()) };
        let api: Api<Route> = Api::namespaced(self.client.clone(), &at.namespace);
        let params = PatchParams::default();
        api_error::with_timeout(api.patch_status(&at.name, &params, &Patch::Merge(patch))).await?;
        Ok(())
    }
}

/// TLS settings of the edge and its backend. Sessions can't be resumed: a client that resumes one
/// would not see the current certificate.
fn base_config(resolver: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
