//! The metrics of a SPIRE server, without a SPIRE server: for tests in which no Pod runs.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

const NAME: &str = "spire_server_bundle_manager_fetch_federated_bundle";

/// How often each trust domain's bundle was fetched, by status.
#[derive(Default)]
struct Counters {
    counts: BTreeMap<(String, &'static str), u64>,
    /// With which status the fetches of a trust domain end from now on.
    status: BTreeMap<String, &'static str>,
}

/// A page of metrics. Whenever somebody reads it, one more bundle of each trust domain was fetched.
pub struct Figures {
    port: u16,
    counters: Arc<Mutex<Counters>>,
    _server: JoinSet<()>,
}

impl Figures {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let counters = Arc::new(Mutex::new(Counters::default()));
        let (mut server, shared) = (JoinSet::new(), counters.clone());
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // The reader sees that the connection has ended.
                let _ = answer(stream, &shared).await;
            }
        });
        Self { port, counters, _server: server }
    }

    /// For the controller.
    pub fn flag(&self) -> String {
        format!("--server-metrics-url=http://127.0.0.1:{}/metrics", self.port)
    }

    /// The fetches of these trust domains end with this status from now on.
    pub fn count(&self, status: &'static str, trust_domains: &[&str]) {
        let mut counters = self.counters.lock().expect("the counters");
        for name in trust_domains {
            counters.status.insert(name.replace(['.', '-'], "_"), status);
        }
    }
}

async fn answer(mut stream: TcpStream, counters: &Mutex<Counters>) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let page = page(&mut counters.lock().expect("the counters"));
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn page(counters: &mut Counters) -> String {
    for (label, status) in &counters.status {
        *counters.counts.entry((label.clone(), *status)).or_default() += 1;
    }
    let mut page = format!("# TYPE {NAME} counter\n");
    for ((label, status), count) in &counters.counts {
        let line = format!("{NAME}{{status=\"{status}\",trust_domain_id=\"{label}\"}} {count}");
        writeln!(page, "{line}").expect("a String takes all");
    }
    page
}
