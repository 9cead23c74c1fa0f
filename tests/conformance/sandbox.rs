//! The sandbox against a real API server.

use trustplane::demo::api_server;
use trustplane::runtime::clock::Clock;

use crate::batch::{self, compare};
use crate::real::Real;
use crate::sequence::Pair;
use crate::side::{Server, Side};
use crate::{cases, lifecycle, tokens};

pub fn sandbox(name: &'static str) -> Side {
    sandbox_at(name, Clock::system())
}

/// A sandbox with a clock of its own.
pub fn sandbox_at(name: &'static str, clock: Clock) -> Side {
    let server = api_server::server(api_server::store(100_000, 1), clock);
    // Compacted, as if it had run for long.
    server.with(|store| store.compact(store.version()));
    Side { name, client: server.client(), server: Server::Sandbox(server) }
}

/// Number of compared calls in ordinary and in long runs.
const OPERATIONS: (usize, usize) = (3_000, 40_000);

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_answers_as_a_real_api_server_does() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let operations = if batch::is_long() { OPERATIONS.1 } else { OPERATIONS.0 };
    let tally = compare(&pair, batch::seed(), operations).await;
    let tally = tally.unwrap_or_else(|report| panic!("{report}"));
    println!("{tally}");
    assert_eq!(tally.gaps(), Vec::<String>::new(), "too little was compared");
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_that_random_calls_rarely_produce_are_the_same_too() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let failures = batch::scenarios(&pair, cases::scenarios()).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_issued_and_reviewed_in_the_same_way() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let failures = batch::scenarios(&pair, tokens::scenarios()).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_does_the_work_of_a_real_clusters_controllers_itself() {
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    let failures = batch::scenarios(&pair, lifecycle::scenarios()).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
