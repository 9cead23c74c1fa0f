//! Clusters that federate by https_spiffe.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use testkit::{eventually, spire::Names, stage::Stage};
use trustplane::federate::decide::exchange::Export;

use crate::{
    administrator::{Administrator, beside},
    side::{HINT, Side, Site, well},
    workload::Workload,
};

/// For what happens with the next fetch.
const A_FETCH: Duration = Duration::from_secs(45);

fn peer(trust_domain: &str, host: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": format!("https://{host}"),
        "bundleEndpointProfile": "https_spiffe",
        "endpointSpiffeId": format!("spiffe://{trust_domain}/spire/server"),
    })
}

/// Starts a cluster whose endpoint proves itself by SVID.
async fn side(stage: Stage, peer: Value, names: &Names) -> Side {
    let mut side = side_without_manager(stage, peer, names).await;
    side.start_manager().await;
    side
}

async fn side_without_manager(stage: Stage, peer: Value, names: &Names) -> Side {
    let endpoint = json!({ "profile": "https_spiffe", "refreshHint": HINT.as_secs() });
    let federation = json!({ "bundleEndpoint": endpoint, "federatesWith": [peer] });
    Site::of(stage).await.side_without_manager(federation, names, None).await
}

#[tokio::test]
async fn two_clusters_federate_a_rotation_arrives_and_one_that_goes_dark_is_told_of() {
    let names = Names::start().await;
    let (a, b) = tokio::join!(
        Stage::of("td-a.test", "apps.a.test", "together-a"),
        Stage::of("td-b.test", "apps.b.test", "together-b"),
    );
    let (peer_a, peer_b) = (peer("td-a.test", &a.host()), peer("td-b.test", &b.host()));
    let (mut a, mut b) =
        tokio::join!(side_without_manager(a, peer_b, &names), side(b, peer_a, &names));

    let told = a
        .until_peer("td-b.test", "how to bootstrap", A_FETCH, |peer| peer["lastError"].is_string())
        .await;
    let error = told["lastError"].as_str().unwrap_or_default();
    assert!(error.contains("trustplane federation bootstrap"), "{error}");

    let administrator = Administrator::of(&[("a", &a), ("b", &b)], &names);
    administrator.bootstrap("a", "b").await;
    // The other way round, as two who can't reach each other's cluster.
    let there = Administrator::of(&[("b", &b)], &names);
    let here = Administrator::of(&[("a", &a)], &names);
    let export = there.export("b.json").await;
    exchange(&here, &export).await;
    let told = a.stage.until_condition("PeersReachable", "False", "SpireCannotFetch").await;
    println!("while a's controller manager does not run: {told}");
    assert!(well(&a.peer("td-b.test").await), "we can fetch it, and SPIRE can't");
    assert_eq!(a.spire.bundle_of("td-b.test").await, None);
    for side in [&a, &b] {
        side.stage.until_condition("EndpointReachable", "True", "EndpointServesBundle").await;
    }
    a.start_manager().await;
    a.until_bundle("td-b.test", 1).await;
    b.until_bundle("td-a.test", 1).await;
    assert_eq!(a.spire.bundle_list().await.keys().collect::<Vec<_>>(), ["td-b.test"]);
    assert_eq!(b.spire.bundle_list().await.keys().collect::<Vec<_>>(), ["td-a.test"]);
    let workload = Workload::of(&a, "td-b.test").await;
    workload.until_it_trusts(&b.spire).await;
    let first = a.until_peer("td-b.test", "all is well", A_FETCH, well).await;
    b.until_peer("td-a.test", "all is well", A_FETCH, well).await;

    b.spire.rotate().await;
    let rotated = Instant::now();
    a.until_bundle("td-b.test", 2).await;
    println!(
        "a rotation reached the other cluster's SPIRE server after {:.1?}, where a refresh is {HINT:?}",
        rotated.elapsed()
    );
    // By now each has fetched for itself what it was only told of before.
    for side in [&a, &b] {
        eventually(2 * HINT, "all peers are reachable", async || {
            let found = side.stage.condition("PeersReachable").await;
            if found.0 == "True" { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
    let second = a
        .until_peer("td-b.test", "the new sequence", A_FETCH, |peer| peer["x509Authorities"] == 2)
        .await;
    assert!(second["sequence"].as_u64() > first["sequence"].as_u64(), "{first} {second}");
    workload.until_it_trusts(&b.spire).await;
    // The next process has to know b by authorities that nobody brought.
    let kept = a.stage.until_kept("td-b.test").await;
    assert_eq!(kept.matches("BEGIN CERTIFICATE").count(), 2, "{kept}");
    // The file from before the rotation is as right as ever, and old.
    here.import_refused(&export.0, &export.1, "the file is old: the sequence").await;

    b.spire.stop();
    let dark = a
        .until_peer("td-b.test", "it is dark", 2 * HINT, |peer| peer["lastError"].is_string())
        .await;
    assert_eq!(dark["x509Authorities"], 2, "what is known of it stays: {dark}");
    assert!(a.spire.bundle_of("td-b.test").await.is_some(), "the cached bundle stays");
    b.stage.until_condition("EndpointReachable", "False", "EndpointFails").await;
    let metrics = a.controller.metrics().await;
    assert!(
        metrics.contains("trustplane_federation_peer_up{trust_domain=\"td-b.test\"} 0"),
        "{metrics}"
    );
    b.spire.start_again().await;
    a.until_peer("td-b.test", "it is back", 2 * HINT, well).await;
    unlisted(&administrator, &a).await;
    drop((a, b));
}

/// Imports what b exported, after everything that somebody could send in its place.
async fn exchange(here: &Administrator, (file, fingerprint): &(PathBuf, String)) {
    let text = std::fs::read_to_string(file).expect("a file");
    let cut = beside(file, "cut", &text[..text.len() / 2]);
    here.import_refused(&cut, fingerprint, "the file was cut").await;
    let host = text.replace("https://", "https://mallory.");
    let changed = beside(file, "changed", &host);
    here.import_refused(&changed, fingerprint, "was changed after it was made").await;
    let right = read(file, fingerprint);
    let of = |change: fn(&mut Export)| {
        let mut export = right.clone();
        change(&mut export);
        (beside(file, "other", &export.text()), export.fingerprint())
    };
    let (swapped, other) = of(|it| it.offer.url = "https://mallory.example".to_owned());
    here.import_refused(&swapped, fingerprint, &format!("its fingerprint is {other}")).await;
    let (foreign, its) = of(|it| {
        it.offer.trust_domain = "td-c.test".to_owned();
        it.offer.endpoint_id = Some("spiffe://td-c.test/spire/server".to_owned());
    });
    here.import_refused(&foreign, &its, "does not list").await;
    let (own, its) = of(|it| {
        it.offer.trust_domain = "td-a.test".to_owned();
        it.offer.endpoint_id = Some("spiffe://td-a.test/spire/server".to_owned());
    });
    here.import_refused(&own, &its, "the trust domain of this cluster itself").await;
    let (old, its) = of(|it| it.made_at -= Duration::from_secs(8 * 24 * 3_600));
    here.import_refused(&old, &its, "the file is old: it was made at").await;

    let unasked = here.import(file, fingerprint, &[]).await;
    assert_eq!(unasked.code, 2, "nobody could be asked: {}", unasked.err);
    let dry = here.import(file, fingerprint, &["--dry-run", "-o", "json"]).await;
    assert_eq!(dry.code, 0, "{}", dry.err);
    let page: Value = serde_json::from_str(&dry.out).expect("JSON");
    assert_eq!((&page["action"], &page["listed"]), (&json!("create"), &json!(true)), "{page}");
    let done = here.import(file, fingerprint, &["--yes"]).await;
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(done.err.contains("a trusts td-b.test now"), "{}", done.err);
    let again = here.import(file, fingerprint, &["--yes"]).await;
    assert!(again.err.contains("has this bundle already"), "{}", again.err);
}

fn read(file: &Path, fingerprint: &str) -> Export {
    let text = std::fs::read(file).expect("a file");
    Export::read(&text, fingerprint).expect("what was exported can be read")
}

/// Brings the bundle of b to a, whose SpireServer lists it no more.
async fn unlisted(administrator: &Administrator, a: &Side) {
    a.stage.change(json!({ "spec": { "federation": { "federatesWith": null } } })).await;
    let gone = ["delete", "clusterfederatedtrustdomain", "td-b.test"];
    a.stage.cluster.kubectl(&gone).await.expect("it can be deleted");
    let shown = administrator.run(&["fingerprint", "b", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
    let fingerprint = shown["fingerprint"].as_str().expect("a fingerprint");
    let run = ["bootstrap", "b", "a", "--yes", "--fingerprint", fingerprint];
    for flags in [&[][..], &["-o", "json"]] {
        let said = administrator.run(&[&run, flags].concat()).await;
        assert_eq!(said.code, 2, "{}{}", said.out, said.err);
        assert!(said.err.contains("does not list td-b.test"), "{}", said.err);
        assert!(!said.err.contains("trusts td-b.test now"), "{}", said.err);
        println!("{}", said.err.trim());
    }
    let objects = async || {
        let objects = ["get", "clusterfederatedtrustdomains", "-o", "name"];
        a.stage.cluster.kubectl(&objects).await.expect("a list").trim().to_owned()
    };
    assert_eq!(objects().await, "", "nothing was changed");

    // A person is asked, and told that the peer is not listed.
    let asked = ["bootstrap", "b", "a", "--fingerprint", fingerprint];
    let question = "Make a trust td-b.test, which its SpireServer does not list?";
    let refused = administrator.run_at_terminal(&asked, "no").await;
    let words = |said: &str| said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&refused.out).contains(question), "{}", refused.out);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.out.contains("nothing was changed"), "{}", refused.out);
    assert_eq!(objects().await, "", "nothing was changed");
    let taken = administrator.run_at_terminal(&asked, "yes").await;
    assert!(words(&taken.out).contains(question), "{}", taken.out);
    assert_eq!(taken.code, 0, "{}", taken.out);
    assert_eq!(objects().await, "clusterfederatedtrustdomain.spire.spiffe.io/td-b.test");
    a.stage.cluster.kubectl(&gone).await.expect("it can be deleted");

    let done = administrator.run(&[&run[..], &["--unlisted"]].concat()).await;
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(done.err.contains("although its SpireServer does not list it"), "{}", done.err);
}
