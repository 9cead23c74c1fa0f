//! Connects to the server of a `kube::Config`, through its proxy if it names one.

use std::{error::Error, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Uri, uri::Scheme};
use hyper::rt::{Read, Write};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{Connection, HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{Config, client::ConfigExt as _};
use rustls::{
    ClientConfig,
    crypto::aws_lc_rs,
    pki_types::{InvalidDnsNameError, ServerName},
};
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use super::{CONNECT_TIMEOUT, Http1, PING_AFTER, Transport};

pub(super) trait Stream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Stream for T {}

pub(super) enum Dialed {
    Http2(Box<dyn Stream>),
    /// Its connections have a pool of their own, so this one was closed.
    Http1,
}

pub(super) type Dial = Box<dyn Fn() -> BoxFuture<'static, Result<Dialed, BoxError>> + Send + Sync>;

impl Transport {
    pub(in crate::k8s) fn to(config: &Config) -> kube::Result<Self> {
        // kube asks for the provider of the process.
        let _ = aws_lc_rs::default_provider().install_default();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // HTTP/1.1 has no pings.
        http.set_keepalive(Some(PING_AFTER));
        http.set_keepalive_interval(Some(Duration::from_secs(1)));
        let Some(proxy) = &config.proxy_url else { return over(config, http) };
        let matcher = Matcher::builder().all(proxy.to_string()).build();
        let intercepted = matcher.intercept(&config.cluster_url);
        let address = intercepted.as_ref().map_or(proxy, |it| it.uri()).clone();
        let auth = intercepted.and_then(|it| it.basic_auth().cloned());
        match proxy.scheme_str() {
            Some("http") => over(config, tunnel(address, http, auth)),
            Some("https") => {
                let https = config.rustls_https_connector_with_connector(http)?;
                over(config, tunnel(address, https, auth))
            }
            _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) }),
        }
    }
}

fn tunnel<C>(proxy: Uri, connector: C, auth: Option<http::HeaderValue>) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy, connector);
    match auth {
        Some(auth) => tunnel.with_auth(auth),
        None => tunnel,
    }
}

fn over<C>(config: &Config, connector: C) -> kube::Result<Transport>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Error + Send + Sync + 'static,
{
    let https = config.rustls_https_connector_with_connector(connector.clone())?;
    let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(https);
    let http1: Http1 = BoxCloneSyncService::new(client.map_err(BoxError::from));
    if config.cluster_url.scheme() != Some(&Scheme::HTTPS) {
        return Ok(Transport::new(None, http1));
    }
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = server_name(config).map_err(|error| kube::Error::Service(error.into()))?;
    let dial = dial(config.cluster_url.clone(), name, tls, connector);
    Ok(Transport::new(Some(dial), http1))
}

fn server_name(config: &Config) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let host = config.cluster_url.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(config.tls_server_name.as_deref().unwrap_or(host).to_owned())
}

fn dial<C>(url: Uri, name: ServerName<'static>, tls: ClientConfig, connector: C) -> Dial
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let tls = TlsConnector::from(Arc::new(tls));
    Box::new(move || {
        let (connector, tls) = (connector.clone(), tls.clone());
        let (url, name) = (url.clone(), name.clone());
        async move {
            let stream = connector.oneshot(url).await.map_err(Into::into)?;
            let stream = tls.connect(name, TokioIo::new(stream)).await?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok(match is_http2 {
                true => Dialed::Http2(Box::new(TokioIo::new(stream))),
                false => Dialed::Http1,
            })
        }
        .boxed()
    })
}
