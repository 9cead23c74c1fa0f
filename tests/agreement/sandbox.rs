//! The sandbox against a real API server.

use trustplane::kit::clock::Clock;
use trustplane::sandbox::api::ApiServer;
use trustplane::sandbox::store::Store;

use crate::compared::{self, compare, first_failure};
use crate::real::Real;
use crate::sequence::Pair;
use crate::side::Side;
use crate::{cases, lifecycle};

/// A sandbox of its own.
pub fn sandbox(name: &'static str) -> Side {
    let server = ApiServer::new(Store::new(100_000, 1), Clock::system());
    // As if it had run for long enough to have forgotten its beginnings.
    server.with(|store| store.compact(store.version()));
    Side { name, client: server.client() }
}

/// Calls that are compared in every run, and in a long one.
const OPERATIONS: (usize, usize) = (4_000, 40_000);

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_answers_as_a_real_api_server_does() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let operations = if compared::is_long() { OPERATIONS.1 } else { OPERATIONS.0 };
    let tally = compare(&pair, compared::seed(), operations).await;
    let tally = tally.unwrap_or_else(|report| panic!("{report}"));
    println!("{tally}");
    assert_eq!(tally.gaps(), Vec::<String>::new(), "too little was compared");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_random_calls_hardly_meet_is_the_same_too() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let failures = compared::scenarios(&pair, cases::scenarios()).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_controllers_of_a_real_cluster_do_the_sandbox_does_itself() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let failures = compared::scenarios(&pair, lifecycle::scenarios()).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn survey() {
    use futures::StreamExt;
    let real = Real::start("agree").await;
    let pair = Pair { left: real.side("real").await, right: sandbox("sandbox") };
    let seed = compared::seed();
    let count: u64 = std::env::var("SEQS").map_or(40, |n| n.parse().unwrap());
    let runs = (0..count).map(|n| {
        let pair = &pair;
        async move {
            match first_failure(pair, seed + n, 1).await {
                Ok(tally) => tally.operations,
                Err(failure) => {
                    println!("#### {} {}", failure.seed, failure.found);
                    0
                }
            }
        }
    });
    let done: Vec<usize> = futures::stream::iter(runs).buffer_unordered(6).collect().await;
    println!("{} operations in sequences that agree", done.iter().sum::<usize>());
}

#[tokio::test(flavor = "multi_thread")]
async fn probe() {
    use crate::call::{Body, Call};
    let real = Real::start("agree").await;
    let pair = Pair { left: real.side("real").await, right: sandbox("sandbox") };
    let mut number = 0;
    for block in std::fs::read_to_string(std::env::var("PROBE").unwrap()).unwrap().split("\n\n") {
        number += 1;
        println!("==== sequence {number}");
        let mut steps = Vec::new();
        for line in block.lines().filter(|line| !line.trim().is_empty()) {
            let mut parts = line.splitn(3, ' ');
            let (method, uri, body) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
            let (kind, method) = match method {
                "MERGE" => ("application/merge-patch+json", "PATCH"),
                "JSON" => ("application/json-patch+json", "PATCH"),
                "SMP" => ("application/strategic-merge-patch+json", "PATCH"),
                other => ("application/json", other),
            };
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let mut call = Call::new(method.parse().unwrap(), path).header("content-type", kind);
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap();
                call = call.with(name.to_owned().leak(), value);
            }
            if let Some(body) = body {
                call.body = Body::Text(body.to_owned());
            }
            steps.push(call);
        }
        println!("{:?}", crate::sequence::explore(&pair, &steps).await);
    }
}
