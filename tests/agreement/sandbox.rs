//! The sandbox against a real API server.

use trustplane::kit::clock::Clock;
use trustplane::sandbox::api::ApiServer;
use trustplane::sandbox::store::Store;

use crate::compared::{self, first_failure};
use crate::real::Real;
use crate::sequence::Pair;
use crate::side::Side;

/// A sandbox of its own.
pub fn sandbox(name: &'static str) -> Side {
    let server = ApiServer::new(Store::new(100_000, 1), Clock::system());
    Side { name, client: server.client() }
}

#[tokio::test(flavor = "multi_thread")]
async fn survey() {
    let real = Real::start("agree").await;
    let pair = Pair { left: real.side("real").await, right: sandbox("sandbox") };
    let seed = compared::seed();
    let count: u64 = std::env::var("SEQS").map_or(40, |n| n.parse().unwrap());
    let mut ok = 0;
    for n in 0..count {
        match first_failure(&pair, seed + n, 1).await {
            Ok(tally) => ok += tally.operations,
            Err(_) if std::env::var_os("SHRINK").is_some() => {
                println!(
                    "{}",
                    compared::compare(&pair, seed + n, 1).await.err().unwrap_or_default()
                )
            }
            Err(failure) => println!("#### {} {}", failure.seed, failure.found),
        }
    }
    println!("{ok} operations in sequences that agree");
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
