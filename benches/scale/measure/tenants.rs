//! A hostile tenant fills its namespace with the largest objects that the API server accepts, and
//! keeps changing others. The controller must start, stay small, and serve other namespaces.

use std::{cell::Cell, convert::Infallible, time::Duration};

use anyhow::Context;
use chrono::Utc;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use testkit::{figures::Times, hostile, pair, process::Process};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Settings,
    changes::{introduce_lone, keep_renewing},
    end, now, until_ready,
};
use crate::{
    certificates::Issuer,
    figures::Report,
    fill::{all, annotated, created, namespaces, patched},
    journal::{Journal, Mark, Request, seconds_between},
    population::{
        HOSTILE, RAW, RouteRef, SINGLE, renewal, route, routes_path, secrets_path, tls_secret,
    },
    raw::Order,
    requests::{create, replace},
    stage::Stage,
};

/// Half of the controller's memory limit in deploy/base.
const MEMORY_MIB: f64 = 128.0;
const MB_PER_MIB: f64 = 1.048_576;
/// Pairs that the small Secrets alternate between.
const PAIRS: usize = 40;
/// Concurrent changes.
const CONCURRENCY: usize = 16;
/// The Secret that all large Routes name, and that does not exist.
const ABSENT: &str = "absent";

#[derive(Clone, Copy)]
pub struct Flood {
    /// TLS Secrets of 1 MiB.
    large: usize,
    /// TLS Secrets with 1.3 MB of managedFields.
    managed: usize,
    /// Routes of 1 MiB.
    routes: usize,
    /// TLS Secrets of an ordinary size that keep changing.
    small: usize,
    /// Changes per second of all of them together.
    changes: u32,
    /// TLS Secrets with a long chain, each with a Route.
    chains: usize,
    /// Certificates per chain.
    certificates: usize,
}

impl Flood {
    pub const FULL: Self = Self {
        large: 1_000,
        managed: 500,
        routes: 200,
        small: 10_000,
        changes: 50,
        chains: 20,
        certificates: 2_000,
    };

    /// Enough to check that everything is measured.
    pub const SMALL: Self = Self {
        large: 10,
        managed: 3,
        routes: 3,
        small: 200,
        changes: 20,
        chains: 2,
        certificates: 2_000,
    };
}

/// Name of a chain's Route and, with `-tls` after it, of its Secret.
fn chain(number: usize) -> RouteRef {
    RouteRef::new(HOSTILE, &format!("chain-{number}"))
}

fn small(number: usize) -> RouteRef {
    RouteRef::new(HOSTILE, &format!("small-{number}"))
}

pub async fn measure(
    settings: &Settings,
    issuer: &Issuer,
    report: &mut Report,
) -> anyhow::Result<()> {
    now("a hostile tenant");
    let already_there = report.figures.len();
    let flood = settings.flood;
    let mut stage = Stage::empty().await?;
    let client = stage.client().await?;
    namespaces(&client).await?;
    let few = flood.small / 10;
    fill_small(&client, issuer, 0, few).await?;
    let fewer = memory(&stage, settings).await?;
    fill_small(&client, issuer, few, flood.small).await?;
    let more = memory(&stage, settings).await?;
    fill_large(&client, flood).await?;

    let mark = stage.journal.mark()?;
    let begin = Utc::now();
    let mut controller = stage.controller();
    until_ready(&mut controller).await?;
    let ready = seconds_between(begin, Utc::now());
    introduce_lone(&mut stage, issuer).await?;
    create(&client, &routes_path(RAW), &route(SINGLE, None)).await?;
    stage.journal.quiet(settings.silence).await?;
    let OtherNamespaces { lone, raw, rate } = during_changes(&mut stage, settings, issuer).await?;
    let peak = Process(controller.pid()).peak()? / MB_PER_MIB;
    let requests = stage.journal.since(mark)?;
    let reads =
        |request: &&Request| request.is_secret_read() && *request.place.namespace == *HOSTILE;
    let (named, unnamed): (Vec<&Request>, Vec<&Request>) =
        requests.iter().filter(reads).partition(|request| is_named(&request.place, flood));

    report.add("stored in one namespace", flood.megabytes(), "MB", flood.in_words());
    report.add("ready", ready, "s", "from the start of the process");
    report.add("peak of memory", peak, "MiB", "resident, until the changes ended");
    report.add("changes a second", rate, "/s", "of the small Secrets; one in fifty of a chain");
    report.add_times("one Secret of a lone Route elsewhere changed", &lone, "meanwhile");
    report.add_times("raw GET and patch", &raw, "meanwhile, by a plain client");
    let ratios = [0.5, 0.9, 0.99].map(|part| lone.at(part) / raw.at(part));
    let [p50, p90, p99] = ratios;
    let remark =
        format!("the lone Route's p50 by that of GET and patch; p90 {p90:.1}, p99 {p99:.1}");
    report.add("- the one in terms of the other", p50, "", remark);
    report.add("reads of Secrets that no Route names", unnamed.len() as f64, "", "one by one");
    let remark = format!("of {} with a chain, and of one that is missing", flood.chains);
    report.add("reads of Secrets that Routes name", named.len() as f64, "", remark);
    let each = (more - fewer) * 1e3 / (flood.small - few) as f64;
    let remark = format!(
        "{fewer:.1} MB with {few} small ones, {more:.1} MB with {}, before the large ones",
        flood.small
    );
    report.add("memory for a TLS Secret that no Route names", each, "KB", remark);
    report.tenants = report.figures.split_off(already_there);
    report.at_most("hostile tenant: peak of memory", peak, MEMORY_MIB, "MiB");
    report.at_most(
        "hostile tenant: a renewal elsewhere: p99, in raw GETs and patches",
        p99,
        3.0,
        "",
    );
    let reads = unnamed.len() as f64;
    report.at_most("hostile tenant: reads of Secrets that no Route names", reads, 0.0, "");
    report.at_most("memory for a TLS Secret that no Route names", each, 0.05, "KB");
    end(&mut controller).await
}

/// Whether a Route names this Secret.
fn is_named(secret: &RouteRef, flood: Flood) -> bool {
    *secret.name == *ABSENT || (0..flood.chains).any(|number| chain(number).secret() == *secret)
}

async fn fill_small(
    client: &Client,
    issuer: &Issuer,
    from: usize,
    to: usize,
) -> anyhow::Result<()> {
    let pairs = issuer.pairs(PAIRS)?;
    all("small TLS Secrets", to - from, |number| {
        let number = from + number;
        let secret = tls_secret(&small(number).name, &pairs[number % PAIRS]);
        created(client, secrets_path(HOSTILE), secret)
    })
    .await
}

async fn fill_large(client: &Client, flood: Flood) -> anyhow::Result<()> {
    all("TLS Secrets of 1 MiB", flood.large, |number| {
        let secret = hostile::junk_secret(&format!("large-{number}"));
        created(client, secrets_path(HOSTILE), secret)
    })
    .await?;
    all("TLS Secrets with many managers", flood.managed, async |number| {
        let place = RouteRef::new(HOSTILE, &format!("managed-{number}"));
        let secret = hostile::many_fields_secret(&place.name);
        created(client, secrets_path(HOSTILE), secret).await?;
        let secret = hostile::many_managers_secret(&place.name);
        replace(client, &place.secret_path(), &secret).await
    })
    .await?;
    all("Routes of 1 MiB", flood.routes, |number| {
        let route = hostile::large_route(&format!("large-{number}"), ABSENT);
        created(client, routes_path(HOSTILE), route)
    })
    .await?;
    let long = pair::long_chain(flood.certificates);
    all("TLS Secrets with long chains", flood.chains, async |number| {
        let name = chain(number).secret().name;
        let secret = hostile::tls_secret(&name, &long.certificate, &long.key);
        created(client, secrets_path(HOSTILE), secret).await?;
        annotated(client, chain(number), None).await
    })
    .await
}

/// Memory of an idle controller, in MB.
async fn memory(stage: &Stage, settings: &Settings) -> anyhow::Result<f64> {
    let mut controller = stage.controller();
    until_ready(&mut controller).await?;
    tokio::time::sleep(settings.settled).await;
    let resident = Process(controller.pid()).resident()?;
    end(&mut controller).await?;
    Ok(resident)
}

/// Measurements in other namespaces while the tenant changed its Secrets.
struct OtherNamespaces {
    /// From the change of the lone Route's Secret to the Route's patch.
    lone: Times,
    /// From a read of a Route to its patch, by the plain client.
    raw: Times,
    /// Changes per second by the tenant.
    rate: f64,
}

async fn during_changes(
    stage: &mut Stage,
    settings: &Settings,
    issuer: &Issuer,
) -> anyhow::Result<OtherNamespaces> {
    now("a hostile tenant changes its Secrets");
    let order =
        Order::on(stage, Duration::ZERO, settings.changes, settings.pause, issuer.mean_bytes()?);
    let lone_pairs = issuer.pairs(2 * settings.changes as usize)?;
    let (tenant, renewer) = (stage.client().await?, stage.issuer().await?);
    let (changes, mark, begin) = (Cell::new(0), stage.journal.mark()?, Instant::now());
    let plain_client = async { order.beside_controller().carry_out().await.map(drop) };
    let used = tokio::select! {
        used = keep_renewing(&renewer, &lone_pairs, plain_client) => used?,
        failed = keep_changing(&tenant, settings.flood, issuer, &changes) => match failed? {},
    };
    let rate = f64::from(changes.get()) / begin.elapsed().as_secs_f64();
    let lone = stage.journal.lone_latencies(mark, &lone_pairs[..used]).await?;
    let raw = stage.journal.reads_to_patches(mark)?;
    Ok(OtherNamespaces { lone: Times::of(lone), raw: Times::of(raw), rate })
}

/// Changes the small Secrets in turn, and sometimes one with a chain.
async fn keep_changing(
    client: &Client,
    flood: Flood,
    issuer: &Issuer,
    done: &Cell<u32>,
) -> anyhow::Result<Infallible> {
    let pairs = issuer.pairs(PAIRS)?;
    let pairs: Vec<Value> = pairs.iter().map(|pair| renewal(pair)).collect();
    let chains = [(); 2].map(|()| {
        let long = pair::long_chain(flood.certificates);
        json!({ "data": hostile::tls_secret("", &long.certificate, &long.key)["data"] })
    });
    let mut ticks = interval(Duration::from_secs(1) / flood.changes);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let numbers = stream::unfold((ticks, 0_usize), async |(mut ticks, number)| {
        ticks.tick().await;
        Some((number, (ticks, number + 1)))
    });
    let change = |number: usize| {
        let (place, change) = if number % 50 == 49 {
            let turn = number / 50;
            (chain(turn % flood.chains).secret(), &chains[(turn / flood.chains) % 2])
        } else {
            (small(number % flood.small), &pairs[(number / flood.small + number) % PAIRS])
        };
        patched(client, place.secret_path(), change.clone())
    };
    let mut changed = Box::pin(numbers.map(change).buffer_unordered(CONCURRENCY));
    while changed.try_next().await?.is_some() {
        done.set(done.get() + 1);
    }
    Err(anyhow::anyhow!("the hostile tenant stopped"))
}

impl Journal {
    /// Milliseconds from each read of a Route by the plain client to the end of the patch after it.
    fn reads_to_patches(&mut self, mark: Mark) -> anyhow::Result<Vec<f64>> {
        let (mut read, mut times) = (None, Vec::new());
        for request in self.since(mark)? {
            if request.is_single_read() {
                read = Some(request.received);
            } else if request.is_single() {
                let from =
                    read.take().context("the plain client did not read before it patched")?;
                times.push(seconds_between(from, request.answered) * 1e3);
            }
        }
        Ok(times)
    }
}

impl Flood {
    /// Size in etcd, without history.
    fn megabytes(self) -> f64 {
        let Self { large, managed, routes, small, chains, certificates, .. } = self;
        let (mebibyte, kilobyte) = (MB_PER_MIB, 1e-3);
        (large + routes) as f64 * mebibyte
            + managed as f64 * 1.5
            + small as f64 * 5.0 * kilobyte
            + (chains * certificates) as f64 * 0.42 * kilobyte
    }

    fn in_words(self) -> String {
        let Self { large, managed, routes, small, chains, certificates, .. } = self;
        format!(
            "{large} TLS Secrets of 1 MiB, {managed} with 1.3 MB of managedFields, {small} of 5 KB; \
             {routes} Routes of 1 MiB that ask for a missing Secret, {chains} that ask for one with \
             {certificates} certificates"
        )
    }
}
