//! An HTTPS client with OpenSSL, independent of our own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;

const TIMEOUT: Duration = Duration::from_secs(30);

/// An answer, and the certificate of the server.
pub struct Answer {
    pub body: String,
    /// The server's certificate.
    pub certificate: X509,
}

/// GETs a path from the server `name` at an address. Its certificate must verify with the CAs in
/// PEM. Every status but 200 is an error.
pub async fn get(
    address: SocketAddr,
    name: &str,
    authorities: &str,
    path: &str,
) -> Result<Answer, String> {
    let (name, authorities, path) = (name.to_owned(), authorities.to_owned(), path.to_owned());
    let asking = move || ask(address, &name, &authorities, &path);
    let answered = tokio::task::spawn_blocking(asking).await.map_err(|error| error.to_string())?;
    answered.map_err(|error| error.to_string())
}

fn ask(address: SocketAddr, name: &str, authorities: &str, path: &str) -> anyhow::Result<Answer> {
    let mut store = X509StoreBuilder::new()?;
    for authority in X509::stack_from_pem(authorities.as_bytes())? {
        store.add_cert(authority)?;
    }
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_cert_store(store.build());
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut stream = connector.build().connect(name, stream)?;
    // HTTP/1.0: the answer ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {name}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    anyhow::ensure!(head.contains(" 200 "), "not an answer that we want: {head}");
    let certificate = stream.ssl().peer_certificate();
    let certificate = certificate.ok_or_else(|| anyhow::anyhow!("no certificate"))?;
    Ok(Answer { body: body.to_owned(), certificate })
}
