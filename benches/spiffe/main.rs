//! The SPIFFE authority: how many answers its endpoint gives next to a plain route, how many join next to the
//! bare work of a join, and what a thousand followers and a thousand federations cost, of which a hundred are
//! dead. Each figure is shown next to its limit in the same run.
//!
//! ```sh
//! cargo bench --bench spiffe
//! cargo bench --bench spiffe -- --federations 200 --dead 20 --window 60 --json figures.json
//! ```
//!
//! Figures only: nothing here fails for being slow. `cargo test` runs it with a few federations, to check
//! that figures are made and placed in the page, and that there is one status write a sync.

mod bare;
mod client;
mod cluster;
mod endpoint;
mod federations;
mod joins;
mod journal;
mod partner;
mod peers;

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use chrono::{TimeDelta, Utc};
use clap::Parser;
use testkit::{
    arguments::Arguments,
    bench::{self, FigureArgs},
    report::{self, Report},
};
use trustplane::authority::{act::signer::make_ca, decide::ca};

use endpoint::Endpoints;
use federations::Size;

const PROMISE: &str = "spiffe::the_benchmark_measures_the_authority_and_updates_the_page";

#[derive(Parser)]
struct Options {
    /// How many federations
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(4..))]
    federations: u32,
    /// How many of them die
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    dead: u32,
    /// Seconds of each measurement with federations, which are synced every minute
    #[arg(long, default_value_t = 180)]
    window: u64,
    /// How many static bundles of 512 KiB
    #[arg(long, default_value_t = 300)]
    large: u32,
    /// Clients of the endpoint
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=128))]
    clients: u32,
    /// Clients that join as fast as they can
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    joining: u32,
    /// Strangers that try to join
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    strangers: u32,
    /// Clients that follow the bundles
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    followers: u32,
    /// Seconds for each measurement of the endpoint and of joins
    #[arg(long, default_value_t = 3)]
    load: u64,
    #[command(flatten)]
    output: FigureArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if arguments.first().is_some_and(|first| first == client::COMMAND) {
        return runtime.block_on(client::run(&arguments[1..])).map(|()| ExitCode::SUCCESS);
    }
    bench::keep_runs_apart("bench-spiffe");
    if bench::is_bench(&arguments) {
        let options = Options::parse();
        runtime.block_on(options.output.publish(measure(&options)))
    } else {
        runtime.block_on(check_small_run(arguments)).map(|()| ExitCode::SUCCESS)
    }
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    ensure!(options.dead < options.federations, "--dead must be less than --federations");
    let each = Duration::from_secs(options.load);
    let endpoints = Endpoints::start(options.clients as usize).await?;
    // Not measured: caches and frequencies settle.
    endpoints.measure(1, each).await?;
    let throughput = endpoints.measure(5, each).await?;
    let size = joins::Size {
        clients: options.joining as usize,
        strangers: options.strangers as usize,
        followers: options.followers as usize,
        each,
    };
    let joins = joins::measure(&size).await?;
    let size = Size {
        federations: options.federations as usize,
        dead: options.dead as usize,
        hint: Duration::from_secs(60),
        shortest_interval: Duration::from_secs(30),
        window: Duration::from_secs(options.window),
        large: options.large as usize,
    };
    let results = federations::measure(&size).await?;
    let subject = format!(
        "{} federations that are fetched every minute, of which {} die",
        options.federations, options.dead
    );
    let mut report = Report::about("spiffe", subject);
    report.tables = vec![throughput.table()];
    report.tables.extend(joins.tables());
    report.tables.extend(results.tables());
    report.void = throughput.void_against(&endpoints.measure(3, each).await?);
    Ok(report)
}

/// Run by `cargo test`, whose arguments may name other tests.
async fn check_small_run(arguments: Vec<String>) -> anyhow::Result<()> {
    if !Arguments::of(arguments).select_only_test(PROMISE) {
        return Ok(());
    }
    let throughput = Endpoints::start(4).await?.measure(1, Duration::from_millis(300)).await?;
    let each = Duration::from_millis(500);
    let joins = joins::Size { clients: 2, strangers: 2, followers: 8, each };
    let joins = joins::measure(&joins).await?;
    let size = Size {
        federations: 8,
        dead: 2,
        hint: Duration::from_secs(2),
        shortest_interval: Duration::from_secs(1),
        window: Duration::from_secs(8),
        large: 4,
    };
    let results = federations::measure(&size).await?;
    let mut report = Report::about("spiffe", "a moment".to_owned());
    report.tables = vec![throughput.table()];
    report.tables.extend(joins.tables());
    report.tables.extend(results.tables());
    println!("{report}");
    let most = results.most_writes();
    ensure!(most <= 1.0, "{most} status writes from one sync to the next");
    report::check(&report)
}

/// A bundle with two CAs.
fn document(hint: u64) -> anyhow::Result<String> {
    let (now, policy) = (Utc::now(), policy(hint)?);
    let ca = || make_ca("peer.test", TimeDelta::days(1), now).map(|made| made.ca);
    let mut state = ca::first("peer.test", ca()?, ca::Before::default(), &policy, now);
    state.cas.extend(ca::first("peer.test", ca()?, ca::Before::default(), &policy, now).cas);
    Ok(state.document()?)
}

fn policy(hint: u64) -> anyhow::Result<ca::Policy> {
    Ok(ca::Policy {
        refresh_hint: TimeDelta::seconds(i64::try_from(hint)?),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    })
}
