//! The comparison itself can be believed: two real servers agree, and a wrong answer is found.

use crate::compared::{self, compare, first_failure};
use crate::liar::{LIES, lying};
use crate::real::Real;
use crate::sequence::Pair;

#[tokio::test(flavor = "multi_thread")]
async fn two_real_servers_agree() {
    let (one, two) = tokio::join!(Real::start("agree-one"), Real::start("agree-two"));
    let pair = Pair { left: one.side("one").await, right: two.side("two").await };
    let count = std::env::var("OPS").map_or(2000, |n| n.parse().unwrap());
    let tally = compare(&pair, compared::seed(), count).await.unwrap_or_else(|why| panic!("{why}"));
    println!("{tally}\ngaps {:?}", tally.gaps());

    for lie in LIES {
        let pair = Pair { right: lying(&pair.right, *lie), ..pair.clone() };
        match first_failure(&pair, compared::seed(), 1_000).await {
            Ok(_) => println!("NOT FOUND: {}", lie.name),
            Err(failure) => println!("{}: {}", lie.name, failure.found),
        }
    }
    for scenarios in [crate::lifecycle::scenarios(), crate::cases::scenarios()] {
        let failures = compared::scenarios(&pair, scenarios).await;
        println!("{}", failures.join("\n"));
    }
}
