//! Opens a verified connection to a server that one can join.

use std::{fmt, io, str::FromStr, sync::Arc, time::Duration};

use http::{Uri, uri::Authority};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, OtherError, RootCertStore,
    client::Resumption, crypto::aws_lc_rs, pki_types::ServerName,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::JoinError;
use crate::{
    runtime::{clock::Clock, server_verifier::server_verifier},
    spiffe::{bundle::Bundle, id::SpiffeId, svid},
};

const CONNECT: Duration = Duration::from_secs(10);

/// Where a server listens for joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    name: ServerName<'static>,
    authority: Authority,
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write it as HOST:PORT, for example join.example.org:443".to_owned();
        let authority: Authority = text.parse().map_err(|_| wrong())?;
        let port = authority.port_u16().ok_or_else(wrong)?;
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned());
        let name = name.ok().filter(|_| !text.contains('@')).ok_or_else(wrong)?;
        Ok(Self { host: host.to_owned(), port, name, authority })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.authority.fmt(f)
    }
}

impl ServerAddress {
    /// What requests name as their server.
    pub(super) fn origin(&self) -> Uri {
        let parts = Uri::builder().scheme("https").authority(self.authority.clone());
        parts.path_and_query("/").build().unwrap_or_else(|_| Uri::from_static("https://localhost/"))
    }
}

/// How a server proves that it is the one that is meant.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    /// One of these CAs signed a certificate for the address's host.
    Web(Arc<RootCertStore>),
    /// It has the SVID of an authority in the trust domain of this bundle.
    Spiffe { id: SpiffeId, bundle: Arc<Bundle> },
}

impl ServerTrust {
    fn client_config(&self, clock: Clock) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = match self {
            Self::Web(roots) => builder.with_root_certificates(roots.clone()),
            Self::Spiffe { id, bundle } => {
                let (id, bundle) = (id.clone(), bundle.clone());
                // The SPIFFE ID counts, whatever the host's name is.
                let verifier = server_verifier(move |chain, _, _| {
                    let verified = svid::verify(chain, &id, &bundle, clock.now());
                    let other = |error| CertificateError::Other(OtherError(Arc::new(error)));
                    verified.map(|_| ()).map_err(|error| other(error).into())
                });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would skip the check against a bundle that changed meanwhile.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

pub(super) async fn dial(
    server: &ServerAddress,
    trust: &ServerTrust,
    clock: Clock,
) -> Result<TlsStream<TcpStream>, JoinError> {
    match timeout(CONNECT, dial_untimed(server, trust, clock)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(JoinError::Connect {
            server: server.to_string(),
            why: format!("it did not answer within {CONNECT:?}"),
        }),
    }
}

async fn dial_untimed(
    server: &ServerAddress,
    trust: &ServerTrust,
    clock: Clock,
) -> Result<TlsStream<TcpStream>, JoinError> {
    let config = trust.client_config(clock).map_err(|error| in_words(server, &error))?;
    let connected = TcpStream::connect((&*server.host, server.port)).await;
    let stream = connected.map_err(|error| JoinError::Connect {
        server: server.to_string(),
        why: error.to_string(),
    })?;
    // Small messages, each of which is waited for.
    let _ = stream.set_nodelay(true);
    let connector = TlsConnector::from(Arc::new(config));
    let verified = connector.connect(server.name.clone(), stream).await;
    verified.map_err(|error| {
        let cause = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause) => in_words(server, cause),
            None => JoinError::Handshake { server: server.to_string(), why: broken(&error) },
        }
    })
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

fn in_words(server: &ServerAddress, error: &rustls::Error) -> JoinError {
    let server = server.to_string();
    let why = match error {
        // Other services have ports of their own, such as that of the bundle endpoint.
        rustls::Error::InvalidMessage(_) => {
            return JoinError::Connect { server, why: "it does not speak TLS".to_owned() };
        }
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            return JoinError::Connect { server, why: "it does not speak HTTP/2".to_owned() };
        }
        // An SvidError, which is in words already.
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => other.to_string(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by none of these CAs. A server with an SVID is known by --server-bundle".to_owned()
        }
        other => other.to_string(),
    };
    JoinError::Handshake { server, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, host) in [
            ("join.example.org:443", "join.example.org"),
            ("127.0.0.1:8444", "127.0.0.1"),
            ("[::1]:8444", "::1"),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((&*address.host, address.to_string()), (host, text.to_owned()));
            assert_eq!(address.origin().to_string(), format!("https://{text}/"));
        }
        for text in ["", "join.example.org", "https://a:1", "me@a:1", "a:x", ":443", "a b:1"] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
    }
}
