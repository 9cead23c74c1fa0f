//! Two clusters, and `trustplane review` in the first, with TLS on a port of its own.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Method};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::clusters::{Cluster, ClusterError, NAMESPACE};
use crate::{
    demo::{
        authority::Authority,
        private_folder::{FolderError, PrivateFolder},
        tour::{parts::Parts, steps::send},
    },
    k8s::{
        api_error::ApiError,
        client::{self, Bearer},
        gate::Gate,
    },
    names,
    review::{
        audit::AuditTrail,
        config_file,
        generation::{CallerAuth, Surroundings},
        metrics::Metrics,
        run::{Options, Review},
    },
    runtime::{
        audit_log::AuditLog, clock::Clock, http_listener::ApiTls, tls_listener::CertReloader,
    },
};

/// The cluster that trustplane review runs in.
pub const HOME: &str = "home";
pub const BRANCH: &str = "branch";
/// Whose tokens are reviewed, in both clusters.
pub const WORKLOAD: &str = "cart";
/// Who asks, in our own cluster.
pub const CALLER: &str = "till";
/// Our own account in the other cluster.
const OURS: &str = "trustplane-review";
/// Of the first credential, which somebody made by hand.
const YEAR: u64 = 365 * 24 * 60 * 60;
const HOUR: u64 = 60 * 60;
/// Hours before the end of tokens that live for ten minutes.
const RENEWAL: &str = "renewal:\n  interval: 1s\n  token_duration: 10m\n  renew_before: 5m\n";
/// A port of this machine is bound within this.
const BIND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("cannot prepare the sandbox's clusters")]
    Prepare(#[from] ApiError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot write into {folder}", folder = .folder.display())]
    Write { folder: std::path::PathBuf, source: io::Error },
    #[error("cannot make a certificate for trustplane review")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the sandbox's configuration")]
    Configuration(#[from] config_file::LoadError),
    #[error("trustplane review did not start")]
    Review(#[source] anyhow::Error),
    #[error("cannot listen on a port of 127.0.0.1 for trustplane review")]
    Port,
    #[error("cannot connect to trustplane review")]
    Connect(#[source] kube::Error),
}

pub struct Stage {
    pub home: Cluster,
    pub branch: Cluster,
    pub review: Arc<Review>,
    /// Asks as the caller.
    pub caller: Client,
    /// The tokens that the present step reviews.
    pub tokens: Mutex<Tokens>,
    _folder: PrivateFolder,
}

#[derive(Clone, Default)]
pub struct Tokens {
    pub home: String,
    pub branch: String,
}

struct CallerToken(HeaderValue);

impl Bearer for CallerToken {
    fn header(&self) -> Option<HeaderValue> {
        Some(self.0.clone())
    }
}

impl Stage {
    pub async fn start() -> Result<(Self, Parts), StartError> {
        let (clock, mut parts) = (Clock::system(), Parts::default());
        let home = Cluster::start(HOME, &clock).await?;
        let branch = Cluster::start(BRANCH, &clock).await?;
        for (cluster, accounts) in [(&home, [WORKLOAD, CALLER]), (&branch, [WORKLOAD, OURS])] {
            for account in accounts {
                cluster.create_account(account).await?;
            }
        }
        let namespace = json!({ "metadata": { "name": names::NAMESPACE } });
        send(&home.client, Method::POST, "/api/v1/namespaces".to_owned(), namespace).await?;
        let folder = PrivateFolder::new()?;
        let first = branch.token(OURS, YEAR).await?;
        write(folder.path(), "clusters.yaml", &configuration(&branch, folder.path()))?;
        write(folder.path(), "branch-ca.crt", &pem(branch.config.root_cert.iter().flatten()))?;
        write(folder.path(), "branch-token", &first)?;
        let authority = Authority::new("trustplane sandbox", clock.now())?;
        let review = review(&home, folder.path(), &authority, &clock)?;
        let running = review.clone().run(CancellationToken::new());
        parts.spawn("trustplane review", async move {
            if let Err(error) = running.await {
                tracing::error!(error = format!("{error:#}"), "trustplane review failed");
            }
        });
        let address = bound(&review).await.ok_or(StartError::Port)?;
        let token = home.token(CALLER, HOUR).await?;
        let caller = caller(address, &authority, &token)?;
        let tokens = Tokens {
            home: home.token(WORKLOAD, HOUR).await?,
            branch: branch.token(WORKLOAD, HOUR).await?,
        };
        let tokens = Mutex::new(tokens);
        Ok((Self { home, branch, review, caller, tokens, _folder: folder }, parts))
    }

    pub fn clusters(&self) -> [&Cluster; 2] {
        [&self.home, &self.branch]
    }
}

fn configuration(branch: &Cluster, folder: &Path) -> String {
    let issuer = "https://kubernetes.default.svc";
    let path = |name: &str| json!(folder.join(name));
    format!(
        "clusters:\n  {HOME}:\n    issuer: {issuer}\n  {BRANCH}:\n    issuer: {issuer}\n    api_server: {}\n    \
         ca_cert: {}\n    token_path: {}\n{RENEWAL}authorized_clients: [{HOME}/{NAMESPACE}/{CALLER}]\n",
        branch.address(),
        path("branch-ca.crt"),
        path("branch-token"),
    )
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), StartError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name));
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| StartError::Write { folder: folder.to_owned(), source })
}

fn pem<'a>(certificates: impl Iterator<Item = &'a Vec<u8>>) -> String {
    let block = |der: &Vec<u8>| {
        let text = BASE64_STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    certificates.map(block).collect()
}

fn review(
    home: &Cluster,
    folder: &Path,
    authority: &Authority,
    clock: &Clock,
) -> Result<Arc<Review>, StartError> {
    let issued = authority.issue(&["localhost", "127.0.0.1"], clock.now())?;
    write(folder, "tls.crt", &issued.certificate)?;
    write(folder, "tls.key", issued.key.expose())?;
    let pair = CertReloader::read(&folder.join("tls.crt"), &folder.join("tls.key"));
    let certificate = pair.map_err(|error| StartError::Review(error.into()))?;
    let tls = ApiTls { certificate, client_roots: None };
    let metrics = Metrics::register(&mut Registry::default());
    let log = Arc::new(AuditLog::to(Box::new(io::sink())));
    let config = folder.join("clusters.yaml");
    let loaded = config_file::load(&config)?;
    let around = Surroundings {
        caller_auth: CallerAuth::Required,
        jwks_refresh: Duration::from_secs(300),
        local: home.config.clone(),
        namespace: names::NAMESPACE.to_owned(),
        client: home.client.clone(),
        ungated: home.client.clone(),
        gate: Gate::open(),
        audit: Arc::new(AuditTrail::new(log, metrics.clone(), clock.clone())),
        limits: Arc::default(),
        renewals: metrics.renewals(),
        instance: "trustplane-review-0".to_owned(),
        clock: clock.clone(),
    };
    let options = Options { config, listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
    Review::new(options, Some(tls), loaded, around, metrics).map_err(StartError::Review)
}

/// Its address, once it is ready.
async fn bound(review: &Review) -> Option<SocketAddr> {
    let start = Instant::now();
    while !review.waiting_for().is_empty() && start.elapsed() < BIND_TIMEOUT {
        sleep(Duration::from_millis(10)).await;
    }
    review.address()
}

fn caller(address: SocketAddr, authority: &Authority, token: &str) -> Result<Client, StartError> {
    let url = format!("https://{address}").parse().map_err(|_| StartError::Port)?;
    let mut config = Config::new(url);
    config.root_cert = Some(vec![authority.der().to_vec()]);
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let bearer = CallerToken(header.map_err(|_| ApiError::Undecodable)?);
    client::connect_http2(config, Some(Arc::new(bearer))).map_err(StartError::Connect)
}
