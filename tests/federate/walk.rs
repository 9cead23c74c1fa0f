//! The walk of docs/federate.md: every file and every command word for word, and what each prints.
//!
//! [`testkit::manual`] reads the page, [`machine`] is the administrator's, [`node`] does what nodes would do with
//! the Pods. Between the sections this waits for what a reader is told to wait for.

mod machine;
mod node;

use std::time::{Duration, Instant};

use machine::Machine;
use node::Site;
use testkit::{Cluster, eventually, manual::Manual, spire::Names, stage::Stage};

const SOON: Duration = Duration::from_secs(60);

/// All that the walk consists of.
const SECTIONS: [&str; 9] = [
    "1. Install",
    "2. Describe each cluster",
    "3. Wait for the SPIRE servers",
    "4. Exchange the first bundles",
    "5. See that the bundles arrive",
    "6. Start agents",
    "7. Give workloads an identity",
    "8. mTLS, in both directions",
    "9. End the trust",
];

async fn site(letter: &'static str) -> Site {
    let name = format!("cluster-{letter}");
    let cluster = Cluster::start_another(&format!("walk-{letter}")).await;
    let domain = format!("apps.{name}.example.com");
    Site::of(letter, Stage::on(cluster, &format!("{name}.example.com"), &domain).await).await
}

#[tokio::test]
async fn the_walk_of_the_manual_leads_two_workloads_to_mtls_and_ends_it_again() {
    let begin = Instant::now();
    let manual = Manual::read("docs/federate.md");
    assert_eq!(manual.sections(), SECTIONS, "each of them is walked below");
    let names = Names::start().await;
    let (a, b) = tokio::join!(site("a"), site("b"));
    let machine = Machine::with(&[("a", &a.stage().cluster), ("b", &b.stage().cluster)], &names);
    let walked = |what: &str| println!("{:5.1} s  {what}", begin.elapsed().as_secs_f64());

    machine.run(&manual.section("1. Install")).await;
    machine.run(&manual.section("2. Describe each cluster")).await;
    walked("installed");
    let (mut a, mut b) = tokio::join!(a.run(&names), b.run(&names));
    machine.enters(&a.server_pod());
    machine.enters(&b.server_pod());
    let told = a.side.until_peer("cluster-b.example.com", "how to bootstrap", SOON, |peer| {
        peer["lastError"].is_string()
    });
    told.await;
    machine.run(&manual.section("3. Wait for the SPIRE servers")).await;
    walked("ready");

    machine.run(&manual.section("4. Exchange the first bundles")).await;
    a.side.until_bundle("cluster-b.example.com", 1).await;
    b.side.until_bundle("cluster-a.example.com", 1).await;
    // A SPIRE server that had no bundle to know its peer by tries again after a minute, or at its start.
    tokio::join!(a.side.spire.start_again(), b.side.spire.start_again());
    machine.run(&manual.section("5. See that the bundles arrive")).await;
    walked("peers");

    let agents = manual.section("6. Start agents");
    let (create, wait) = agents.split_before("rollout status");
    machine.run(&create).await;
    tokio::join!(a.start_agent(), b.start_agent());
    machine.run(&wait).await;
    let identities = manual.section("7. Give workloads an identity");
    let (create, rest) = identities.split_before("entry show");
    let (show, wait) = rest.split_before("wait --for=condition=Ready");
    machine.run(&create).await;
    tokio::join!(a.until_entry(), b.until_entry());
    machine.run(&show).await;
    tokio::join!(a.start_workload(&names, true), b.start_workload(&names, true));
    machine.run(&wait).await;
    machine.enters(&a.workload_pod());
    machine.enters(&b.workload_pod());
    walked("workloads");

    machine.run(&manual.section("8. mTLS, in both directions")).await;
    walked("mTLS");

    let end = manual.section("9. End the trust");
    let (unlist, rest) = end.split_before("rollout status");
    machine.run(&unlist).await;
    a.roll_out().await;
    let (dissociate, rest) = rest.split_before("delete pod");
    a.unfederate_entry().await;
    machine.run(&dissociate).await;
    let known = async || a.side.spire.bundle_list().await.len();
    eventually(SOON, "SPIRE forgets the other bundle", async || match known().await {
        0 => Ok(()),
        number => Err(number),
    })
    .await;
    a.until_matching().await;
    let (again, refused) = rest.split_before("greet.sh");
    tokio::join!(machine.run(&again), a.end_pod());
    a.start_workload(&names, false).await;
    machine.enters(&a.workload_pod());
    machine.run(&refused).await;
    walked("mTLS is refused");
    assert_eq!(machine.different(), Vec::<String>::new(), "the page shows something else");
}
