//! The ClientHello of a TLS connection: it names the host, and is kept to be forwarded for
//! passthrough.

use std::io;

use rustls::server::{Accepted, Acceptor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A complete ClientHello.
pub struct Hello {
    /// State of rustls, to continue the handshake.
    pub accepted: Accepted,
    /// All bytes that were read, to forward them.
    pub bytes: Vec<u8>,
}

/// First byte of a TLS connection: the record type of handshakes.
const HANDSHAKE: u8 = 22;

/// Sent to clients that speak plain HTTP.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nThis port speaks TLS: use https, not http.\n";

impl Hello {
    /// Reads the ClientHello. Clients that send something else get an answer, and the result is
    /// `None`.
    pub async fn read(stream: &mut TcpStream) -> io::Result<Option<Self>> {
        let mut acceptor = Acceptor::default();
        let mut bytes = Vec::with_capacity(4096);
        loop {
            let new = bytes.len();
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(None);
            }
            if bytes[0] != HANDSHAKE {
                stream.write_all(NOT_TLS).await?;
                return Ok(None);
            }
            let mut unread = &bytes[new..];
            while !unread.is_empty() {
                acceptor.read_tls(&mut unread)?;
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) if unread.is_empty() => {
                        return Ok(Some(Self { accepted, bytes }));
                    }
                    // Clients send nothing after their ClientHello until they are answered.
                    Ok(Some(_)) => return Ok(None),
                    Err((_, mut alert)) => {
                        let mut last = Vec::new();
                        alert.write_all(&mut last)?;
                        stream.write_all(&last).await?;
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The server name; empty if there is none.
    pub fn host(&self) -> String {
        self.accepted.client_hello().server_name().unwrap_or_default().to_owned()
    }
}
