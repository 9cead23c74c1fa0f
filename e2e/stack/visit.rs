//! A client that takes whatever certificate it is shown, and says which.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::{Ssl, SslContext, SslMethod};

const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to a client.
#[derive(PartialEq, Eq)]
pub struct Visit {
    /// PEM of the leaf.
    pub certificate: String,
    /// HTTP status.
    pub code: u16,
}

impl fmt::Debug for Visit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell two certificates apart.
        let line = self.certificate.lines().nth(3).unwrap_or_default();
        write!(formatter, "{} with certificate …{line}…", self.code)
    }
}

/// A new connection to the router that asks for `/` of `host`.
pub async fn visit(router: SocketAddr, host: &str) -> Result<Visit, String> {
    let host = host.to_owned();
    let visit = tokio::task::spawn_blocking(move || try_visit(router, &host)).await;
    visit.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

fn try_visit(router: SocketAddr, host: &str) -> anyhow::Result<Visit> {
    let stream = TcpStream::connect_timeout(&router, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Not a connector, which would read the system's authorities first.
    let mut tls = Ssl::new(&SslContext::builder(SslMethod::tls_client())?.build())?;
    tls.set_hostname(host)?;
    let mut stream =
        tls.connect(stream).map_err(|_| anyhow::anyhow!("the handshake for {host} failed"))?;
    let leaf = stream.ssl().peer_certificate().ok_or(anyhow::anyhow!("no certificate"))?;
    let certificate = String::from_utf8(leaf.to_pem()?)?;
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or(anyhow::anyhow!("no HTTP answer"))?;
    Ok(Visit { certificate, code })
}
