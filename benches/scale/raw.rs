//! The raw limit: the highest rate of merge patches that a plain client reaches on this API server,
//! and the duration of a single one.
//!
//! The client runs in its own process: this binary, started with [`COMMAND`]. Its patches are as
//! large as the controller's, and carry uid and resourceVersion of the Route too. Each must make a
//! new resourceVersion, and at the end the server must have the last of each.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use clap::Parser;
use futures::future::try_join_all;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::process::{Process, Work, Workers};
use tokio::time::Instant;
use trustplane::names::INJECTED_ANNOTATION;

use crate::{
    population::{RAW, SINGLE, routes_path},
    requests::{get, patch},
    stage::Stage,
};

/// The hidden subcommand.
pub const COMMAND: &str = "raw-limit";
const CONNECTIONS: [usize; 3] = [1, 8, 32];

/// Arguments of the client.
#[derive(Clone, Parser)]
pub struct Order {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Its process id
    #[arg(long)]
    api_server: i32,
    /// The process id of its store
    #[arg(long)]
    etcd: i32,
    /// How long each number of connections is tried
    #[arg(long)]
    milliseconds: u64,
    /// How many single patches
    #[arg(long)]
    singles: u32,
    /// Between two of them
    #[arg(long)]
    pause_milliseconds: u64,
    #[arg(long)]
    certificate_bytes: usize,
    #[arg(long)]
    key_bytes: usize,
    /// Reads the Route before each single patch, which leaves alone what the controller looks at
    #[arg(long)]
    beside_controller: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub tries: Vec<Try>,
    /// Single patches, in milliseconds, as the client saw them.
    pub singles: Vec<f64>,
}

/// Result for one number of connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Try {
    pub connections: usize,
    /// Patches per second.
    pub rate: f64,
    /// Processor time by process.
    pub work: Vec<Work>,
}

impl Limit {
    /// The highest rate.
    pub fn best(&self) -> anyhow::Result<&Try> {
        let best = self.tries.iter().max_by(|one, other| one.rate.total_cmp(&other.rate));
        best.context("the plain client tried nothing")
    }

    pub fn rate(&self) -> f64 {
        self.best().map_or(f64::NAN, |best| best.rate)
    }
}

impl Order {
    /// Arguments for the plain client of this stage, with this many bytes of certificate and key.
    pub fn on(
        stage: &Stage,
        each: Duration,
        singles: u32,
        pause: Duration,
        (certificate_bytes, key_bytes): (usize, usize),
    ) -> Self {
        Self {
            kubeconfig: stage.plain_kubeconfig(),
            api_server: stage.api_server().0,
            etcd: stage.etcd().0,
            milliseconds: each.as_millis() as u64,
            singles,
            pause_milliseconds: pause.as_millis() as u64,
            certificate_bytes,
            key_bytes,
            beside_controller: false,
        }
    }

    /// Only single patches, each after a read, while the controller runs.
    pub fn beside_controller(self) -> Self {
        Self { milliseconds: 0, beside_controller: true, ..self }
    }

    /// Runs it in its own process.
    pub async fn carry_out(&self) -> anyhow::Result<Limit> {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command
            .arg(COMMAND)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--api-server", &self.api_server.to_string()])
            .args(["--etcd", &self.etcd.to_string()])
            .args(["--milliseconds", &self.milliseconds.to_string()])
            .args(["--singles", &self.singles.to_string()])
            .args(["--pause-milliseconds", &self.pause_milliseconds.to_string()])
            .args(["--certificate-bytes", &self.certificate_bytes.to_string()])
            .args(["--key-bytes", &self.key_bytes.to_string()])
            .args(self.beside_controller.then_some("--beside-controller"))
            .kill_on_drop(true);
        let output = command.output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the plain client failed: {complaint}");
        serde_json::from_slice(&output.stdout).context("what the plain client found")
    }
}

/// The plain client.
pub async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let order = Order::parse_from(std::iter::once(COMMAND).chain(arguments.iter().map(|a| &**a)));
    let (mut single, mut routes): (Vec<_>, Vec<_>) = listed(&order.client().await?)
        .await?
        .into_iter()
        .partition(|route| route.metadata.name == SINGLE);
    let singles = order.in_turn(&mut single).await?;
    let connections = if order.milliseconds > 0 { &CONNECTIONS[..] } else { &[] };
    let most = connections.last().copied().unwrap_or_default();
    ensure!(routes.len() >= most, "there are too few Routes to patch");
    let mut tries = Vec::new();
    for &connections in connections {
        let one;
        (routes, one) = order.at_once(routes, connections).await?;
        tries.push(one);
    }
    let now = listed(&order.client().await?).await?;
    routes.append(&mut single);
    ensure!(versions(now) == versions(routes), "the server does not have what was written");
    println!("{}", serde_json::to_string(&Limit { tries, singles })?);
    Ok(())
}

fn versions(routes: Vec<Route>) -> HashMap<String, String> {
    let each = routes.into_iter().map(|route| route.metadata);
    each.map(|metadata| (metadata.name, metadata.resource_version)).collect()
}

#[derive(Deserialize)]
struct Routes {
    items: Vec<Route>,
}

#[derive(Deserialize)]
struct Route {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
}

async fn listed(client: &Client) -> anyhow::Result<Vec<Route>> {
    Ok(get::<Routes>(client, &routes_path(RAW)).await?.items)
}

impl Order {
    /// A client with one connection, because it sends one request at a time.
    async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // The proxy of the environment is not for loopback.
        config.proxy_url = None;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    async fn in_turn(&self, routes: &mut [Route]) -> anyhow::Result<Vec<f64>> {
        let client = self.client().await?;
        let route = routes.first_mut().context("no Route to patch alone")?;
        let pause = Duration::from_millis(self.pause_milliseconds);
        let mut times = Vec::new();
        // The first request opens the connection.
        for _ in 0..=self.singles {
            let begin = Instant::now();
            if self.beside_controller {
                let path = format!("{}/{}", routes_path(RAW), route.metadata.name);
                *route = get(&client, &path).await?;
            }
            self.patch(&client, route).await?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep_until(begin + pause).await;
        }
        Ok(times.split_off(1))
    }

    /// Each connection has its own Routes, and one patch at a time. The first quarter is warm-up.
    async fn at_once(
        &self,
        routes: Vec<Route>,
        connections: usize,
    ) -> anyhow::Result<(Vec<Route>, Try)> {
        let mut shares: Vec<Vec<Route>> = (0..connections).map(|_| Vec::new()).collect();
        for (number, route) in routes.into_iter().enumerate() {
            shares[number % connections].push(route);
        }
        let each = Duration::from_millis(self.milliseconds);
        let begin = Instant::now() + each / 4;
        let end = begin + each;
        let workers = shares.into_iter().map(|mut share| async move {
            let order = self.clone();
            let worker = tokio::spawn(async move {
                let (client, mut counted) = (order.client().await?, 0);
                while Instant::now() < end {
                    for route in &mut share {
                        order.patch(&client, route).await?;
                        counted += usize::from((begin..end).contains(&Instant::now()));
                        if Instant::now() >= end {
                            break;
                        }
                    }
                }
                anyhow::Ok((share, counted))
            });
            worker.await?
        });
        let (done, work) = tokio::try_join!(try_join_all(workers), self.work(begin, end))?;
        let counted: usize = done.iter().map(|(_, counted)| counted).sum();
        let routes = done.into_iter().flat_map(|(share, _)| share).collect();
        let rate = counted as f64 / each.as_secs_f64();
        Ok((routes, Try { connections, rate, work }))
    }

    async fn work(&self, begin: Instant, end: Instant) -> anyhow::Result<Vec<Work>> {
        tokio::time::sleep_until(begin).await;
        let workers = Workers::from_now(vec![
            ("plain client", Process::this()),
            ("API server", Process(self.api_server)),
            ("etcd", Process(self.etcd)),
        ])?;
        tokio::time::sleep_until(end).await;
        workers.work()
    }

    async fn patch(&self, client: &Client, route: &mut Route) -> anyhow::Result<()> {
        let Metadata { name, uid, resource_version } = &route.metadata;
        // Contains the resourceVersion, so it differs every time.
        let filled = |bytes: usize| format!("{resource_version:x<bytes$}");
        let mut change = json!({ "metadata": { "uid": uid, "resourceVersion": resource_version } });
        if self.beside_controller {
            // The same number of bytes, in a field that the controller ignores.
            let bytes = self.certificate_bytes + self.key_bytes;
            change["metadata"]["annotations"] = json!({ "trustplane.dev/bench": filled(bytes) });
        } else {
            change["metadata"]["annotations"] = json!({ INJECTED_ANNOTATION: filled(132) });
            change["spec"] = json!({ "tls": {
                "certificate": filled(self.certificate_bytes), "key": filled(self.key_bytes),
            } });
        }
        let path = format!("{}/{name}?fieldManager=bench", routes_path(RAW));
        let now: Route = serde_json::from_slice(&patch(client, &path, &change).await?)?;
        ensure!(now.metadata.resource_version != *resource_version, "a patch changed nothing");
        *route = now;
        Ok(())
    }
}
