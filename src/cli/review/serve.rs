//! The flags of `trustplane review` when it serves.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use chrono::Utc;
use clap::{Args, ValueEnum};
use futures::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::cluster::namespace_name,
    names::REVIEW_LEASE,
    review::{
        audit::AuditTrail,
        config_file,
        generation::{self, Surroundings},
        metrics::Metrics,
        pages,
        run::{Options, Review},
    },
    runtime::{
        audit_log::AuditLog,
        controller::{Context, Controller, ControllerArgs, Threads, Unable, socket_address},
        flags::at_least_a_second,
        health::Page,
        http_listener::ApiTls,
        tls_listener::{CertReloader, ClientRoots},
    },
};

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The file with the clusters; it is read again when it changes
    #[arg(long, env = "TRUSTPLANE_REVIEW_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,

    /// The address that serves TokenReview
    #[arg(
        long,
        env = "TRUSTPLANE_SERVE_LISTEN",
        value_parser = socket_address,
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    serve_listen: SocketAddr,

    /// The certificate for it; it is read again when it changes
    #[arg(
        long,
        env = "TRUSTPLANE_SERVE_CERT_FILE",
        requires = "serve_key_file",
        value_name = "PATH"
    )]
    serve_cert_file: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(
        long,
        env = "TRUSTPLANE_SERVE_KEY_FILE",
        requires = "serve_cert_file",
        value_name = "PATH"
    )]
    serve_key_file: Option<PathBuf>,

    /// Serve without TLS: tokens cross the network in the clear
    #[arg(long, env = "TRUSTPLANE_PLAIN_HTTP", conflicts_with_all = ["serve_cert_file", "client_ca_file"])]
    plain_http: bool,

    /// Callers may show a certificate of these CAs instead of a token; the file is read again when it changes
    #[arg(
        long,
        env = "TRUSTPLANE_CLIENT_CA_FILE",
        requires = "serve_cert_file",
        value_name = "PATH"
    )]
    client_ca_file: Option<PathBuf>,

    /// Whether callers must say who they are
    #[arg(
        long,
        env = "TRUSTPLANE_CALLER_AUTH",
        value_enum,
        default_value = "required",
        value_name = "HOW"
    )]
    caller_auth: CallerAuth,

    /// How often the keys of each cluster are fetched; tokens with a new key have them fetched at once
    #[arg(long, env = "TRUSTPLANE_JWKS_REFRESH", value_parser = at_least_a_second, default_value = "5m", value_name = "DURATION")]
    jwks_refresh: Duration,

    /// The namespace of the Secret with renewed credentials and of the ConfigMap with the state of the clusters
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = "trustplane", value_name = "NAME")]
    namespace: String,

    /// Where audit records go, one line of JSON for each review; - is the standard output
    #[arg(long, env = "TRUSTPLANE_AUDIT_FILE", default_value = "-", value_name = "PATH")]
    audit_file: PathBuf,

    #[command(flatten)]
    controller: ControllerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CallerAuth {
    /// By a token of a cluster, or a certificate
    Required,
    /// Whoever reaches the address may find out what a stolen token is good for
    None,
}

impl ServeArgs {
    pub fn run(self) -> anyhow::Result<()> {
        if self.controller.dry_run {
            bail!(Unable(anyhow!(
                "trustplane review has no --dry-run. See how it stands with the clusters: trustplane review check"
            )));
        }
        let Some(config) = self.config.clone() else {
            bail!(Unable(anyhow!(
                "name the file with the clusters: --config clusters.yaml. trustplane review register writes one"
            )));
        };
        let loaded = config_file::load(&config).map_err(|error| Unable(anyhow!(error)))?;
        let tls = self.tls()?;
        let audit = AuditLog::open(&self.audit_file).with_context(|| {
            format!("cannot write the audit file {}", self.audit_file.display())
        })?;
        let options = Options { config, listen: self.serve_listen };
        let (namespace, jwks_refresh) = (self.namespace, self.jwks_refresh);
        let instance = self.controller.instance();
        let caller_auth = match self.caller_auth {
            CallerAuth::Required => generation::CallerAuth::Required,
            CallerAuth::None => generation::CallerAuth::None,
        };
        self.controller.run(REVIEW_LEASE, move |_, context| {
            warn(caller_auth, tls.is_none());
            let Context { client, ungated, config, gate, clock, registry } = context;
            let metrics = Metrics::register(registry);
            let audit = AuditTrail::new(Arc::new(audit), metrics.clone(), clock.clone());
            let around = Surroundings {
                caller_auth,
                jwks_refresh,
                local: config,
                namespace,
                client,
                ungated,
                gate,
                audit: Arc::new(audit),
                limits: Arc::default(),
                renewals: metrics.renewals(),
                instance,
                clock,
            };
            Review::new(options, tls, loaded, around, metrics)
        })
    }

    fn tls(&self) -> anyhow::Result<Option<ApiTls>> {
        let (Some(certificate), Some(key)) = (&self.serve_cert_file, &self.serve_key_file) else {
            if self.plain_http {
                return Ok(None);
            }
            bail!(Unable(anyhow!(
                "callers send tokens, so they need TLS: add --serve-cert-file and --serve-key-file. Where something \
                 else encrypts, --plain-http serves without"
            )));
        };
        let certificate = CertReloader::read(certificate, key);
        let certificate =
            certificate.context("cannot use --serve-cert-file with --serve-key-file")?;
        let roots = self.client_ca_file.as_deref().map(ClientRoots::read).transpose();
        let client_roots = roots.context("cannot use --client-ca-file")?;
        Ok(Some(ApiTls { certificate, client_roots }))
    }
}

fn warn(caller_auth: generation::CallerAuth, is_plain: bool) {
    if caller_auth == generation::CallerAuth::None {
        tracing::warn!("--caller-auth=none: whoever reaches us may ask about any token");
    }
    if is_plain {
        tracing::warn!("--plain-http: tokens cross the network in the clear");
    }
}

impl Controller for Review {
    const THREADS: Threads = Threads::AllCores;

    fn waiting_for(&self) -> Vec<String> {
        self.waiting_for()
    }

    fn pages(self: Arc<Self>) -> Vec<Page> {
        let content = move || pages::clusters(&self.generation(), self.config_error(), Utc::now());
        vec![Page { path: pages::CLUSTERS, content: Box::new(content) }]
    }

    fn drain(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        Some(Self::drain(self).boxed())
    }

    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
        Self::run(self, stop).boxed()
    }
}
