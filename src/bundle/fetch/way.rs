//! The way to a host: straight, or through the proxy that the environment names.
//!
//! `HTTPS_PROXY` and `NO_PROXY` mean what they mean to the SPIRE server, which fetches the same
//! bundles. A proxy passes bytes on; who is at the other end proves itself to us, not to it.

use http::Uri;
use hyper_util::client::{
    legacy::connect::{HttpConnector, proxy::Tunnel},
    proxy::matcher::Matcher,
};
use tokio::net::{TcpStream, lookup_host};
use tower::Service;

use super::{FetchError, target::Target};

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
    let addresses: Vec<_> = lookup_host(place)
        .await
        .map_err(|_| FetchError::NoSuchHost(target.host.clone()))?
        .collect();
    TcpStream::connect(&*addresses).await.map_err(|error| FetchError::of_connect(&error))
}
