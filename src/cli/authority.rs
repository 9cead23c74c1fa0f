//! `trustplane authority`.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use chrono::TimeDelta;
use clap::{Args, ValueEnum};
use futures::{FutureExt, future::BoxFuture};
use rustls::RootCertStore;
use tokio_util::sync::CancellationToken;

use crate::{
    authority::{
        act::fetch::{ErrorDetail, NetworkFetcher},
        decide::{ca, summary::Summary, sync},
        join::server::JoinOptions,
        metrics::{Federations, Metrics, Source},
        run::{Authority, Options},
    },
    bundle::fetch,
    cli::cluster::namespace_name,
    names::AUTHORITY_LEASE,
    runtime::{
        audit_log::AuditLog,
        controller::{Context, Controller, ControllerArgs, Unable, socket_address},
        flags::at_least_a_second,
        tls_listener::{CertReloader, PeerAddress},
    },
    spiffe::id::TrustDomain,
};

/// How often a replica reads the state of our CA, at least.
const POLL: Duration = Duration::from_secs(10);

/// Runs a SPIFFE trust domain: its CA, its bundle endpoint, and the bundles of the trust domains that it
/// federates with.
///
/// The CA's key lies in the Secret trustplane-authority, which is made at the first start. The bundle is
/// served at /webapi/spiffe/bundle.json. A SPIFFEFederation names another trust domain and where its bundle
/// comes from; its status has the newest one. A JoinToken names those of its SPIFFE IDs that get an SVID here,
/// with trustplane join or trustplane agent. The cluster is found as kubectl finds it: KUBECONFIG,
/// ~/.kube/config, or the account of the Pod.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See it work, on this machine and without a cluster:
    trustplane demo authority

  Run the trust domain example.org:
    trustplane authority --trust-domain example.org

  Let others join it, where a JoinToken allows it:
    trustplane authority --trust-domain example.org --join-listen 0.0.0.0:8445

  See what it publishes and whom it trusts:
    trustplane spiffe status

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct AuthorityCommand {
    /// The name of our own trust domain
    #[arg(long, env = "TRUSTPLANE_TRUST_DOMAIN", value_parser = trust_domain, value_name = "NAME")]
    trust_domain: TrustDomain,

    /// The namespace of the Secret with our CA and of the ConfigMap with our bundle
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = "trustplane", value_name = "NAME")]
    namespace: String,

    /// The address that serves our bundle by https_spiffe, with an SVID of our own
    #[arg(
        long,
        env = "TRUSTPLANE_SPIFFE_LISTEN",
        value_parser = socket_address,
        default_value = "127.0.0.1:8443",
        value_name = "ADDRESS"
    )]
    spiffe_listen: SocketAddr,

    /// The address that serves our bundle by https_web, with the next two files
    #[arg(long, env = "TRUSTPLANE_WEB_LISTEN", value_parser = socket_address, requires = "web_cert_file", value_name = "ADDRESS")]
    web_listen: Option<SocketAddr>,

    /// The certificate for https_web; it is read again when it changes
    #[arg(long, env = "TRUSTPLANE_WEB_CERT_FILE", requires = "web_key_file", value_name = "PATH")]
    web_cert_file: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(long, env = "TRUSTPLANE_WEB_KEY_FILE", requires = "web_cert_file", value_name = "PATH")]
    web_key_file: Option<PathBuf>,

    /// The address where others join with an SVID of a federated trust domain, if a JoinToken allows it; it
    /// has the certificate for https_web if there is one, else an SVID of our own [default: nobody can join]
    #[arg(long, env = "TRUSTPLANE_JOIN_LISTEN", value_parser = socket_address, value_name = "ADDRESS")]
    join_listen: Option<SocketAddr>,

    /// Take the address of who joins from the PROXY protocol v2 header that a router sends, and bound the
    /// streams of each; only the router may be able to connect then
    #[arg(long, env = "TRUSTPLANE_PROXY_PROTOCOL", requires = "join_listen")]
    proxy_protocol: bool,

    /// How often others should fetch our bundle
    #[arg(long, env = "TRUSTPLANE_REFRESH_HINT", value_parser = at_least_a_second, default_value = "5m", value_name = "DURATION")]
    refresh_hint: Duration,

    /// How long a CA of ours is valid; the next one takes over in time
    #[arg(long, env = "TRUSTPLANE_CA_TTL", value_parser = at_least_a_second, default_value = "30d", value_name = "DURATION")]
    ca_ttl: Duration,

    /// How long an SVID that we sign is valid at most
    #[arg(long, env = "TRUSTPLANE_SVID_TTL", value_parser = at_least_a_second, default_value = "1h", value_name = "DURATION")]
    svid_ttl: Duration,

    /// Fetch the bundle of another trust domain at most this often, whatever it asks for
    #[arg(long, env = "TRUSTPLANE_MIN_SYNC_INTERVAL", value_parser = at_least_a_second, default_value = "1m", value_name = "DURATION")]
    min_sync_interval: Duration,

    /// Of which endpoints the status says exactly why they cannot be reached; the log always does
    #[arg(
        long,
        env = "TRUSTPLANE_FETCH_ERROR_DETAIL",
        value_enum,
        default_value = "public",
        value_name = "WHICH"
    )]
    fetch_error_detail: Detail,

    /// Where audit records go, one line of JSON each; - is the standard output
    #[arg(long, env = "TRUSTPLANE_AUDIT_FILE", default_value = "-", value_name = "PATH")]
    audit_file: PathBuf,

    /// Make a new CA although the published bundle shows that there was one whose key is lost
    #[arg(long, env = "TRUSTPLANE_NEW_AUTHORITY")]
    new_authority: bool,

    #[command(flatten)]
    controller: ControllerArgs,
}

/// `--fetch-error-detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Detail {
    /// Those at public addresses; of private ones, and behind a proxy, it says only: unreachable
    Public,
    /// All: whoever may create a SPIFFEFederation can find out what listens in private networks
    All,
}

fn trust_domain(text: &str) -> Result<TrustDomain, String> {
    TrustDomain::parse(text).map_err(|error| error.to_string())
}

/// The shortest CA that rotates in time: it takes four hints until the next one may sign.
fn check_times(hint: TimeDelta, ca_ttl: TimeDelta, svid_ttl: TimeDelta) -> Result<(), String> {
    if hint > TimeDelta::days(1) || ca_ttl > TimeDelta::days(3650) {
        return Err("--refresh-hint may be a day at most, and --ca-ttl ten years".to_owned());
    }
    let needed = hint * 18;
    if ca_ttl < needed {
        let needed = humantime::format_duration(needed.to_std().unwrap_or_default());
        return Err(format!(
            "--ca-ttl is too short for this --refresh-hint: a third of it must hold six hints, so it needs at least {needed}"
        ));
    }
    if svid_ttl > ca_ttl / 6 {
        return Err("--svid-ttl may be a sixth of --ca-ttl at most".to_owned());
    }
    Ok(())
}

/// How often a replica reads the state of our CA. A new CA signs four hints after it was decided on, and its
/// clients have three: all replicas must serve it within the first.
fn poll(hint: Duration) -> Duration {
    POLL.min(hint / 2)
}

impl AuthorityCommand {
    pub fn run(self) -> anyhow::Result<()> {
        if self.controller.dry_run {
            bail!(Unable(anyhow!(
                "trustplane authority has no --dry-run. See what it would do with: trustplane spiffe status"
            )));
        }
        let delta = |duration| TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        let (hint, ca_ttl, svid_ttl) =
            (delta(self.refresh_hint), delta(self.ca_ttl), delta(self.svid_ttl));
        check_times(hint, ca_ttl, svid_ttl).map_err(|why| Unable(anyhow!(why)))?;
        let pair = match (&self.web_cert_file, &self.web_key_file) {
            (Some(certificate), Some(key)) => {
                let pair = CertReloader::read(certificate, key);
                Some(pair.context("cannot use --web-cert-file with --web-key-file")?)
            }
            _ => None,
        };
        let web = self.web_listen.zip(pair.clone());
        let (join_listen, peers) = (self.join_listen, self.peers());
        let audit = AuditLog::open(&self.audit_file).with_context(|| {
            format!("cannot write the audit file {}", self.audit_file.display())
        })?;
        let detail = match self.fetch_error_detail {
            Detail::Public => ErrorDetail::Public,
            Detail::All => ErrorDetail::All,
        };
        let mut options = Options {
            trust_domain: self.trust_domain,
            namespace: self.namespace,
            ca: ca::Policy { refresh_hint: hint, ca_ttl, svid_ttl },
            sync: sync::Policy { shortest_interval: delta(self.min_sync_interval) },
            new_authority: self.new_authority,
            spiffe_listen: Some(self.spiffe_listen),
            web,
            join: None,
            poll: poll(self.refresh_hint),
            watch_timeout: self.controller.watch_timeout,
            instance: self.controller.instance(),
        };
        self.controller.run(AUTHORITY_LEASE, move |_, context| {
            // Endpoints with https_spiffe need no roots; those with https_web report the failure.
            let roots = fetch::web_roots().unwrap_or_else(|error| {
                tracing::warn!(%error, "endpoints with https_web cannot be verified without a caBundle");
                Arc::new(RootCertStore::empty())
            });
            let fetcher = Box::new(NetworkFetcher { roots, detail, patience: fetch::PATIENCE });
            let Context { client, ungated, gate, clock, registry, .. } = context;
            options.join = join_listen.map(|listen| JoinOptions {
                listen: Some(listen),
                client: ungated,
                certificate: pair,
                peers,
            });
            let source = Source::new(clock.clone());
            let metrics = Metrics::register(registry, source.clone());
            let authority = Authority::new(client, gate, clock, options, audit, fetcher, metrics);
            let federations: Arc<dyn Federations> = authority.clone();
            source.set(Arc::downgrade(&federations));
            Ok(authority)
        })
    }
}

impl AuthorityCommand {
    fn peers(&self) -> PeerAddress {
        match self.proxy_protocol {
            true => PeerAddress::ProxyHeader,
            false => PeerAddress::Connection,
        }
    }
}

impl Federations for Authority {
    fn federations(&self) -> Vec<Arc<Summary>> {
        self.known_federations()
    }
}

impl Controller for Authority {
    fn waiting_for(&self) -> Vec<String> {
        self.waiting_for()
    }

    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
        Self::run(self, stop).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_serves_a_new_ca_three_hints_before_it_signs() {
        for seconds in [1, 5, 10, 15, 300, 86_400] {
            let hint = Duration::from_secs(seconds);
            // Each wait is longer by up to a tenth, and reading takes a moment.
            assert!(poll(hint).mul_f64(1.1) + hint / 4 <= hint, "{hint:?}: {:?}", poll(hint));
            assert!(poll(hint) <= Duration::from_secs(10));
        }
    }

    #[test]
    fn a_ca_that_could_not_be_replaced_in_time_is_refused() {
        let minutes = TimeDelta::minutes;
        assert!(check_times(minutes(5), TimeDelta::days(30), minutes(60)).is_ok());
        assert!(check_times(minutes(5), minutes(90), minutes(15)).is_ok());
        let short = check_times(minutes(5), minutes(60), minutes(5)).unwrap_err();
        assert!(short.contains("--ca-ttl") && short.contains("1h 30m"), "{short}");
        let long = check_times(minutes(5), TimeDelta::hours(6), TimeDelta::hours(2)).unwrap_err();
        assert!(long.contains("--svid-ttl"), "{long}");
    }
}
