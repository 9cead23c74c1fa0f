//! Other trust domains: endpoints in this process that note when each of them is asked, and that can die.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::header,
    routing::get,
};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use testkit::{Pair, suite};
use tokio::{net::TcpListener, task::JoinHandle};
use trustplane::runtime::tls_listener::{CertReloader, TlsListener};

/// A fetch, by the number of the trust domain.
pub type Fetch = (usize, DateTime<Utc>);

/// Trust domains behind one port.
pub struct Group {
    address: SocketAddr,
    authority: String,
    numbers: std::ops::Range<usize>,
    fetches: Arc<Mutex<Vec<Fetch>>>,
    serving: JoinHandle<()>,
}

impl Group {
    pub async fn start(
        numbers: std::ops::Range<usize>,
        pair: &Pair,
        document: &str,
    ) -> anyhow::Result<Self> {
        let folder = suite::subfolder("peers");
        let files = ["tls.crt", "tls.key"].map(|name| folder.join(name));
        suite::write_private(&files[0], &pair.certificate);
        suite::write_private(&files[1], &pair.key);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let listener = TlsListener::new(listener, CertReloader::read(&files[0], &files[1])?)?;
        let fetches = Arc::new(Mutex::new(Vec::new()));
        let state = (fetches.clone(), Bytes::from(document.to_owned()));
        let router = Router::new().route("/{number}", get(answer)).with_state(state);
        let serving = tokio::spawn(async move {
            // It never ends by itself.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, authority: pair.authority.clone(), numbers, fetches, serving })
    }

    /// Their names, with their specs.
    pub fn federations(&self) -> impl Iterator<Item = (String, Value)> {
        self.numbers.clone().map(|number| {
            let url = format!("https://localhost:{}/{number}", self.address.port());
            let source = json!({ "bundleEndpointURL": url, "caBundle": self.authority });
            (name(number), json!({ "httpsWeb": source }))
        })
    }

    pub fn fetches(&self) -> Vec<Fetch> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses connections from now on.
    pub fn refuse(&self) {
        self.serving.abort();
    }

    /// Accepts connections from now on, and never says anything.
    pub async fn fall_silent(&mut self) -> anyhow::Result<()> {
        self.refuse();
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // The last listener is about to be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.serving = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub fn name(number: usize) -> String {
    format!("peer-{number}.test")
}

async fn answer(
    State((fetches, document)): State<(Arc<Mutex<Vec<Fetch>>>, Bytes)>,
    Path(number): Path<usize>,
) -> ([(header::HeaderName, &'static str); 1], Bytes) {
    fetches.lock().unwrap_or_else(PoisonError::into_inner).push((number, Utc::now()));
    ([(header::CONTENT_TYPE, "application/json")], document)
}
