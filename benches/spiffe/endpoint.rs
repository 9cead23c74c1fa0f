//! Our bundle endpoint next to a plain route of axum: the same TLS, the same body, the same process.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
use bytes::Bytes;
use testkit::{Pair, figures::Times, pair, process::Process, report::Table, suite};
use tokio::{net::TcpListener, task::JoinHandle};
use trustplane::{
    authority::run::PATH,
    bundle::serve::{Endpoint, RequestCounter},
    runtime::tls_listener::{CertReloader, TlsListener},
};

use crate::{
    client::{self, Order},
    document,
};

/// If the plain route's rates differ by more, the machine was not quiet.
const QUIET: f64 = 0.15;
/// Where the plain route answers 304 to everybody.
const KNOWN: &str = "/known";
const ETAG: &str = "\"0123456789abcdef0123456789abcdef\"";

/// Both endpoints, running.
pub struct Endpoints {
    ours: Endpoint,
    plain: SocketAddr,
    serving: JoinHandle<()>,
    ca: PathBuf,
    body: usize,
    clients: usize,
}

/// Rates, and processor time of the server for an answer in microseconds, of each round.
#[derive(Default)]
struct Answers {
    rates: Vec<f64>,
    processor: Vec<f64>,
}

/// One kind of answer by both.
struct Kind {
    name: String,
    ours: Answers,
    plain: Answers,
}

pub struct Throughput {
    kinds: [Kind; 2],
    clients: usize,
}

impl Endpoints {
    pub async fn start(clients: usize) -> anyhow::Result<Self> {
        let Pair { certificate, key, authority } = pair::issued("localhost");
        let folder = suite::subfolder("endpoint");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            suite::write_private(&path, text);
            path
        };
        let ca = file("ca.pem", &authority);
        let pair = CertReloader::read(&file("tls.crt", &certificate), &file("tls.key", &key))?;
        let document = document(300)?;
        let body = document.len();
        let bind = || TcpListener::bind("127.0.0.1:0");
        let requests = RequestCounter::default();
        let ours =
            Endpoint::start_web(bind().await?, PATH, document.clone(), pair.clone(), requests)?;
        let listener = bind().await?;
        let plain = listener.local_addr()?;
        let listener = TlsListener::new(listener, pair)?;
        let serving = tokio::spawn(async move {
            // It never ends by itself.
            let _ = axum::serve(listener, plain_router(document)).await;
        });
        Ok(Self { ours, plain, serving, ca, body, clients })
    }

    pub async fn measure(&self, rounds: usize, each: Duration) -> anyhow::Result<Throughput> {
        let kind =
            |name: String| Kind { name, ours: Answers::default(), plain: Answers::default() };
        let mut kinds = [kind(format!("200, {} bytes", self.body)), kind("304".to_owned())];
        for _ in 0..rounds {
            let [whole, known] = &mut kinds;
            self.ask(self.plain, PATH, None, each, &mut whole.plain).await?;
            self.ask(self.ours.address(), PATH, None, each, &mut whole.ours).await?;
            self.ask(self.plain, KNOWN, Some(ETAG), each, &mut known.plain).await?;
            self.ask(self.ours.address(), PATH, Some("*"), each, &mut known.ours).await?;
        }
        Ok(Throughput { kinds, clients: self.clients })
    }

    async fn ask(
        &self,
        address: SocketAddr,
        path: &str,
        etag: Option<&str>,
        each: Duration,
        answers: &mut Answers,
    ) -> anyhow::Result<()> {
        let milliseconds = u64::try_from(each.as_millis()).context("a duration")?;
        let order = Order {
            address,
            path: path.to_owned(),
            etag: etag.map(str::to_owned),
            clients: self.clients,
            milliseconds,
            ca: self.ca.clone(),
        };
        let before = Process::this().busy()?;
        let rate = client::rate(&order).await?;
        let busy = Process::this().busy()?.saturating_sub(before).as_secs_f64();
        answers.rates.push(rate);
        answers.processor.push(1e6 * busy / (rate * each.as_secs_f64()));
        Ok(())
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn plain_router(document: String) -> Router {
    let document = Bytes::from(document);
    let whole = move || async move { ([(header::CONTENT_TYPE, "application/json")], document) };
    let known = || async { (StatusCode::NOT_MODIFIED, [(header::ETAG, ETAG)]) };
    Router::new().route(PATH, get(whole)).route(KNOWN, get(known))
}

fn median(values: &[f64]) -> f64 {
    Times::of(values.to_vec()).at(0.5)
}

/// Of what was measured in the same round.
fn median_ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}

impl Throughput {
    pub fn table(&self) -> Table {
        let kinds = &self.kinds;
        let columns = kinds.iter().map(|it| it.name.clone()).collect();
        let mut table = Table::new("answers of the endpoint", columns);
        let clients = format!("{} clients that keep their connections; median", self.clients);
        table.row("ours: answers a second", "/s", kinds, |it| median(&it.ours.rates), clients);
        let remark = "axum's own server and router, the same TLS and body";
        table.row(
            "plain route: answers a second",
            "/s",
            kinds,
            |it| median(&it.plain.rates),
            remark,
        );
        let ratio = |it: &Kind| median_ratio(&it.ours.rates, &it.plain.rates);
        table.row("ours, share of the plain route", "", kinds, ratio, "goal: 0.9");
        let each = |it: &Kind| median(&it.ours.processor);
        table.row("ours: on a processor, each answer", "µs", kinds, each, "the server's part");
        let each = |it: &Kind| median(&it.plain.processor);
        table.row("plain route: on a processor", "µs", kinds, each, "");
        table
    }

    /// Why the run is void, from a second measurement at its end.
    pub fn void_against(&self, later: &Self) -> Option<String> {
        let rate = |it: &Self| median(&it.kinds[0].plain.rates);
        let (before, after) = (rate(self), rate(later));
        let differs = (after / before - 1.0).abs() > QUIET;
        differs.then(|| {
            format!(
                "the plain route answered {before:.0}/s at first and {after:.0}/s in the end: \
                 something else kept the machine busy"
            )
        })
    }
}
