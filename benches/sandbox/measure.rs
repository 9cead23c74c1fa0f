//! Starts a sandbox with all objects in it and sends requests over HTTPS, as kubectl and
//! controllers do. The client is in the same process and shares its processors.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use apiserver::store::Store;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Method, Request, header::ACCEPT};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::json;
use trustplane::{
    demo::{
        api_server,
        loopback::Port,
        serve::{Options, RunningApi},
    },
    runtime::clock::Clock,
};

use super::{
    figures::{Report, milliseconds, processor_time, resident},
    population::Population,
};

/// The history length of `trustplane sandbox`.
const HISTORY: usize = 100_000;
const LISTS: usize = 7;
const CONCURRENCY: usize = 16;
const ROUTES: &str = "/apis/route.openshift.io/v1/routes";
const SECRETS: &str = "/api/v1/secrets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Measures everything once.
pub async fn run(routes: usize) -> anyhow::Result<Report> {
    let population = Population::of(routes)?;
    let mut report = Report::about(format!(
        "{routes} Routes and {routes} Secrets in {} namespaces, pairs of {:.1} KB",
        population.namespaces(),
        population.pair_bytes() as f64 / 1000.0
    ));
    let _serving = start_empty(&mut report).await?;
    let (_serving, client) = start(&population, &mut report).await?;
    let bench = Bench { client, population, report };
    bench.run().await
}

async fn serve(store: Store) -> anyhow::Result<(RunningApi, Client)> {
    let clock = Clock::system();
    let options = Options { port: Port::Exactly(0), kubeconfig: None };
    let serving =
        RunningApi::start(api_server::server(store, clock.clone()), options, &clock).await?;
    let kubeconfig = Kubeconfig::read_from(serving.kubeconfig())?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // The proxy of the environment is not for loopback.
    config.proxy_url = None;
    let client = Client::try_from(config)?;
    ask(&client, get("/readyz")).await?;
    Ok((serving, client))
}

async fn start_empty(report: &mut Report) -> anyhow::Result<RunningApi> {
    let begin = Instant::now();
    let (serving, _) = serve(api_server::store(HISTORY, 1)).await?;
    let remark = "from nothing to the first answer over TLS";
    report.add("start, empty", milliseconds(begin.elapsed()), "ms", remark);
    Ok(serving)
}

async fn start(
    population: &Population,
    report: &mut Report,
) -> anyhow::Result<(RunningApi, Client)> {
    let before = resident();
    let (begin, busy) = (Instant::now(), processor_time());
    let mut store = api_server::store(HISTORY, 1);
    population.move_into(&mut store)?;
    let (filled, busy) = (begin.elapsed(), processor_time() - busy);
    let (serving, client) = serve(store).await?;
    let whole = begin.elapsed();
    let after = resident();

    let writes = population.namespaces() + 3 * population.routes();
    let rate = writes as f64 / busy.as_secs_f64();
    let remark = format!(
        "{writes} writes, each checked as a request's is, and then the first answer over TLS"
    );
    report.add("start with all objects", milliseconds(whole), "ms", remark);
    let remark = "of it until the objects were written";
    report.add("- writes", milliseconds(filled), "ms", remark);
    let remark = "of that, how long the thread had a processor; the rest it waited for one";
    report.add("- processor time", milliseconds(busy), "ms", remark);
    report.add("writes", rate, "/s", "of processor time, without HTTP");
    report.add("memory before", before, "MB", "resident, client included");
    let each = (after - before) * 1000.0 / population.routes() as f64;
    let remark = format!("{each:.1} KB for a Route, its Secret and their history");
    report.add("memory after the start", after, "MB", remark);
    Ok((serving, client))
}

struct Bench {
    client: Client,
    population: Population,
    report: Report,
}

impl Bench {
    async fn run(mut self) -> anyhow::Result<Report> {
        self.lists().await?;
        self.watch().await?;
        self.gets().await?;
        self.patches().await?;
        self.report.add("memory at the end", resident(), "MB", "resident, client included");
        Ok(self.report)
    }

    async fn lists(&mut self) -> anyhow::Result<()> {
        let (namespace, name) = self.population.route_at(self.population.routes() / 2);
        let of_namespace = format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes");
        let host = format!("{ROUTES}?fieldSelector=spec.host%3D{name}.apps.example.com");
        let label = format!("{ROUTES}?labelSelector=app.kubernetes.io/name%3D{name}");
        let tls = format!("{SECRETS}?fieldSelector=type%3Dkubernetes.io%2Ftls");
        self.list("list all Routes", || get(ROUTES)).await?;
        self.pages().await?;
        self.list("list all Routes as a Table", || table(ROUTES)).await?;
        self.list("list Routes by field, one of all", || get(&host)).await?;
        self.list("list Routes by label, one of all", || get(&label)).await?;
        self.list("list Routes of one namespace", || get(&of_namespace)).await?;
        self.list("list all Secrets by type", || get(&tls)).await
    }

    async fn list(
        &mut self,
        what: &'static str,
        request: impl Fn() -> Request<Body>,
    ) -> anyhow::Result<()> {
        let (mut times, mut size) = (Vec::new(), 0);
        for _ in 0..LISTS {
            let begin = Instant::now();
            size = ask(&self.client, request()).await.context(what)?.len();
            times.push(begin.elapsed());
        }
        self.report.add_times(what, times, &megabytes(size));
        Ok(())
    }

    async fn pages(&mut self) -> anyhow::Result<()> {
        let limit = self.population.routes().div_ceil(20);
        let (mut times, mut whole, mut pages) = (Vec::new(), Duration::ZERO, Vec::new());
        let mut next = String::new();
        loop {
            let path = format!("{ROUTES}?limit={limit}&continue={next}");
            let begin = Instant::now();
            let page = ask(&self.client, get(&path)).await?;
            times.push(begin.elapsed());
            whole += begin.elapsed();
            pages.push(page.len());
            next = continued(&page)?;
            if next.is_empty() {
                break;
            }
        }
        let remark = format!("{} pages of {limit}", pages.len());
        self.report.add("list all Routes in pages", milliseconds(whole), "ms", remark);
        let largest = pages.into_iter().max().unwrap_or_default();
        self.report.add_times("one such page", times, &megabytes(largest));
        Ok(())
    }

    /// Time from sending a change to its event.
    async fn watch(&mut self) -> anyhow::Result<()> {
        let path = format!("{ROUTES}?watch=true&resourceVersion={}", self.version().await?);
        let mut events = Lines::of(self.client.send(get(&path)).await?.into_body());
        let mut times = Vec::new();
        for number in 0..self.requests() {
            let begin = Instant::now();
            let change = self.patch(number, "watch");
            let (event, changed) = tokio::join!(events.next(), change);
            changed?;
            let event = event?;
            ensure!(event.starts_with(br#"{"type":"MODIFIED""#), "the watch said something else");
            times.push(begin.elapsed());
        }
        let remark = "from sending a patch to having its event and its answer";
        self.report.add_times("watch of all Routes", times, remark);
        Ok(())
    }

    /// The version of the whole store.
    async fn version(&self) -> anyhow::Result<String> {
        let list = ask(&self.client, get(&format!("{ROUTES}?limit=1"))).await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    }

    async fn gets(&mut self) -> anyhow::Result<()> {
        let count = self.requests();
        let (one_by_one, times) = in_turn(count, async |number| self.get(number).await).await?;
        let at_once = concurrently(count, |number| self.get(number)).await?;
        self.report.add_times("get one Route", times, &format!("{one_by_one:.0}/s in turn"));
        self.report.add("get, 16 at once", at_once, "/s", "");
        Ok(())
    }

    async fn patches(&mut self) -> anyhow::Result<()> {
        let count = self.requests();
        let (one_by_one, times) =
            in_turn(count, async |number| self.patch(number, "one").await).await?;
        let at_once = concurrently(count, |number| self.patch(number, "many")).await?;
        self.report.add_times("patch one Route", times, &format!("{one_by_one:.0}/s in turn"));
        self.report.add("patch, 16 at once", at_once, "/s", "");
        Ok(())
    }

    /// Number of requests for single Routes.
    fn requests(&self) -> usize {
        self.population.routes().min(2_000)
    }

    fn path(&self, number: usize) -> String {
        // Not a divisor, so that consecutive requests are not for neighbours.
        let (namespace, name) = self.population.route_at(number * 7_919 % self.population.routes());
        format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes/{name}")
    }

    async fn get(&self, number: usize) -> anyhow::Result<()> {
        ask(&self.client, get(&self.path(number))).await.map(drop)
    }

    async fn patch(&self, number: usize, round: &str) -> anyhow::Result<()> {
        let change = json!({ "metadata": { "labels": { "round": format!("{round}-{number}") } } });
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(self.path(number))
            .header("content-type", "application/merge-patch+json")
            .body(Body::from(change.to_string().into_bytes()))?;
        ask(&self.client, request).await.map(drop)
    }
}

/// Rate and duration of each.
async fn in_turn(
    count: usize,
    work: impl AsyncFn(usize) -> anyhow::Result<()>,
) -> anyhow::Result<(f64, Vec<Duration>)> {
    let (begin, mut times) = (Instant::now(), Vec::new());
    for number in 0..count {
        let begin = Instant::now();
        work(number).await?;
        times.push(begin.elapsed());
    }
    Ok((count as f64 / begin.elapsed().as_secs_f64(), times))
}

async fn concurrently<F>(count: usize, work: impl Fn(usize) -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let begin = Instant::now();
    stream::iter(0..count).map(work).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

fn get(path: &str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().expect("paths of this file are paths");
    request
}

fn table(path: &str) -> Request<Body> {
    let mut request = get(path);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(TABLE));
    request
}

/// The whole answer, which must be a success. It is not decoded.
async fn ask(client: &Client, request: Request<Body>) -> anyhow::Result<Bytes> {
    let answer = client.send(request).await?;
    ensure!(answer.status().is_success(), "the sandbox answered {}", answer.status());
    Ok(answer.into_body().collect().await?.to_bytes())
}

/// The continue token; empty at the end.
fn continued(page: &[u8]) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Page {
        metadata: ListMeta,
    }
    let page: Page = serde_json::from_slice(page)?;
    Ok(page.metadata.continue_.unwrap_or_default())
}

fn megabytes(size: usize) -> String {
    format!("{:.1} MB", size as f64 / 1e6)
}

/// The events of a watch as they arrive.
struct Lines {
    body: Body,
    read: BytesMut,
}

impl Lines {
    fn of(body: Body) -> Self {
        Self { body, read: BytesMut::new() }
    }

    async fn next(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                return Ok(self.read.split_to(end + 1).freeze());
            }
            let frame = self.body.frame().await.context("the watch ended")??;
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
