//! Host names for loopback addresses, without changes to /etc/hosts.
//!
//! Go programs use the proxy of the environment for https. This proxy forwards CONNECT requests by
//! name, without decrypting TLS.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LONGEST_REQUEST: usize = 8192;

/// A table of names, and its proxy. Dropping it stops the proxy.
pub struct Names {
    proxy: SocketAddr,
    table: Arc<Mutex<HashMap<String, SocketAddr>>>,
    accepting: JoinHandle<()>,
}

impl Names {
    /// Starts with an empty table.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let proxy = listener.local_addr().expect("an address");
        let table = Arc::new(Mutex::new(HashMap::new()));
        let accepting = tokio::spawn(accept(listener, table.clone()));
        Self { proxy, table, accepting }
    }

    /// Points `https://NAME` to this address.
    pub fn point(&self, name: &str, to: SocketAddr) {
        self.table.lock().expect("the table").insert(name.to_owned(), to);
    }

    /// Removes `https://NAME`.
    pub fn forget(&self, name: &str) {
        self.table.lock().expect("the table").remove(name);
    }

    /// Address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.proxy
    }

    /// The environment of a program that uses these names.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![("HTTPS_PROXY".to_owned(), format!("http://{}", self.proxy))]
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, table: Arc<Mutex<HashMap<String, SocketAddr>>>) {
    while let Ok((client, _)) = listener.accept().await {
        let table = table.clone();
        tokio::spawn(async move {
            // The client sees the closed connection.
            let _ = pass_on(client, &table).await;
        });
    }
}

async fn pass_on(
    mut client: TcpStream,
    table: &Mutex<HashMap<String, SocketAddr>>,
) -> std::io::Result<()> {
    let request = read_request(&mut client).await?;
    let name =
        request.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(":443 ")).map(|it| it.0);
    let named = name.and_then(|name| table.lock().expect("the table").get(name).copied());
    // API servers are reached by address.
    let address = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let to =
        named.or_else(|| address?.parse().ok().filter(|it: &SocketAddr| it.ip().is_loopback()));
    let server = match to {
        Some(address) => TcpStream::connect(address).await.ok(),
        None => None,
    };
    match server {
        Some(mut server) => {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            copy_bidirectional(&mut client, &mut server).await.map(|_| ())
        }
        None => client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await,
    }
}

async fn read_request(client: &mut TcpStream) -> std::io::Result<String> {
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") && request.len() < LONGEST_REQUEST {
        request.push(client.read_u8().await?.into());
    }
    Ok(request)
}
