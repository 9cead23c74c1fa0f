//! What Ready and PeersReachable wait for: a router, what answers at our own endpoint, and the SPIRE
//! server itself.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use trustplane::federate::decide::render::Component;

use crate::{
    figures::Figures,
    many_peers::{Peer, Served},
    mixed::svid,
    peer_outage::{Way, trusting},
    real_spire::brought,
};

use std::time::Duration;

use testkit::{
    Pair, eventually, pair,
    spire::{ControllerManager, Names},
    stage::{self, Stage},
};

/// The next look at metrics, or at an endpoint that failed.
const A_LOOK: Duration = Duration::from_secs(45);

/// Has a bundle endpoint answer with this pair at the host of our own.
async fn serve(stage: &Stage, names: &Names, pair: &Pair, tasks: &mut JoinSet<()>) {
    let port = Served::new(pair).start(Peer::Good, tasks).await;
    names.point(&stage.host(), ([127, 0, 0, 1], port).into());
}

async fn until_ready(stage: &Stage, status: &str) -> String {
    eventually(A_LOOK, &format!("Ready is {status}"), async || {
        let found = stage.condition("Ready").await;
        if found.0 == status { Ok(found.2) } else { Err(format!("{found:?}")) }
    })
    .await
}

#[tokio::test]
async fn ready_waits_for_a_router_and_our_endpoint_is_asked_as_a_peer_would() {
    let stage = Stage::start("federation-ready").await;
    stage.create(stage::spiffe()).await;
    let (names, mut tasks) = (Names::start().await, JoinSet::new());
    let _controller = stage.controller_with(&[], &names.environment()).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    assert_eq!(stage.condition("Ready").await.0, "False", "no Pod runs");
    stage.run_pod().await;
    assert_eq!(until_ready(&stage, "Unknown").await, "see RouteAvailable");

    stage.admit_route().await;
    stage.until_condition("RouteAvailable", "True", "FederationRouteCreated").await;
    until_ready(&stage, "True").await;
    let told = stage.until_condition("EndpointReachable", "Unknown", "EndpointNotAsked").await;
    assert!(told.contains("has not published its bundle"), "{told}");

    let ours = svid("spiffe://td-a.test/spire/server");
    serve(&stage, &names, &ours, &mut tasks).await;
    let published = json!({ "data": { "bundle.crt": ours.authority } });
    stage.meddle(Component::BundleConfigMap, published).await;
    stage.until_condition("EndpointReachable", "True", "EndpointServesBundle").await;
    until_ready(&stage, "True").await;

    // Somebody else answers there; a rotation has it asked at once.
    serve(&stage, &names, &svid("spiffe://td-a.test/spire/server"), &mut tasks).await;
    let again = json!({ "data": { "bundle.crt": format!("{}\n", ours.authority) } });
    stage.meddle(Component::BundleConfigMap, again).await;
    let told = stage.until_condition("EndpointReachable", "False", "EndpointFails").await;
    assert!(told.contains("does not prove to be the SPIRE server of td-a.test"), "{told}");
    assert_eq!(until_ready(&stage, "False").await, "see EndpointReachable");
    stage.until_event("Warning EndpointFails").await;

    stage.change(json!({ "spec": { "federation": { "managedRoute": "false" } } })).await;
    stage.until_condition("RouteAvailable", "Unknown", "ManagedRouteDisabled").await;
    until_ready(&stage, "True").await;
    assert_eq!(stage.refused(), Vec::<String>::new());
}

/// The SpireServer's line of `kubectl get`, by column.
async fn column(stage: &Stage, name: &str) -> String {
    let table = stage.cluster.kubectl(&["get", "spireserver", "cluster"]).await.expect("a table");
    let mut lines = table.lines();
    let (head, line) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let at = head.find(name).unwrap_or_else(|| panic!("no {name} in {table}"));
    line[at..].split_whitespace().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn peers_are_well_once_spire_itself_fetches_and_that_they_are_again_is_told_once() {
    const PEER: &str = "td-b.test";
    let (pair, mut tasks) = (pair::issued("localhost"), JoinSet::new());
    let served = Served::new(&pair).start(Peer::Good, &mut tasks).await;
    let way = Way::to(served).await;
    let stage = Stage::start("federation-spire-fetches").await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([way.as_peer(PEER)]);
    stage.create(federation).await;
    let figures = Figures::start().await;
    figures.count("NotFound", &[PEER]);
    let (flag, environment) = (figures.flag(), trusting(&stage, &pair));
    let controller = stage.controller_with(&[&flag], &environment).await;
    let told = stage.until_condition("PeersReachable", "False", "SpireCannotFetch").await;
    assert!(told.contains("status NotFound"), "{told}");
    let peer = async || stage.server().await["status"]["federation"]["peers"][0].clone();
    let found = peer().await;
    assert_eq!((&found["lastError"], &found["spireFetch"]), (&Value::Null, &json!("failing")));
    assert_eq!(column(&stage, "PEERS").await, "0/1");

    figures.count("OK", &[PEER]);
    stage.until_condition("PeersReachable", "True", "AllPeersReachable").await;
    assert_eq!(column(&stage, "PEERS").await, "1/1");
    let normal = async || {
        let told = stage.until_event("Normal Peers").await;
        told.into_iter().filter(|it| it.starts_with("Normal Peers")).collect::<Vec<_>>()
    };
    let well = "Normal PeersReachable: td-b.test: all is well, its bundle is fetched";
    assert_eq!(normal().await, [well]);
    stage.until_event("Warning SpireCannotFetch: td-b.test").await;

    let writes = stage.writes().await;
    drop(controller);
    let _again = stage.controller_with(&[&flag], &environment).await;
    assert_eq!(stage.writes().await, writes, "a restart writes nothing");
    assert_eq!(normal().await, [well], "and tells nothing");
    assert_eq!(peer().await["spireFetch"], "ok");
}

#[tokio::test]
async fn a_peer_whose_metrics_spire_counts_under_the_label_of_another_is_not_taken_for_fetched() {
    const PEER: &str = "td-b.test";
    let (pair, mut tasks) = (pair::issued("localhost"), JoinSet::new());
    let way = Way::to(Served::new(&pair).start(Peer::Good, &mut tasks).await).await;
    let stage = Stage::start("federation-same-label").await;
    let crds = ControllerManager::crds().display().to_string();
    let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
    applied.expect("SPIRE's CRDs");
    // SPIRE fetches it although the SpireServer does not list it.
    stage.apply(&brought("td.b.test", "localhost:1", "{\"keys\":[]}")).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([way.as_peer(PEER)]);
    stage.create(federation.clone()).await;
    let figures = Figures::start().await;
    figures.count("OK", &[PEER]);
    let (flag, environment) = (figures.flag(), trusting(&stage, &pair));
    let _controller = stage.controller_with(&[&flag], &environment).await;
    let unseen = async |of: &str, other: &str| {
        let words = format!("{of}: SPIRE's metrics cannot be told apart from those of {other}");
        eventually(A_LOOK, &words, async || {
            let found = stage.condition("PeersReachable").await;
            let told = found.1 == "SpireNotSeen" && found.2.contains(&words);
            if told { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    };
    let fetch = async |at: usize| {
        stage.server().await["status"]["federation"]["peers"][at]["spireFetch"].clone()
    };
    unseen(PEER, "td.b.test").await;
    assert_eq!(fetch(0).await, "unknown");
    assert_eq!(column(&stage, "PEERS").await, "1/1", "nothing wrong is known of it");

    federation["federatesWith"] = json!([way.as_peer(PEER), way.as_peer("td.b.test")]);
    stage.change(json!({ "spec": { "federation": federation } })).await;
    unseen("td.b.test", PEER).await;
    unseen(PEER, "td.b.test").await;
    assert_eq!((fetch(0).await, fetch(1).await), (json!("unknown"), json!("unknown")));

    let gone = ["delete", "clusterfederatedtrustdomain", "td.b"];
    stage.cluster.kubectl(&gone).await.expect("the administrator may");
    federation["federatesWith"] = json!([way.as_peer(PEER)]);
    stage.change(json!({ "spec": { "federation": federation } })).await;
    eventually(A_LOOK, "nothing shares its label any more", async || {
        let found = stage.condition("PeersReachable").await;
        if found.0 == "True" { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}
