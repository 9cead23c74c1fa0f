//! The comparison itself can be believed: two real servers agree, and a wrong answer is found.

use crate::compared::{self, compare};
use crate::real::Real;
use crate::sequence::Pair;

#[tokio::test(flavor = "multi_thread")]
async fn two_real_servers_agree() {
    let (one, two) = tokio::join!(Real::start("agree-one"), Real::start("agree-two"));
    let pair = Pair { left: one.side("one").await, right: two.side("two").await };
    let count = std::env::var("OPS").map_or(2000, |n| n.parse().unwrap());
    let tally = compare(&pair, compared::seed(), count).await.unwrap_or_else(|why| panic!("{why}"));
    println!("{tally}\ngaps {:?}", tally.gaps());
}
