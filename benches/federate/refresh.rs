//! Refreshing: all peers rotate at once, until the controller and the SPIRE server know each new
//! bundle. Then the cost of both while nothing rotates.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::{
    Controller,
    figures::Times,
    process::Process,
    report::Table,
    spire::{Launch, SpireServer},
    stage::{self, ACCOUNT, Stage},
    suite,
};
use trustplane::federate::decide::render::Component;

use crate::{
    peers::{Client, HINT, Peers},
    raw::{self, Found},
    status::{Status, refreshed},
};

/// Peers are polled four times per refresh hint; twice that interval is late.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// Patches of the plain client.
const RAW_WRITES: u64 = 50;
const RAW_FETCHES_FOR: Duration = Duration::from_secs(2);

/// Results for one number of peers.
pub struct Size {
    peers: usize,
    status: Steps,
    spire: Steps,
    controller: Cost,
    server: Cost,
    /// Writes of the controller while nothing rotated, without Lease and Events.
    writes: usize,
    raw_fetches: Found,
    raw_writes: Times,
}

/// Times from rotation to knowledge, in milliseconds.
struct Steps {
    /// From the rotation to the poll.
    asked: Times,
    /// From the peer's answer to its effect.
    known: Times,
    whole: Times,
}

/// Resources of a process while nothing rotates.
struct Cost {
    resident: f64,
    peak: f64,
    /// In percent of a core.
    busy: f64,
    fetches: usize,
    seconds: f64,
}

impl Cost {
    /// Processor time per fetch, in milliseconds.
    fn each_fetch(&self) -> f64 {
        10.0 * self.busy * self.seconds / self.fetches as f64
    }
}

pub async fn measure(peers: usize, rotations: u32, steady: Duration) -> anyhow::Result<Size> {
    let number = peers;
    let peers = Peers::start(number).await?;
    let stage = Stage::start(&format!("bench-federate-{number}")).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = peers.federates_with();
    stage.create(federation).await;
    let status = Status::watch(stage.admin.clone());
    let controller = controller(&stage, &peers).await;
    let server = spire_server(&stage, &peers).await?;
    known_to_both(&peers, 1, &status, &server, 0).await.context("the first bundles")?;

    let (mut in_status, mut in_spire) = (Moments::default(), Moments::default());
    for rotation in 0..rotations {
        // Peers are polled periodically. Rotations in step with that would all wait equally long.
        let pause = HINT.as_secs_f64() / 4.0 * f64::from(rotation) / f64::from(rotations);
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        let logged = server.log().len();
        let (rotated, sequence) = peers.rotate()?;
        let known = known_to_both(&peers, sequence, &status, &server, logged).await?;
        in_status.add(&peers, Client::Controller, sequence, rotated, &known.0)?;
        in_spire.add(&peers, Client::SpireServer, sequence, rotated, &known.1)?;
    }
    let (controller_cost, server_cost, writes) =
        cost(&stage, &peers, controller.pid(), server.pid(), steady).await?;
    drop((controller, server));
    Ok(Size {
        peers: number,
        status: in_status.steps(),
        spire: in_spire.steps(),
        controller: controller_cost,
        server: server_cost,
        writes,
        raw_fetches: raw::fetches(peers.all[0].address, 1, RAW_FETCHES_FOR).await?,
        raw_writes: status.raw_writes(RAW_WRITES).await?,
    })
}

async fn controller(stage: &Stage, peers: &Peers) -> Controller {
    let trusted = stage.cluster.scratch().join("trusted.pem");
    suite::write_private(&trusted, &peers.authority);
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = [
        variable("SSL_CERT_FILE", &trusted.display().to_string()),
        variable("NO_PROXY", "localhost"),
        variable("RUST_LOG", "info"),
    ];
    stage.controller_with(&[], &environment).await
}

/// From the configuration that the controller rendered.
async fn spire_server(stage: &Stage, peers: &Peers) -> anyhow::Result<SpireServer> {
    stage.until_condition("ServerConfigMapAvailable", "True", "Available").await;
    let map = stage.object(Component::ServerConfigMap).await;
    let text = map["data"]["server.conf"].as_str().context("a configuration")?;
    let conf: Value = serde_json::from_str(text)?;
    Ok(Launch::new("bench-refresh", conf).trusting(&peers.authority).start().await)
}

/// Waits until this sequence of every peer is known. Returns when it was in the status, and when in
/// the SPIRE server.
async fn known_to_both(
    peers: &Peers,
    sequence: u64,
    status: &Status,
    server: &SpireServer,
    logged: usize,
) -> anyhow::Result<(Vec<Instant>, Vec<Instant>)> {
    let names: Vec<&str> = peers.all.iter().map(|it| &*it.trust_domain).collect();
    let in_status = async {
        let start = Instant::now();
        loop {
            let seen = names.iter().map(|name| status.first_seen(name, sequence));
            if let Some(all) = seen.collect::<Option<Vec<_>>>() {
                return anyhow::Ok(all);
            }
            if start.elapsed() > KNOWN_WITHIN {
                anyhow::bail!("not all peers are in the status: {:#}", status.now().await?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::try_join!(in_status, refreshed(server, logged, &names, KNOWN_WITHIN))
}

/// In milliseconds.
#[derive(Default)]
struct Moments {
    asked: Vec<f64>,
    known: Vec<f64>,
    whole: Vec<f64>,
}

impl Moments {
    fn add(
        &mut self,
        peers: &Peers,
        client: Client,
        sequence: u64,
        rotated: Instant,
        known: &[Instant],
    ) -> anyhow::Result<()> {
        let milliseconds =
            |from: Instant, to: Instant| 1000.0 * to.saturating_duration_since(from).as_secs_f64();
        for (peer, known) in peers.all.iter().zip(known) {
            let asked = peer.first_fetch(client, sequence);
            let asked = asked.with_context(|| format!("{client:?} was never answered"))?;
            self.asked.push(milliseconds(rotated, asked));
            self.known.push(milliseconds(asked, *known));
            self.whole.push(milliseconds(rotated, *known));
        }
        Ok(())
    }

    fn steps(self) -> Steps {
        let Self { asked, known, whole } = self;
        Steps { asked: Times::of(asked), known: Times::of(known), whole: Times::of(whole) }
    }
}

async fn cost(
    stage: &Stage,
    peers: &Peers,
    controller: i32,
    server: i32,
    steady: Duration,
) -> anyhow::Result<(Cost, Cost, usize)> {
    let clients = [(Client::Controller, controller), (Client::SpireServer, server)];
    let fetches = |client| peers.all.iter().map(|it| it.fetches(client)).sum::<usize>();
    let writes = || {
        let entries = stage.cluster.audit().entries();
        let counts = |it: &&std::sync::Arc<testkit::Entry>| {
            it.user == ACCOUNT && it.is_write() && !["leases", "events"].contains(&&*it.resource)
        };
        entries.iter().filter(counts).count()
    };
    let written = writes();
    let mut before = Vec::new();
    for (client, pid) in clients {
        before.push((fetches(client), Process(pid).busy()?));
    }
    let begin = Instant::now();
    tokio::time::sleep(steady).await;
    let seconds = begin.elapsed().as_secs_f64();
    let mut costs = Vec::new();
    for ((client, pid), (fetched, busy)) in clients.into_iter().zip(before) {
        let process = Process(pid);
        costs.push(Cost {
            resident: process.resident()?,
            peak: process.peak()?,
            busy: 100.0 * process.busy()?.saturating_sub(busy).as_secs_f64() / seconds,
            fetches: fetches(client) - fetched,
            seconds,
        });
    }
    ensure!(costs.iter().all(|it| it.fetches > 0), "nobody asked the peers in {steady:?}");
    let [controller, server] = costs.try_into().ok().context("two processes")?;
    Ok((controller, server, writes() - written))
}

fn columns(sizes: &[Size]) -> Vec<String> {
    let column = |it: &Size| match it.peers {
        1 => "1 peer".to_owned(),
        several => format!("{several} peers"),
    };
    sizes.iter().map(column).collect()
}

pub fn latencies(sizes: &[Size]) -> Table {
    let seconds = |times: &Times, part: f64| times.at(part) / 1000.0;
    let mut table = Table::new("from a rotation", columns(sizes));
    let interval = HINT.as_secs_f64() / 4.0;
    let rhythm = format!("median; peers are asked every {interval:.0} s");
    let of = |sizes: &[Size]| {
        let counts: Vec<_> = sizes.iter().map(|it| it.status.whole.count().to_string()).collect();
        format!("the latest of {}", counts.join(", "))
    };
    table.row(
        "until it is in the status",
        "s",
        sizes,
        |it| seconds(&it.status.whole, 0.5),
        &*rhythm,
    );
    table.row("- at most", "s", sizes, |it| seconds(&it.status.whole, 1.0), of(sizes));
    table.row(
        "- of it until the peer is asked",
        "s",
        sizes,
        |it| seconds(&it.status.asked, 0.5),
        "",
    );
    table.row("- from its answer to the status", "ms", sizes, |it| it.status.known.at(0.5), "");
    table.row("- - p99", "ms", sizes, |it| it.status.known.at(0.99), "");
    let remark = "a plain client patches the SpireServer and sees it in a watch; median";
    table.row("one raw write", "ms", sizes, |it| it.raw_writes.at(0.5), remark);
    let ratio = |it: &Size| it.status.known.at(0.5) / it.raw_writes.at(0.5);
    table.row("answer to status, in raw writes", "", sizes, ratio, "medians");
    table.row(
        "until the SPIRE server has it",
        "s",
        sizes,
        |it| seconds(&it.spire.whole, 0.5),
        &*rhythm,
    );
    table.row("- at most", "s", sizes, |it| seconds(&it.spire.whole, 1.0), of(sizes));
    table.row(
        "- from the peer's answer",
        "ms",
        sizes,
        |it| it.spire.known.at(0.5),
        "until it is stored and logged",
    );
    table.row(
        "one raw fetch",
        "ms",
        sizes,
        |it| it.raw_fetches.times().at(0.5),
        "a plain client, one after the other; median",
    );
    table
}

pub fn resources(sizes: &[Size]) -> Table {
    let mut table = Table::new("while nothing rotates", columns(sizes));
    let minute = |cost: &Cost| 60.0 * cost.fetches as f64 / cost.seconds;
    let raw = |it: &Size| it.raw_fetches.processor_each();
    table.row("controller: memory", "MB", sizes, |it| it.controller.resident, "resident");
    table.row("- peak", "MB", sizes, |it| it.controller.peak, "since its start");
    table.row("- processor", "%", sizes, |it| it.controller.busy, "of one core");
    table.row("- fetches a minute", "", sizes, |it| minute(&it.controller), "");
    table.row(
        "- on a processor, each fetch",
        "ms",
        sizes,
        |it| it.controller.each_fetch(),
        "everything else that it did is in it",
    );
    table.row(
        "- writes",
        "",
        sizes,
        |it| it.writes as f64,
        "to the API server, its Lease and Events aside",
    );
    table.row("SPIRE server: memory", "MB", sizes, |it| it.server.resident, "resident");
    table.row("- peak", "MB", sizes, |it| it.server.peak, "since its start");
    table.row("- processor", "%", sizes, |it| it.server.busy, "of one core");
    table.row("- fetches a minute", "", sizes, |it| minute(&it.server), "");
    table.row(
        "- on a processor, each fetch",
        "ms",
        sizes,
        |it| it.server.each_fetch(),
        "everything else that it did is in it",
    );
    table.row(
        "raw fetch: on a processor",
        "ms",
        sizes,
        raw,
        "the plain client's part; it verifies nothing",
    );
    let ratio = |it: &Size| it.controller.each_fetch() / raw(it);
    table.row("controller's fetch, in raw fetches", "", sizes, ratio, "processor time");
    table
}
