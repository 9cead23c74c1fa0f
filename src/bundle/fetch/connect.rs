//! Connects to a host, directly or through the proxy of the environment.
//!
//! `HTTPS_PROXY` and `NO_PROXY` mean the same as to the SPIRE server, which fetches the same bundles. A proxy
//! only forwards bytes; the server still proves its identity to us.
//!
//! Whether a host is internal is judged here, where its address is known: a name that resolves to a public
//! address when it is checked may resolve to a private one a moment later.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

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

use super::{FetchError, Stage, address, target::Target};

/// For one of several addresses: if one is unreachable, as IPv6 often is, another may work.
const EACH: Duration = Duration::from_secs(10);

/// Where a connection may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    /// Not to an address that is not public: a peer out there must not send us into networks of ours.
    Public,
}

/// Sets `internal` if an address that is not public was involved.
pub(super) async fn connect(
    url: &Uri,
    target: &Target,
    reach: Reach,
    internal: &mut bool,
) -> Result<TcpStream, FetchError> {
    // Go, and so the SPIRE server, uses no proxy for this machine.
    let proxied = !is_loopback(&target.host);
    match Matcher::from_env().intercept(url).filter(|_| proxied) {
        None => straight(target, reach, internal).await,
        Some(proxy) => {
            // The proxy resolves the name, and its owner can give the proxy another address than us.
            *internal |= target.host.parse().map_or(true, address::is_internal);
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

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

async fn straight(
    target: &Target,
    reach: Reach,
    internal: &mut bool,
) -> Result<TcpStream, FetchError> {
    let is_name = target.host.parse::<IpAddr>().is_err();
    let known = *internal || (is_name && address::is_internal_name(&target.host));
    // Until a name is resolved, it may be one of the cluster's own.
    *internal = known || (is_name && address::may_be_internal_name(&target.host));
    let addresses = look_up(target).await;
    if !addresses.is_empty() {
        *internal = known;
    }
    let mut error = FetchError::NoSuchHost(target.host.clone());
    for address in addresses {
        let is_internal = address::is_internal(address.ip());
        *internal |= is_internal;
        if is_internal && reach == Reach::Public {
            error = FetchError::PrivateTarget;
            continue;
        }
        match timeout(EACH, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = FetchError::of_connect(&refused),
            Err(_) => error = FetchError::TooSlow { after: EACH, stage: Stage::Began },
        }
    }
    Err(error)
}

/// The addresses of a host. In the file of hosts, Go finds `b.example.` as `b.example`, and the C library
/// does not.
async fn look_up(target: &Target) -> Vec<SocketAddr> {
    let look_up = async |host: &str| {
        let found = lookup_host((host, target.port)).await;
        found.map(Iterator::collect::<Vec<_>>).unwrap_or_default()
    };
    let found = look_up(&target.host).await;
    match target.host.strip_suffix('.') {
        Some(host) if found.is_empty() => look_up(host).await,
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_may_lead_us_to_public_addresses_alone_leads_us_to_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let url: Uri = format!("https://{host}:{port}/").parse().unwrap();
            let target = Target::of(&url).unwrap();
            let mut internal = false;
            let refused = connect(&url, &target, Reach::Public, &mut internal).await;
            assert_eq!(refused.err(), Some(FetchError::PrivateTarget), "{host}");
            assert!(internal, "{host}");
        }
        assert!(listener.accept().now_or_never().is_none(), "nobody has connected");
    }

    #[test]
    fn only_what_is_on_this_machine_is_asked_without_a_proxy() {
        for here in ["localhost", "127.0.0.1", "127.9.9.9", "::1"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["localhost.test", "10.0.0.1", "127.0.0.1.test", "::2"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }
}
