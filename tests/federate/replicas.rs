//! Two replicas, as deploy/federate runs them: one writes and asks the peers, and when it dies the
//! other goes on where it was.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;
use serde_json::json;
use testkit::{
    Controller, Entry, Pair, eventually, eventually_equals, pair,
    stage::{self, ACCOUNT, Stage},
};
use tokio::task::JoinSet;
use trustplane::{federate::decide::render::Component, names::FEDERATE_LEASE};

use crate::{
    figures::Figures,
    life::first_writes,
    many_peers::{Peer, Served},
    peer_outage::{Way, trusting, up},
};

/// A lease that nobody renews has run out long before.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long that whoever asks the peer meanwhile does it because it leads now.
const RARELY: Duration = Duration::from_secs(3_600);
const PEER: &str = "td-b.test";

async fn replica(stage: &Stage, name: &str, pair: &Pair, figures: &Figures) -> Controller {
    let pod = [("POD_NAME", name), ("POD_NAMESPACE", "trustplane")];
    let pod = pod.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment = [pod, trusting(stage, pair)].concat();
    stage.controller_with(&["--leader-elect", &figures.flag()], &environment).await
}

async fn until_led_by(stage: &Stage, name: &str) {
    let leases: Api<Lease> = Api::namespaced(stage.admin.clone(), "trustplane");
    eventually(PATIENCE, &format!("{name} holds the lease"), async || {
        let lease = leases.get_opt(FEDERATE_LEASE).await.expect("an answer");
        let holder = lease.and_then(|it| it.spec?.holder_identity).unwrap_or_default();
        if holder.starts_with(&format!("{name}_")) { Ok(()) } else { Err(holder) }
    })
    .await;
}

async fn until_up(controller: &mut Controller) {
    eventually_equals(PATIENCE, "the peer is up", Some(true), async || up(controller, PEER).await)
        .await;
}

/// All that our account wrote but the Lease, Events included.
fn written(stage: &Stage) -> Vec<Arc<Entry>> {
    let ours = |it: &Arc<Entry>| it.user == ACCOUNT && it.is_write() && it.resource != "leases";
    stage.cluster.audit().entries().into_iter().filter(ours).collect()
}

fn about_objects(writes: &[String]) -> Vec<String> {
    let status = |it: &&String| it.ends_with("/status");
    let mut writes: Vec<_> = writes.iter().filter(|it| !status(it)).cloned().collect();
    writes.sort();
    writes
}

/// Two replicas, of which the first leads, and a peer that it asked.
struct Two {
    stage: Stage,
    first: Controller,
    second: Controller,
    way: Way,
    /// All that the first wrote.
    writes: Vec<String>,
    _peer: JoinSet<()>,
    _figures: Figures,
}

impl Two {
    async fn start(name: &str) -> Self {
        let (pair, mut peer) = (pair::issued("localhost"), JoinSet::new());
        let served = Served::asking_for(RARELY, &pair).start(Peer::Good, &mut peer).await;
        let way = Way::to(served).await;
        let stage = Stage::start(name).await;
        let figures = Figures::start().await;
        figures.count("OK", &[PEER]);
        let first = replica(&stage, "first", &pair, &figures).await;
        until_led_by(&stage, "first").await;
        let second = replica(&stage, "second", &pair, &figures).await;
        let mut federation = stage::spiffe();
        federation["federatesWith"] = json!([way.as_peer(PEER)]);
        stage.create(federation).await;
        stage.until_condition("PeersReachable", "True", "AllPeersReachable").await;
        let writes = stage.writes().await;
        assert_eq!(way.taken(), 1, "one replica asked the peer");
        Self { stage, first, second, way, writes, _peer: peer, _figures: figures }
    }

    /// Waits until the second leads, has asked the peer for itself, and tells of it.
    async fn until_the_second_has_taken_over(&mut self) {
        until_led_by(&self.stage, "second").await;
        eventually_equals(PATIENCE, "the peer is asked again", 2, async || self.way.taken()).await;
        until_up(&mut self.second).await;
    }
}

#[tokio::test]
async fn of_two_replicas_one_writes_and_asks_and_the_other_takes_over_without_a_write() {
    let mut two = Two::start("federation-replicas").await;
    let once: Vec<_> = first_writes().into_iter().collect();
    assert_eq!(about_objects(&two.writes), about_objects(&once), "{:#?}", two.writes);
    assert_eq!(up(&mut two.first, PEER).await, Some(true));
    assert_eq!(up(&mut two.second, PEER).await, None, "a standby has nothing to tell");

    let before = written(&two.stage).len();
    two.first.kill9();
    two.until_the_second_has_taken_over().await;
    let Two { stage, writes, .. } = &two;
    assert_eq!(stage.writes().await, *writes, "nothing changed");
    assert_eq!(written(stage).len(), before, "not even an Event: {:?}", written(stage));

    stage.meddle(Component::Route, json!({ "spec": { "host": "other.test" } })).await;
    stage.until_field(Component::Route, "/spec/host", json!(stage.host())).await;
    let since = stage.writes().await.split_off(writes.len());
    assert_eq!(about_objects(&since), ["patch routes/spire-server-federation"]);
    assert_eq!(stage.refused(), Vec::<String>::new(), "deploy/federate grants what is called");
}

#[tokio::test]
async fn a_leader_that_hung_stands_by_when_it_wakes_writes_nothing_and_has_nothing_to_tell() {
    let mut two = Two::start("federation-hung").await;
    two.first.signal(Signal::STOP);
    two.until_the_second_has_taken_over().await;
    two.first.signal(Signal::CONT);
    eventually_equals(PATIENCE, "it has nothing to tell", None, async || {
        up(&mut two.first, PEER).await
    })
    .await;
    assert_eq!(two.stage.writes().await, two.writes, "nothing changed");
    assert_eq!(two.way.taken(), 2, "each asked while it led");
    until_led_by(&two.stage, "second").await;
}
