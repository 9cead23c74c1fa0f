//! Fetches the bundle of a federation from where it was decided.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use rustls::RootCertStore;
use tokio::time::Instant;

use crate::{
    authority::decide::{
        endpoint::{Proof, Source},
        problem::Problem,
        sync::Received,
    },
    bundle::fetch::{self, Endpoint, Redirects, Trust},
    spiffe::bundle::Bundle,
};

/// For which endpoints the exact error is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorDetail {
    /// Those with a public address. People who may create a federation could probe the cluster's network
    /// otherwise.
    Public,
    All,
}

/// Brings bundles. A simulation has one without a network.
pub trait Fetcher: Send + Sync {
    fn receive(
        &self,
        source: Source,
        now: DateTime<Utc>,
    ) -> BoxFuture<'_, Result<Received, Problem>>;
}

/// From endpoints, over TCP and TLS.
pub struct NetworkFetcher {
    /// For https_web without a `caBundle`.
    pub roots: Arc<RootCertStore>,
    pub detail: ErrorDetail,
    /// For a whole fetch.
    pub patience: Duration,
}

impl Fetcher for NetworkFetcher {
    fn receive(
        &self,
        source: Source,
        now: DateTime<Utc>,
    ) -> BoxFuture<'_, Result<Received, Problem>> {
        self.fetch(source, now).boxed()
    }
}

impl NetworkFetcher {
    async fn fetch(&self, source: Source, now: DateTime<Utc>) -> Result<Received, Problem> {
        let (url, proof, follow) = match source {
            Source::Static(document) => {
                let bundle = Bundle::parse(document.as_bytes()).map_err(Problem::StaticBundle)?;
                return Ok(Received { bundle, document });
            }
            Source::Fetch { url, proof, follow_redirects } => (url, proof, follow_redirects),
        };
        let endpoint = Endpoint { url, trust: trust(proof, &self.roots)? };
        let redirects = if follow { Redirects::Follow } else { Redirects::Refuse };
        let started = Instant::now();
        let attempt = fetch::attempt_within(self.patience, &endpoint, redirects, now).await;
        let hides = attempt.internal && self.detail == ErrorDetail::Public;
        if hides && attempt.outcome.is_err() {
            // A refused connection fails at once, a dropped one after a timeout. If the error must not reveal
            // which it was, neither may the time that it takes.
            tokio::time::sleep_until(started + self.patience).await;
        }
        let fetched = attempt.outcome.map_err(|error| match hides {
            true => Problem::Unreachable(error),
            false => Problem::Fetch(error),
        })?;
        Ok(Received { bundle: fetched.bundle, document: fetched.document })
    }
}

fn trust(proof: Proof, roots: &Arc<RootCertStore>) -> Result<Trust, Problem> {
    match proof {
        Proof::Spiffe { id, bundle } => Ok(Trust::Spiffe { id, bundle }),
        Proof::Web { ca_bundle, pins } => {
            let roots = match ca_bundle {
                None => roots.clone(),
                Some(pem) => Arc::new(own_roots(&pem)?),
            };
            Ok(Trust::Web { roots, pins })
        }
    }
}

fn own_roots(pem: &str) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    let mut pem = pem.as_bytes();
    let certificates = rustls_pemfile::certs(&mut pem).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    match roots.is_empty() {
        true => Err(Problem::CaBundle),
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::net::TcpListener;

    use super::*;

    async fn failure(address: SocketAddr) -> (Duration, Problem) {
        let detail = ErrorDetail::Public;
        let roots = Arc::new(RootCertStore::empty());
        let fetcher = NetworkFetcher { roots, detail, patience: fetch::PATIENCE };
        let source = Source::Fetch {
            url: format!("https://{address}/").parse().unwrap(),
            proof: Proof::Web { ca_bundle: None, pins: Vec::new() },
            follow_redirects: true,
        };
        let started = Instant::now();
        let problem = fetcher.receive(source, Utc::now()).await.unwrap_err();
        (started.elapsed(), problem)
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_a_private_address_takes_to_fail_does_not_tell_a_closed_port_from_a_silent_one()
     {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let closed = free.local_addr().unwrap();
        drop(free);
        for address in [silent.local_addr().unwrap(), closed] {
            let (took, problem) = failure(address).await;
            assert_eq!(took.as_secs(), fetch::PATIENCE.as_secs(), "{problem:?}");
            assert_eq!(
                problem.to_string(),
                "unreachable. The log of trustplane authority says why"
            );
        }
    }
}
