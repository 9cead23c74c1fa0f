//! Names of hosts that lead to loopback, without a change to the machine's own.
//!
//! Go programs look names up in /etc/hosts alone, but reach https through the proxy that the
//! environment names. Ours passes on what it is told to, by name; what is inside TLS it never sees.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LONGEST_REQUEST: usize = 8192;

/// A table of names, and the proxy that follows it until it is dropped.
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

    /// `https://NAME` leads to this address from now on.
    pub fn point(&self, name: &str, to: SocketAddr) {
        self.table.lock().expect("the table").insert(name.to_owned(), to);
    }

    /// `https://NAME` leads nowhere from now on.
    pub fn forget(&self, name: &str) {
        self.table.lock().expect("the table").remove(name);
    }

    /// Where the proxy is.
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
            // The client sees that the connection has ended.
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
    // An API server is asked by its address.
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
