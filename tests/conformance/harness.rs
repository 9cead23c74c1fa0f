//! Tests the comparison itself: two real servers agree, a wrong answer is found, failures can be
//! reproduced, and the list of known differences is true.

use crate::batch::{self, compare, first_failure};
use crate::call::Call;
use crate::defects::{DEFECTS, with_defect};
use crate::differences::KNOWN;
use crate::generate::Generator;
use crate::real::Real;
use crate::sandbox::sandbox;
use crate::sequence::{self, Compared, Pair};

#[tokio::test(flavor = "multi_thread")]
async fn two_real_servers_agree() {
    let (one, two) = tokio::join!(Real::shared(), Real::start("second"));
    let pair = Pair { left: one.side("one").await, right: two.side("another").await };
    let tally = compare(&pair, batch::seed(), 500).await;
    let tally = tally.unwrap_or_else(|report| panic!("{report}"));
    println!("{tally}");
    assert_eq!(tally.known(), 0, "a real server does not differ from itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_answer_is_found() {
    let (pair, seed) = (|| Pair { left: sandbox("one"), right: sandbox("another") }, batch::seed());
    let honest = first_failure(&pair(), seed, 1_000).await;
    assert!(honest.is_ok(), "two sandboxes differ");
    for defect in DEFECTS {
        let pair = Pair { right: with_defect(&sandbox("another"), *defect), ..pair() };
        let found = first_failure(&pair, seed, 1_000).await;
        assert!(found.is_err(), "not found: {}", defect.name);
    }
    println!("{} kinds of wrong answers were found", DEFECTS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_shrunk_and_can_be_reproduced() {
    let defect =
        DEFECTS.iter().find(|defect| defect.name.contains("generation")).expect("it is a defect");
    let pair = || Pair { left: sandbox("one"), right: with_defect(&sandbox("another"), *defect) };
    let report = compare(&pair(), 1, 2_000).await.err().expect("the defect is found");
    let steps = report.lines().filter(|line| line.trim_start().starts_with(char::is_numeric));
    assert!(steps.count() <= 3, "{report}");
    let seed = report.split(['=', ' ']).nth(1).and_then(|seed| seed.parse().ok());
    let again = first_failure(&pair(), seed.expect("the report says the seed"), 1).await;
    assert!(again.is_err(), "seed {seed:?} does not show it again");
}

#[test]
fn the_same_seed_makes_the_same_calls() {
    let calls = |seed| -> Vec<String> {
        Generator::new(seed).sequence(200).iter().map(Call::to_string).collect()
    };
    assert_eq!(calls(7), calls(7));
    assert_ne!(calls(7), calls(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_known_differences_is_short_and_true() {
    assert!(KNOWN.len() <= 10, "{} known differences", KNOWN.len());
    let real = Real::shared().await;
    let pair = Pair { left: real.side("the real server").await, right: sandbox("the sandbox") };
    for known in KNOWN {
        let compared = sequence::run(&pair, &(known.example)()).await;
        let compared = compared.unwrap_or_else(|found| panic!("{}: {found}", known.name));
        let last = compared.last().and_then(|last: &Compared| last.known);
        assert_eq!(last, Some(known.name), "it is no difference any more: {}", known.why);
        println!("{}: {}", known.name, known.why);
    }
}
