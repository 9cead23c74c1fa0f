//! Joins: how many next to the bare work of verifying and signing, whether a flood of strangers keeps others
//! out, and what those cost who follow the bundles.
//!
//! Clients are the ones of `trustplane join` and `trustplane agent`, each join on a connection of its own. They
//! share the processors with the server, so what a join costs is the server's own processor time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use testkit::{figures::Times, free_port, process::Process, report::Table};
use tokio::task::JoinSet;
use trustplane::{
    authority::{
        join::client::{Client, JoinError, Joined, ServerTrust},
        run::Authority,
    },
    spiffe::{bundle::Bundle, id::TrustDomain},
};

use crate::{
    bare,
    cluster::{OWN, Stage},
    partner::Partner,
};

const PARTNER: &str = "partner.test";
/// A trust domain that nobody federates with.
const STRANGER: &str = "stranger.test";
/// SVIDs of the partner, which the token notes once each.
const IDENTITIES: usize = 32;
/// Of the rate that clients reach when they join as fast as they can.
const OFFERED: f64 = 0.25;
/// A server takes no more than 512 who have not joined yet.
const JOINING_AT_ONCE: usize = 32;

/// How many of what.
pub struct Size {
    /// Clients that join again as soon as they have joined.
    pub clients: usize,
    /// The same of the flood.
    pub strangers: usize,
    pub followers: usize,
    /// For each measurement.
    pub each: Duration,
}

pub struct Results {
    clients: usize,
    strangers: usize,
    followers: usize,
    /// As fast as they can, a second.
    rate: f64,
    /// Of the server, in seconds.
    busy: f64,
    /// The same of the bare work.
    bare: f64,
    offered: f64,
    phases: [Phase; 2],
    /// Resident without followers, in MB.
    empty: f64,
    full: f64,
    peak: f64,
}

/// Joins at a steady rate.
struct Phase {
    name: String,
    /// From the moment that it was due to the certificate and the bundles, in milliseconds.
    durations: Times,
    seconds: f64,
    /// Refusals of strangers.
    refused: usize,
    /// Of the server, in cores.
    busy: f64,
}

/// Everything that clients need.
struct Clients {
    all: Vec<Client>,
    strangers: Vec<Client>,
    trust: ServerTrust,
}

pub async fn measure(size: &Size) -> anyhow::Result<Results> {
    let (partner, stranger) = (Partner::new(PARTNER)?, Partner::new(STRANGER)?);
    let stage = Stage::start("bench-spiffe-joins").await?;
    let port = free_port()?;
    let listen = format!("--join-listen=127.0.0.1:{port}");
    let controller = stage.authority(Duration::from_secs(30), &[&listen]).await?;
    let process = Process(controller.pid());
    let source = json!({ "static": { "bundle": partner.document()? } });
    stage.create(std::iter::once((PARTNER.to_owned(), source))).await?;
    stage.create_token("bench", &format!("spiffe://{PARTNER}/**")).await?;
    stage.until_trusted(1).await?;
    let server = format!("127.0.0.1:{port}");
    let clients = Clients {
        all: partner.clients(&server, IDENTITIES)?,
        strangers: stranger.clients(&server, size.strangers)?,
        trust: trust(&stage).await?,
    };
    clients.until_all_joined().await?;

    let before = bare::seconds(&partner, size.each).await?;
    let (rate, busy) = as_fast_as_they_can(&clients, process, size).await?;
    let after = bare::seconds(&partner, size.each).await?;
    let offered = OFFERED * rate;
    let phases = [
        steady("alone", &clients, &[], offered, process, size.each).await?,
        steady("in a flood", &clients, &clients.strangers, offered, process, size.each).await?,
    ];
    // What ended connections held is freed.
    tokio::time::sleep(size.each).await;
    let empty = process.resident()?;
    process.forget_peak()?;
    let followers = clients.follow(size.followers).await?;
    tokio::time::sleep(size.each).await;
    let (full, peak) = (process.resident()?, process.peak()?);
    drop(followers);
    Ok(Results {
        clients: size.clients,
        strangers: size.strangers,
        followers: size.followers,
        rate,
        busy,
        bare: (before + after) / 2.0,
        offered,
        phases,
        empty,
        full,
        peak,
    })
}

/// By the bundle that the authority publishes.
async fn trust(stage: &Stage) -> anyhow::Result<ServerTrust> {
    let id = Authority::endpoint_id(&TrustDomain::parse(OWN)?).context("a SPIFFE ID")?;
    let bundle = Bundle::parse(stage.published().await?.as_bytes())?;
    Ok(ServerTrust::Spiffe { id, bundle: Arc::new(bundle) })
}

/// Joins a second, and the server's processor time for each in seconds.
async fn as_fast_as_they_can(
    clients: &Clients,
    process: Process,
    size: &Size,
) -> anyhow::Result<(f64, f64)> {
    let (begin, before) = (Instant::now(), process.busy()?);
    let deadline = begin + size.each;
    let joins = clients.all.iter().cycle().take(size.clients).map(|client| async move {
        let mut joins = 0_usize;
        while Instant::now() < deadline {
            client.join(&clients.trust).await?;
            joins += 1;
        }
        Ok::<_, JoinError>(joins)
    });
    let joins: usize = futures::future::try_join_all(joins).await?.iter().sum();
    // In a small run it may be less than the system counts.
    let busy = process.busy()?.saturating_sub(before).max(Duration::from_millis(10)).as_secs_f64();
    Ok((joins as f64 / begin.elapsed().as_secs_f64(), busy / joins as f64))
}

/// Begins joins at this rate, while strangers try again as soon as they were refused.
async fn steady(
    name: &str,
    clients: &Clients,
    strangers: &[Client],
    rate: f64,
    process: Process,
    each: Duration,
) -> anyhow::Result<Phase> {
    let mut flood = JoinSet::new();
    let (begin, before) = (tokio::time::Instant::now(), process.busy()?);
    let deadline = begin + each;
    for client in strangers {
        let (client, trust) = (client.clone(), clients.trust.clone());
        flood.spawn(async move {
            let mut refused = 0_usize;
            while tokio::time::Instant::now() < deadline {
                let joined = client.join(&trust).await;
                ensure!(joined.is_err(), "a stranger joins");
                refused += 1;
            }
            Ok(refused)
        });
    }
    let mut joining = JoinSet::new();
    let count = (rate * each.as_secs_f64()).ceil() as usize;
    for (number, client) in clients.all.iter().cycle().take(count).enumerate() {
        let due = begin + Duration::from_secs_f64(number as f64 / rate);
        tokio::time::sleep_until(due).await;
        let (client, trust) = (client.clone(), clients.trust.clone());
        joining.spawn(async move {
            let joined = client.join(&trust).await;
            joined.is_ok().then(|| 1000.0 * due.elapsed().as_secs_f64())
        });
    }
    let durations = joining.join_all().await.into_iter().flatten().collect();
    let seconds = begin.elapsed().as_secs_f64();
    let refused = flood.join_all().await.into_iter().sum::<anyhow::Result<usize>>()?;
    let busy = process.busy()?.saturating_sub(before).as_secs_f64();
    let (name, busy) = (name.to_owned(), busy / begin.elapsed().as_secs_f64());
    Ok(Phase { name, durations: Times::of(durations), seconds, refused, busy })
}

impl Clients {
    /// The watches of the authority bring token and partner a moment later than the API server has them.
    async fn until_all_joined(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        for client in &self.all {
            while let Err(error) = client.join(&self.trust).await {
                ensure!(Instant::now() < deadline, "{error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(())
    }

    async fn follow(&self, number: usize) -> anyhow::Result<Vec<Joined>> {
        let joins = self.all.iter().cycle().take(number).map(|client| client.join(&self.trust));
        Ok(stream::iter(joins).buffer_unordered(JOINING_AT_ONCE).try_collect().await?)
    }
}

impl Results {
    pub fn tables(&self) -> Vec<Table> {
        vec![self.cost(), self.flood(), self.memory()]
    }

    fn cost(&self) -> Table {
        let mut table = Table::new("joins", vec![format!("{} clients", self.clients)]);
        let this = [self];
        let remark = "each on a connection of its own; clients and server share the processors";
        table.row("a second", "/s", &this, |it| it.rate, remark);
        let remark = "the server's part: TLS, HTTP/2, judging, signing, the audit log";
        table.row("on a processor, each", "µs", &this, |it| 1e6 * it.busy, remark);
        let remark = "signature, chain and request verified, certificate signed, and nothing else";
        table.row("the bare work, each", "µs", &this, |it| 1e6 * it.bare, remark);
        table.row("joins a second of a core", "/s", &this, |it| 1.0 / it.busy, "");
        table.row("the bare work a second of a core", "/s", &this, |it| 1.0 / it.bare, "");
        let ratio = |it: &&Self| it.bare / it.busy;
        table.row("joins, share of the bare work", "", &this, ratio, "goal: 0.4");
        table
    }

    fn flood(&self) -> Table {
        let phases = &self.phases;
        let columns = phases.iter().map(|it| it.name.clone()).collect();
        let mut table = Table::new("joins at a steady rate", columns);
        let remark = "begun, whatever became of those before; a quarter of the rate above";
        table.row("offered", "/s", phases, |_| self.offered, remark);
        let rate = |it: &Phase| it.durations.count() as f64 / it.seconds;
        table.row("joined", "/s", phases, rate, "");
        let share = |it: &Phase| rate(it) / rate(&phases[0]);
        table.row("- next to those alone", "", phases, share, "goal: 0.8");
        table.row("- p50", "ms", phases, |it| it.durations.at(0.5), "until it has the bundles");
        table.row("- p99", "ms", phases, |it| it.durations.at(0.99), "");
        let refused = |it: &Phase| it.refused as f64 / it.seconds;
        let remark = format!(
            "{} of them, with SVIDs that they issued themselves; each tries again at once",
            self.strangers
        );
        table.row("strangers refused", "/s", phases, refused, remark);
        table.row("the server on a processor", "cores", phases, |it| it.busy, "");
        table
    }

    fn memory(&self) -> Table {
        let columns = vec![format!("{} followers", self.followers)];
        let mut table = Table::new("memory of followers", columns);
        let this = [self];
        let each = |it: &&Self| 1000.0 * (it.full - it.empty) / it.followers as f64;
        let remark = "resident with all of them, without the memory after the joins above";
        table.row("each follower", "KB", &this, each, remark);
        table.row("without followers", "MB", &this, |it| it.empty, "resident");
        table.row("with all of them", "MB", &this, |it| it.full, "resident");
        table.row("- peak", "MB", &this, |it| it.peak, "while they joined");
        table
    }
}
