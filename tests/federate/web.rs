//! Clusters that federate by https_web: one with a certificate that cert-manager keeps and the
//! injector serves, one that gets its own by ACME, and one that joins them.

use std::{
    collections::BTreeSet,
    slice,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    Controller, Launch as Program,
    authority::Authority,
    eventually,
    spire::{Launch, Names, Pebble, SpireServer, web},
    stage::{self, NAMESPACE, Stage},
};
use trustplane::federate::decide::render::Component;

use crate::{
    issuing::{self, Issuing, serial},
    real_spire,
    side::{Side, Site, server_conf, well},
};

const SOON: Duration = Duration::from_secs(60);
const BETWEEN_FETCHES: Duration = Duration::from_millis(100);
const FEWEST_FETCHES: usize = 20;
/// Before and after a renewal others fetch for this long.
const AROUND_RENEWALS: Duration = Duration::from_secs(2);

fn peer(trust_domain: &str, host: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": format!("https://{host}"),
        "bundleEndpointProfile": "https_web",
    })
}

fn acme(pebble: &Pebble, domain_name: &str) -> Value {
    let acme = json!({
        "directoryUrl": pebble.directory_url(),
        "domainName": domain_name,
        "email": "admin@td-b.test",
        "tosAccepted": "true",
    });
    json!({ "bundleEndpoint": { "profile": "https_web", "httpsWeb": { "acme": acme } } })
}

/// Puts deploy/policy in force, which takes the API server a moment.
async fn guard(stage: &Stage) {
    const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policy");
    let cluster = &stage.cluster;
    let namespace = format!("--namespace={NAMESPACE}");
    for arguments in [
        &["apply", "--server-side", "-k", POLICY][..],
        &["create", "role", "routes", "--verb=create", "--resource=routes", &namespace],
        &["create", "rolebinding", "routes", "--role=routes", "--user=nobody", &namespace],
    ] {
        cluster.kubectl(arguments).await.expect("the administrator may");
    }
    let route = json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {
            "name": "probe",
            "namespace": NAMESPACE,
            "annotations": { "route.openshift.io/tls-secret-name": "any" },
        },
        "spec": { "to": { "kind": "Service", "name": "any" }, "tls": { "termination": "edge" } },
    });
    let file = cluster.scratch().join("probe.json");
    std::fs::write(&file, route.to_string()).expect("a file");
    let file = file.display().to_string();
    eventually(SOON, "the policy is in force", async || {
        let arguments = ["create", "--dry-run=server", "--as=nobody", "-f", &file];
        match cluster.kubectl(&arguments).await {
            Err(why) if why.contains("ValidatingAdmissionPolicy") => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// Results of many fetches.
#[derive(Debug, Default)]
struct Tally {
    fetched: usize,
    failed: Vec<String>,
}

/// Fetches until it is told that this is enough, and often enough to show something on a busy machine.
async fn again_and_again(
    enough: &AtomicBool,
    mut fetch: impl AsyncFnMut() -> Result<(), String>,
) -> Tally {
    let mut tally = Tally::default();
    let is_too_few = |tally: &Tally| tally.fetched < FEWEST_FETCHES && tally.failed.is_empty();
    while !enough.load(Ordering::Relaxed) || is_too_few(&tally) {
        match fetch().await {
            Ok(()) => tally.fetched += 1,
            Err(why) => tally.failed.push(why),
        }
        tokio::time::sleep(BETWEEN_FETCHES).await;
    }
    tally
}

/// Renews the certificate of `a` while others keep fetching its bundle.
async fn renew_under_load(issuing: &Issuing, a: &Side, b: &SpireServer, root: &str) {
    const RENEWALS: usize = 2;
    let (enough, seen) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    let renewing = async {
        tokio::time::sleep(AROUND_RENEWALS).await;
        for _ in 0..RENEWALS {
            issuing.renew().await;
            let newest = issuing.serial().await;
            eventually(SOON, "the renewed certificate is served", async || {
                let seen = seen.lock().expect("the serials");
                if seen.contains(&newest) { Ok(()) } else { Err(seen.clone()) }
            })
            .await;
            tokio::time::sleep(AROUND_RENEWALS).await;
        }
        enough.store(true, Ordering::Relaxed);
    };
    let host = a.stage.host();
    let visiting = again_and_again(&enough, async || {
        let answer = web::get(a.router.address(), &host, root, "/").await?;
        seen.lock().expect("the serials").insert(serial(&answer.certificate));
        Ok(())
    });
    let refreshing = again_and_again(&enough, async || b.refresh("td-a.test").await);
    let ((), visits, refreshes) = tokio::join!(renewing, visiting, refreshing);
    for tally in [&visits, &refreshes] {
        assert!(tally.failed.is_empty(), "{tally:#?}");
    }
    let serials = seen.into_inner().expect("the serials");
    assert_eq!(serials.len(), RENEWALS + 1, "the first certificate and each renewal: {serials:?}");
    println!(
        "{RENEWALS} renewals: {} fetches by OpenSSL, {} by SPIRE, none failed",
        visits.fetched, refreshes.fetched
    );
}

/// The server of a third trust domain, without our controllers.
async fn third(names: &Names, authority: &Authority, peer_host: &str) -> SpireServer {
    let profile = json!({ "https_web": { "serving_cert_file": {
        "cert_file_path": "/run/spire/server-tls/tls.crt",
        "key_file_path": "/run/spire/server-tls/tls.key",
        "file_sync_interval": "1h",
    }}});
    let peers = json!({ "td-a.test": {
        "bundle_endpoint_url": format!("https://{peer_host}"),
        "bundle_endpoint_profile": { "https_web": {} },
    }});
    let launch = Launch::new("third", real_spire::conf("td-c.test", profile, peers));
    let launch = launch.through(names).trusting(&authority.root());
    let server = launch.serving(&authority.issue("bundle.c.test")).start().await;
    names.point("bundle.c.test", server.federation_address());
    server
}

/// States the peers of a cluster, and does what a StatefulSet does with a new configuration. All of
/// them must turn out well.
async fn federate(side: &mut Side, peers: &[Value]) {
    side.stage.change(json!({ "spec": { "federation": { "federatesWith": peers } } })).await;
    let conf = eventually(SOON, "the configuration has the peers", async || {
        let conf = server_conf(&side.stage).await;
        let known = conf["server"]["federation"]["federates_with"].as_object().map(|it| it.len());
        if known == Some(peers.len()) { Ok(conf) } else { Err(known) }
    })
    .await;
    side.spire.start_again_with(conf).await;
    for peer in peers {
        let trust_domain = peer["trustDomain"].as_str().expect("a name");
        side.until_bundle(trust_domain, 1).await;
        side.until_peer(trust_domain, "all is well", SOON, well).await;
    }
}

async fn inject(stage: &Stage) -> Controller {
    let mut inject = Program::everywhere(&stage.cluster).start();
    inject.ready().await;
    inject
}

#[tokio::test]
async fn clusters_federate_by_https_web_through_a_renewal_and_a_third_joins() {
    let names = Names::start().await;
    let authority = Authority::new("Test authority");
    let root = authority.root();
    let (a, b) = tokio::join!(
        Stage::of("td-a.test", "apps.a.test", "web-a"),
        Stage::of("td-b.test", "apps.b.test", "web-b"),
    );
    guard(&a).await;
    let (a, b) = tokio::join!(Site::of(a), Site::of(b));
    let pebble = Pebble::start(b.router.address().port()).await;
    let (host_a, host_b) = (a.stage.host(), b.stage.host());
    let trusted_by_a = root.clone() + &pebble.issuing_authority().await;
    // The directory of ACME, and what it issues: our controller asks its own endpoint.
    let trusted_by_b = trusted_by_a.clone() + pebble.authority();

    let issuing = Issuing::start(&a.stage, &authority).await;
    let _inject = inject(&a.stage).await;
    let (mut a, mut b) = tokio::join!(
        a.side(stage::web(issuing::NAME), &names, Some(&trusted_by_a)),
        b.side(acme(&pebble, &host_b), &names, Some(&trusted_by_b)),
    );
    for (side, termination) in [(&a, "reencrypt"), (&b, "passthrough")] {
        let termination = json!(termination);
        side.stage.until_field(Component::Route, "/spec/tls/termination", termination).await;
        side.stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
        side.stage.until_condition("RouteAvailable", "True", "FederationRouteCreated").await;
    }
    let [peer_a, peer_b] = [peer("td-a.test", &host_a), peer("td-b.test", &host_b)];
    federate(&mut a, slice::from_ref(&peer_b)).await;
    federate(&mut b, &[peer_a]).await;

    for side in [&a, &b] {
        eventually(SOON, "our own endpoint is asked as a peer would, by https_web", async || {
            let found = side.stage.condition("EndpointReachable").await;
            if found.1 == "EndpointServesBundle" { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    renew_under_load(&issuing, &a, &b.spire, &root).await;

    let c = third(&names, &authority, &host_a).await;
    federate(&mut a, &[peer_b, peer("td-c.test", "bundle.c.test")]).await;
    c.refresh("td-a.test").await.expect("the one that joined fetches too");
    b.spire.refresh("td-a.test").await.expect("the others go on");
    a.spire.refresh("td-b.test").await.expect("the others go on");
    b.until_peer("td-a.test", "all is well still", SOON, well).await;

    let mut writes = a.stage.writes().await;
    writes.retain(|write| write.contains("routes/"));
    assert_eq!(writes, ["create routes/spire-server-federation"], "what inject writes stays");
    assert_eq!(a.stage.refused(), Vec::<String>::new(), "our own policy lets us");
    assert_eq!(a.stage.cluster.audit().forbidden_by_account().len(), 0);
}
