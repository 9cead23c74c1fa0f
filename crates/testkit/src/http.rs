//! A minimal blocking HTTP client for a controller's pages.

use std::io::{Error, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// GETs a path. Returns the status code and the body.
pub fn get(address: SocketAddr, path: &str, timeout: Duration) -> Result<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"), timeout)
}

/// POSTs JSON to a path. Returns the status code and the body.
pub fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    timeout: Duration,
) -> Result<(u16, String)> {
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}", body.len());
    ask(address, &format!("{head}\r\nContent-Type: application/json\r\n\r\n{body}"), timeout)
}

/// HTTP/1.0: the answer ends with the connection, so there are no chunks.
fn ask(address: SocketAddr, request: &str, timeout: Duration) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| Error::other(format!("not an HTTP answer: {head:?}")))?;
    Ok((code, body.to_owned()))
}
