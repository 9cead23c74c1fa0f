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
            Err(failure) => println!("#### {} {}", failure.seed, failure.found),
        }
    }
    println!("{ok} operations in sequences that agree");
}
