//! Reads the metrics of the SPIRE server, which show whether it fetches the bundles that we can fetch.
//!
//! Each read is a new connection straight to the Service, without a proxy. Only the leader reads.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{Either, select};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    federate::decide::spire_fetches::{self, Answer, Counts, Fetches},
    k8s::gate::Gate,
    names::USER_AGENT,
    runtime::{clock::Clock, lock::lock},
};

/// SPIRE's library forgets counters after a minute, and SPIRE fetches no more often than this.
const EVERY: Duration = Duration::from_secs(15);
/// For one read.
const PATIENCE: Duration = Duration::from_secs(10);
/// A server with thousands of agents answers with some hundred KiB.
const LONGEST: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the address names no host")]
    NoHost,
    #[error("no connection to {host}:{port} ({kind})")]
    NoConnection { host: String, port: u16, kind: std::io::ErrorKind },
    #[error("it answers HTTP {0}")]
    Status(u16),
    #[error("the connection broke before the answer was complete")]
    Broken,
    #[error("the answer is longer than 4 MiB")]
    TooLong,
    #[error("no answer within {} s", PATIENCE.as_secs())]
    TooSlow,
}

pub struct ServerMetrics {
    clock: Clock,
    gate: Gate,
    /// None if the metrics are not to be read.
    url: Option<Uri>,
    fetches: Mutex<Fetches>,
    peers_changed: Notify,
    /// Notified when the answer for a peer changes.
    pub news: Notify,
}

impl ServerMetrics {
    pub fn new(clock: Clock, gate: Gate, url: Option<Uri>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            gate,
            url,
            fetches: Mutex::default(),
            peers_changed: Notify::new(),
            news: Notify::new(),
        })
    }

    /// `fetched` is every trust domain that SPIRE federates with.
    pub fn set_peers(&self, peers: Vec<String>, fetched: Vec<String>) {
        lock(&self.fetches).set_peers(peers, fetched);
        self.peers_changed.notify_one();
    }

    /// The peer's endpoint changed.
    pub fn endpoint_changed(&self, peer: &str) {
        lock(&self.fetches).endpoint_changed(peer);
    }

    /// For a replica that no longer leads.
    pub fn forget(&self) {
        *lock(&self.fetches) = Fetches::default();
    }

    pub fn answer(&self, trust_domain: &str) -> Option<Answer> {
        lock(&self.fetches).answer(trust_domain, self.clock.now())
    }

    /// Never ends; stop it by dropping it.
    pub async fn run(self: Arc<Self>) {
        let Some(url) = self.url.clone() else { return std::future::pending().await };
        let mut failing = false;
        loop {
            while !lock(&self.fetches).has_peers() {
                self.peers_changed.notified().await;
            }
            self.gate.clone().opened().await;
            let started = Instant::now();
            let read = timeout(PATIENCE, read(&url)).await.unwrap_or(Err(ReadError::TooSlow));
            match &read {
                // Logged once: a server that does not run yet would fill the log.
                Err(error) if !failing => {
                    tracing::warn!(%url, %error, "metrics of the SPIRE server not read")
                }
                Ok(_) if failing => tracing::info!(%url, "metrics of the SPIRE server read again"),
                _ => {}
            }
            failing = read.is_err();
            self.record(read);
            sleep_until(started + EVERY).await;
        }
    }

    fn record(&self, read: Result<Counts, ReadError>) {
        if !self.gate.is_open() {
            return;
        }
        let now = self.clock.now();
        let mut fetches = lock(&self.fetches);
        let before = fetches.answers(now);
        match read {
            Ok(counts) => fetches.record(counts),
            Err(error) => fetches.record_failure(error.to_string(), now),
        }
        if fetches.answers(now) != before {
            self.news.notify_one();
        }
    }
}

async fn read(url: &Uri) -> Result<Counts, ReadError> {
    let host = url.host().ok_or(ReadError::NoHost)?;
    let port = url.port_u16().unwrap_or(80);
    let place = (host.trim_matches(['[', ']']), port);
    let stream = TcpStream::connect(place).await.map_err(|error| ReadError::NoConnection {
        host: host.to_owned(),
        port,
        kind: error.kind(),
    })?;
    let path = url.path_and_query().map_or("/", |it| it.as_str());
    let authority = url.authority().ok_or(ReadError::NoHost)?;
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::ACCEPT, "text/plain")
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| ReadError::NoHost)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| ReadError::Broken)?;
    let asking = async move {
        let response = sender.send_request(request).await.map_err(|_| ReadError::Broken)?;
        if response.status() != StatusCode::OK {
            return Err(ReadError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => ReadError::TooLong,
            false => ReadError::Broken,
        })?;
        Ok(spire_fetches::parse(&String::from_utf8_lossy(&body.to_bytes())))
    };
    match select(pin!(asking), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The connection may end before the answer was read to its end.
        Either::Right((_, asking)) => asking.await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers one client with this.
    async fn saying(answer: Vec<u8>) -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0, "a request");
            // A client that has read enough hangs up.
            let _ = stream.write_all(&answer).await;
        });
        format!("http://127.0.0.1:{port}/metrics").parse().unwrap()
    }

    #[tokio::test]
    async fn metrics_are_read_and_whatever_else_answers_is_told() {
        let line = "spire_server_bundle_manager_fetch_federated_bundle{status=\"OK\",trust_domain_id=\"b\"} 2\n";
        let ok = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
        assert_eq!(read(&saying(ok.into()).await).await.unwrap()["b"]["OK"], 2);
        let absent = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
        assert_eq!(read(&saying(absent).await).await, Err(ReadError::Status(404)));
        assert_eq!(read(&saying(b"SSH-2.0-x\r\n".to_vec()).await).await, Err(ReadError::Broken));
        let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        endless.resize(LONGEST + 1024, b'#');
        assert_eq!(read(&saying(endless).await).await, Err(ReadError::TooLong));
    }
}
