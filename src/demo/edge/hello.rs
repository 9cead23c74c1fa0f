//! The first message of a TLS connection: it names the host, and must be kept for a passthrough.

use std::io;

use rustls::server::{Accepted, Acceptor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A first message that was read whole.
pub struct Hello {
    /// rustls's state, to continue the handshake from.
    pub accepted: Accepted,
    /// Everything that was read, to hand on.
    pub bytes: Vec<u8>,
}

/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE: u8 = 22;

/// For those who forget the s of https.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nThis port speaks TLS: use https, not http.\n";

impl Hello {
    /// Reads it. A client that sends something else is told so, and there is no hello.
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
                    // A client has nothing to say after its hello until it is answered.
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

    /// The host that it names; empty if it names none.
    pub fn host(&self) -> String {
        self.accepted.client_hello().server_name().unwrap_or_default().to_owned()
    }
}
