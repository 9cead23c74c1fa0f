//! The way to a host: straight, or through the proxy that the environment names.
//!
//! `HTTPS_PROXY` and `NO_PROXY` mean what they mean to the SPIRE server, which fetches the same
//! bundles. A proxy passes bytes on; who is at the other end proves itself to us, not to it.

use std::time::Duration;

use http::Uri;
use hyper_util::client::{
    legacy::connect::{HttpConnector, proxy::Tunnel},
    proxy::matcher::Matcher,
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tower::Service;

use super::{FetchError, Stage, target::Target};

/// For one address of several: where one leads nowhere, such as IPv6 often does, another may lead there.
const EACH: Duration = Duration::from_secs(10);

/// Connects.
pub(super) async fn connect(url: &Uri, target: &Target) -> Result<TcpStream, FetchError> {
    match Matcher::from_env().intercept(url) {
        None => straight(target).await,
        Some(proxy) => {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpConnector::new());
            if let Some(credentials) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(credentials.clone());
            }
            let through = tunnel.call(url.clone()).await;
            // The error may quote the proxy's address, and with it a password.
            through.map(|stream| stream.into_inner()).map_err(|_| FetchError::Proxy)
        }
    }
}

async fn straight(target: &Target) -> Result<TcpStream, FetchError> {
    let place = (&*target.host, target.port);
    let addresses =
        lookup_host(place).await.map_err(|_| FetchError::NoSuchHost(target.host.clone()))?;
    let mut error = FetchError::NoSuchHost(target.host.clone());
    for address in addresses {
        match timeout(EACH, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = FetchError::of_connect(&refused),
            Err(_) => error = FetchError::TooSlow { after: EACH, stage: Stage::Began },
        }
    }
    Err(error)
}
