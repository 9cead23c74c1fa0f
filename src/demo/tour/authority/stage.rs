//! Our cluster with `trustplane authority`, and a partner's with a stand-in for SPIRE.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use chrono::TimeDelta;
use http::{Method, Uri};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::audit_trail::AuditTrail;
use crate::{
    api::{
        federated_trust_domain,
        spiffe_federation::{self, SpiffeFederation},
    },
    authority::{
        act::{
            apply::BUNDLE,
            fetch::{ErrorDetail, NetworkFetcher},
        },
        decide::{ca, sync},
        join::server::JoinOptions,
        metrics::{Metrics, Source},
        run::{Authority, ENDPOINT_PATH, Options, PATH},
    },
    bundle::fetch::PATIENCE,
    demo::{
        spire::{Spire, SpireError},
        tour::{
            parts::{Parts, cluster},
            steps::send,
        },
    },
    k8s::{
        api_error::{self, ApiError},
        gate::Gate,
    },
    names::{BUNDLE_CONFIG_MAP, NAMESPACE, REQUESTS_CONFIG_MAP, ROTATE_ANNOTATION},
    runtime::{audit_log::AuditLog, clock::Clock, tls_listener::PeerAddress},
    spiffe::id::{IdError, SpiffeId, TrustDomain},
};

pub const TRUST_DOMAIN: &str = "example.org";
/// The partner's trust domain, and the name of our SPIFFEFederation for it.
pub const PARTNER: &str = "partner.example";
/// Refresh hint of both bundles: a second, so that visitors need not wait minutes as in a cluster.
const REFRESH_HINT: TimeDelta = TimeDelta::seconds(1);
/// Of our CA's state.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A port of this machine is bound within this.
const BIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether others can join us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    Off,
    Served,
}

pub struct Stage {
    /// Of our cluster.
    pub client: Client,
    partner_client: Client,
    /// Stand-in for the partner's SPIRE server.
    pub partner: Arc<Spire>,
    /// The partner's bundle of today, which is an old copy later.
    pub old_copy: String,
    /// Of our https_spiffe endpoint.
    pub endpoint_id: SpiffeId,
    pub endpoint_url: Uri,
    /// Of the join service; none if it is off.
    pub join_address: Option<SocketAddr>,
    pub audit: AuditTrail,
    pub clock: Clock,
    /// Timeout for our first bundle.
    pub patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spire(#[from] SpireError),
    #[error("not the name of a trust domain")]
    Name(#[from] IdError),
    /// The initial objects could not be created.
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[from] ApiError),
    #[error("cannot listen on a port of 127.0.0.1 for trustplane authority")]
    Port,
}

impl Stage {
    pub async fn start(patience: Duration, joins: Joins) -> Result<(Self, Parts), StartError> {
        let (clock, mut parts) = (Clock::system(), Parts::default());
        let client = cluster(NAMESPACE, &clock).await?;
        let partner_client = cluster("spire", &clock).await?;
        let hint = REFRESH_HINT.num_seconds().unsigned_abs();
        let followed = partner_client.clone();
        let partner = Spire::start(PARTNER, hint, followed, "spire", clock.clone()).await?;
        parts.spawn("the partner's stand-in for SPIRE", partner.clone().run());

        let (trust_domain, audit) = (TrustDomain::parse(TRUST_DOMAIN)?, AuditTrail::default());
        let endpoint_id = SpiffeId::parse(&format!("spiffe://{TRUST_DOMAIN}{ENDPOINT_PATH}"))?;
        let authority = authority(&client, &clock, trust_domain, &audit, joins);
        let running = authority.clone().run(CancellationToken::new());
        parts.spawn("trustplane authority", async move {
            if let Err(error) = running.await {
                tracing::error!(error = format!("{error:#}"), "trustplane authority failed");
            }
        });
        let address = bound(|| authority.spiffe_address()).await.ok_or(StartError::Port)?;
        let endpoint_url = format!("https://{address}{PATH}");
        let endpoint_url = endpoint_url.parse::<Uri>().map_err(|_| StartError::Port)?;
        let join_address = match joins {
            Joins::Off => None,
            Joins::Served => {
                Some(bound(|| authority.join_address()).await.ok_or(StartError::Port)?)
            }
        };
        let old_copy = partner.document();
        let stage = Self {
            client,
            partner_client,
            partner,
            old_copy,
            endpoint_id,
            endpoint_url,
            join_address,
            audit,
            clock,
            patience,
        };
        Ok((stage, parts))
    }

    /// Our bundle as it is published for people, as soon as there is one.
    pub async fn published(&self) -> Result<Option<String>, ApiError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let start = Instant::now();
        loop {
            let found = api_error::with_timeout(api.get_opt(BUNDLE_CONFIG_MAP)).await?;
            let document = found.and_then(|it| it.data?.remove(BUNDLE));
            if document.is_some() || start.elapsed() > self.patience {
                return Ok(document);
            }
            sleep(Duration::from_millis(25)).await;
        }
    }

    /// Makes the partner's SPIRE server federate with us.
    pub async fn federate_partner(&self, first_bundle: &str) -> Result<(), ApiError> {
        let api_version =
            format!("{}/{}", federated_trust_domain::GROUP, federated_trust_domain::VERSION);
        let object = json!({
            "apiVersion": api_version,
            "kind": federated_trust_domain::KIND,
            "metadata": { "name": TRUST_DOMAIN },
            "spec": {
                "trustDomain": TRUST_DOMAIN,
                "bundleEndpointURL": self.endpoint_url.to_string(),
                "bundleEndpointProfile": {
                    "type": "https_spiffe",
                    "endpointSPIFFEID": self.endpoint_id.to_string(),
                },
                "trustDomainBundle": first_bundle,
            },
        });
        let path = format!("/apis/{api_version}/clusterfederatedtrustdomains");
        send(&self.partner_client, Method::POST, path, object).await
    }

    /// Makes us federate with the partner.
    pub async fn federate(&self, endpoint_id: &SpiffeId) -> Result<(), ApiError> {
        let object = json!({
            "apiVersion": spiffe_federation::API_VERSION,
            "kind": spiffe_federation::KIND,
            "metadata": { "name": PARTNER },
            "spec": {
                "bundleSource": {
                    "httpsSPIFFE": {
                        "bundleEndpointURL": self.partner.url(),
                        "endpointSPIFFEID": endpoint_id.to_string(),
                        "bundleBootstrap": self.partner.document(),
                    },
                },
            },
        });
        send(&self.client, Method::POST, federations(), object).await
    }

    pub async fn federation(&self) -> Result<Option<SpiffeFederation>, ApiError> {
        let api: Api<SpiffeFederation> = Api::all(self.client.clone());
        api_error::with_timeout(api.get_opt(PARTNER)).await
    }

    pub async fn delete_federation(&self) -> Result<(), ApiError> {
        let path = format!("{}/{PARTNER}", federations());
        send(&self.client, Method::DELETE, path, Value::Null).await
    }

    /// `trustplane spiffe rotate`.
    pub async fn rotate(&self) -> Result<(), ApiError> {
        let request = self.clock.now().to_rfc3339();
        let patch = json!({ "metadata": { "annotations": { ROTATE_ANNOTATION: request } } });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{REQUESTS_CONFIG_MAP}");
        send(&self.client, Method::PATCH, path, patch).await
    }
}

fn federations() -> String {
    format!("/apis/{}/spiffefederations", spiffe_federation::API_VERSION)
}

/// The defaults of an installation, but for times and ports.
fn authority(
    client: &Client,
    clock: &Clock,
    trust_domain: TrustDomain,
    audit: &AuditTrail,
    joins: Joins,
) -> Arc<Authority> {
    let join = JoinOptions {
        listen: Some(([127, 0, 0, 1], 0).into()),
        client: client.clone(),
        certificate: None,
        peers: PeerAddress::Connection,
    };
    let options = Options {
        trust_domain,
        namespace: NAMESPACE.to_owned(),
        ca: ca::Policy {
            refresh_hint: REFRESH_HINT,
            ca_ttl: TimeDelta::hours(1),
            svid_ttl: TimeDelta::minutes(10),
        },
        sync: sync::Policy { shortest_interval: REFRESH_HINT },
        new_authority: false,
        spiffe_listen: Some(([127, 0, 0, 1], 0).into()),
        web: None,
        join: (joins == Joins::Served).then_some(join),
        poll: POLL_INTERVAL,
        watch_timeout: Duration::from_secs(60),
        instance: "sandbox".to_owned(),
    };
    let (gate, audit) = (Gate::open(), AuditLog::to(Box::new(audit.clone())));
    // No endpoint here has a certificate of a public CA. Nothing is private either, and visitors should
    // see why a fetch fails.
    let roots = Arc::new(RootCertStore::empty());
    let fetcher = Box::new(NetworkFetcher { roots, detail: ErrorDetail::All, patience: PATIENCE });
    let metrics = Metrics::register(&mut Registry::default(), Source::new(clock.clone()));
    Authority::new(client.clone(), gate, clock.clone(), options, audit, fetcher, metrics)
}

/// None if the port is not bound in time.
async fn bound(address: impl Fn() -> Option<SocketAddr>) -> Option<SocketAddr> {
    let start = Instant::now();
    while start.elapsed() < BIND_TIMEOUT {
        match address() {
            None => sleep(Duration::from_millis(5)).await,
            bound => return bound,
        }
    }
    None
}
