//! The SPIFFE Workload API: every answer is whole, and made from one snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream};
use prost::Message;
use tokio::{net::UnixListener, sync::watch, time::Instant};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::Grpc,
    transport::{Error, Server, server::UdsConnectInfo},
};
use tonic_prost::ProstCodec;
use tower::Service;

use super::{
    connections::Connections,
    messages::{
        Empty, FETCH_JWT_BUNDLES, FETCH_JWT_SVID, FETCH_X509_BUNDLES, FETCH_X509_SVID, HEADER,
        JwtBundlesResponse, VALIDATE_JWT_SVID, ValidateJwtSvidRequest, ValidateJwtSvidResponse,
        X509BundlesResponse, X509Svid, X509SvidResponse,
    },
    metrics::Metrics,
    refusal_log::RefusalLog,
};
use crate::{
    authority::decide::agent::Snapshot,
    runtime::clock::Clock,
    spiffe::{
        bundle::{Bundle, write},
        id::TrustDomain,
        jwt,
    },
};

/// A stream looks at the clock this often, which may be set while it waits.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// None until the first join.
pub type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

#[derive(Clone)]
pub struct WorkloadApi {
    pub snapshots: Snapshots,
    /// Users that get our SVID.
    pub allowed: Arc<BTreeSet<u32>>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub refusals: Arc<RefusalLog>,
    /// Ends the streams, and then the service.
    pub stop: CancellationToken,
}

impl Service<http::Request<Body>> for WorkloadApi {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.clone().answer(request).map(Ok).boxed()
    }
}

impl WorkloadApi {
    /// Serves until asked to stop.
    pub async fn serve(self, listener: UnixListener) -> Result<(), Error> {
        let connections = Arc::new(Connections::new(&self.allowed));
        let incoming = UnixListenerStream::new(listener).filter_map(move |accepted| {
            let admitted = accepted.map(|stream| connections.admit(stream)).transpose();
            async move { admitted }
        });
        let stop = self.stop.clone();
        Server::builder().serve_with_incoming_shutdown(self, incoming, stop.cancelled_owned()).await
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        if let Err(status) = self.admit(&request) {
            return status.into_http();
        }
        match request.uri().path() {
            FETCH_X509_SVID => self.stream(request, x509_svid).await,
            FETCH_X509_BUNDLES => self.stream(request, x509_bundles).await,
            FETCH_JWT_BUNDLES => self.stream(request, jwt_bundles).await,
            VALIDATE_JWT_SVID => self.validate(request).await,
            FETCH_JWT_SVID => {
                let why = "this agent issues no JWT-SVIDs; use the X.509-SVID";
                Status::permission_denied(why).into_http()
            }
            _ => Status::unimplemented("not a method that this agent serves").into_http(),
        }
    }

    fn admit(&self, request: &http::Request<Body>) -> Result<(), Status> {
        if request.headers().get(HEADER).is_none_or(|it| it != "true") {
            let why = format!("the metadata {HEADER}: true is needed");
            return Err(Status::invalid_argument(why));
        }
        let connection = request.extensions().get::<UdsConnectInfo>();
        let user = connection.and_then(|it| it.peer_cred).map(|it| it.uid());
        match user {
            Some(user) if self.allowed.contains(&user) => Ok(()),
            _ => {
                if self.refusals.is_due(user, Instant::now()) {
                    tracing::warn!(user, "workload refused");
                }
                Err(Status::permission_denied(
                    "no identity is issued to this user; trustplane agent --allow-uid adds one",
                ))
            }
        }
    }

    fn current(&self) -> Result<Arc<Snapshot>, Status> {
        let snapshot = self.snapshots.borrow().clone();
        let snapshot =
            snapshot.ok_or_else(|| Status::unavailable("the agent has not joined yet"))?;
        match snapshot.is_served_at(self.clock.now()) {
            true => Ok(snapshot),
            false => {
                let why = "the agent is cut off from its trust domain, and its SVID has ended";
                Err(Status::unavailable(why))
            }
        }
    }

    async fn stream<M>(
        self,
        request: http::Request<Body>,
        make: fn(&Snapshot) -> M,
    ) -> http::Response<Body>
    where
        M: Message + PartialEq + Default + 'static,
    {
        let service = tower::service_fn(move |_: Request<Empty>| {
            let this = self.clone();
            async move {
                this.current()?;
                Ok(Response::new(this.subscribe(make)))
            }
        });
        Grpc::new(ProstCodec::<M, Empty>::default()).server_streaming(service, request).await
    }

    /// The newest at once, then what differs from it. A reader that is slow misses what is no longer true.
    fn subscribe<M>(
        self,
        make: fn(&Snapshot) -> M,
    ) -> impl Stream<Item = Result<M, Status>> + Send + 'static
    where
        M: PartialEq + Send + 'static,
    {
        let open = Subscription::new(self.metrics.clone());
        let start = Some((self, None::<Arc<Snapshot>>, open));
        stream::unfold(start, move |state| async move {
            let (mut this, sent, open) = state?;
            loop {
                if this.stop.is_cancelled() {
                    return Some((Err(Status::unavailable("the agent stops")), None));
                }
                this.snapshots.mark_unchanged();
                let snapshot = match this.current() {
                    Ok(snapshot) => snapshot,
                    Err(status) => return Some((Err(status), None)),
                };
                let message = make(&snapshot);
                if sent.as_ref().is_none_or(|sent| make(sent) != message) {
                    return Some((Ok(message), Some((this, Some(snapshot), open))));
                }
                let end = snapshot.svid.not_after + chrono::TimeDelta::seconds(1);
                let wait = this.clock.until(end).min(CLOCK_CHECK);
                tokio::select! {
                    () = this.stop.cancelled() => {}
                    changed = this.snapshots.changed() => {
                        // Only at the agent's end.
                        changed.ok()?;
                    }
                    () = tokio::time::sleep(wait) => {}
                }
            }
        })
    }

    async fn validate(self, request: http::Request<Body>) -> http::Response<Body> {
        let service = tower::service_fn(move |request: Request<ValidateJwtSvidRequest>| {
            let answer = self.validated(&request.into_inner());
            async move { answer.map(Response::new) }
        });
        let codec = ProstCodec::<ValidateJwtSvidResponse, ValidateJwtSvidRequest>::default();
        Grpc::new(codec).unary(service, request).await
    }

    fn validated(
        &self,
        request: &ValidateJwtSvidRequest,
    ) -> Result<ValidateJwtSvidResponse, Status> {
        if request.audience.is_empty() || request.svid.is_empty() {
            return Err(Status::invalid_argument("audience and svid are needed"));
        }
        let snapshot = self.current()?;
        let bundle_of = |trust_domain: &TrustDomain| snapshot.bundles.get(trust_domain);
        let verified = jwt::verify(&request.svid, &request.audience, bundle_of, self.clock.now());
        let svid = verified.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(ValidateJwtSvidResponse {
            spiffe_id: svid.id.to_string(),
            claims: Some(svid.claims.into()),
        })
    }
}

/// Counts an open stream.
struct Subscription(Arc<Metrics>);

impl Subscription {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.subscriptions.inc();
        Self(metrics)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.subscriptions.dec();
    }
}

fn x509_svid(snapshot: &Snapshot) -> X509SvidResponse {
    let svid = &snapshot.svid;
    let (_, own) = snapshot.bundles.own();
    let svid = X509Svid {
        spiffe_id: svid.id.to_string(),
        x509_svid: svid.chain.iter().flat_map(|it| it.as_ref()).copied().collect(),
        x509_svid_key: svid.key.expose().to_vec(),
        bundle: own.map(authorities).unwrap_or_default(),
        hint: String::new(),
    };
    let mut federated_bundles = x509_by_id(snapshot);
    federated_bundles.remove(&name(snapshot.bundles.own().0));
    X509SvidResponse { svids: vec![svid], crl: Vec::new(), federated_bundles }
}

fn x509_bundles(snapshot: &Snapshot) -> X509BundlesResponse {
    X509BundlesResponse { crl: Vec::new(), bundles: x509_by_id(snapshot) }
}

/// A bundle of another trust domain without authorities is as good as none, and clients fail on it.
fn x509_by_id(snapshot: &Snapshot) -> BTreeMap<String, Vec<u8>> {
    let (own, _) = snapshot.bundles.own();
    let all = snapshot.bundles.iter();
    let usable = all.filter(|(of, it)| *of == own || !it.bundle.x509.is_empty());
    usable.map(|(of, it)| (name(of), authorities(&it.bundle))).collect()
}

fn jwt_bundles(snapshot: &Snapshot) -> JwtBundlesResponse {
    let document = |bundle: &Bundle| write::jwt_document(bundle).into_bytes();
    let bundles = snapshot.bundles.iter().map(|(of, it)| (name(of), document(&it.bundle)));
    JwtBundlesResponse { bundles: bundles.collect() }
}

fn name(trust_domain: &TrustDomain) -> String {
    format!("spiffe://{trust_domain}")
}

/// DER, one after the other.
fn authorities(bundle: &Bundle) -> Vec<u8> {
    bundle.x509.iter().flat_map(|it| it.der().as_ref()).copied().collect()
}
