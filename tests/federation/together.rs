//! Clusters that federate by https_spiffe.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    side::{HINT, Side, Site, well},
    spire::Names,
    stage::Stage,
    support::{Access, suite},
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
    let endpoint = json!({ "profile": "https_spiffe", "refreshHint": HINT.as_secs() });
    let federation = json!({ "bundleEndpoint": endpoint, "federatesWith": [peer] });
    Site::of(stage).await.side(federation, names, None).await
}

/// An administrator of several clusters, each a context.
struct Administrator {
    kubeconfig: PathBuf,
    environment: Vec<(String, String)>,
}

/// Exit code, standard output and error.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Administrator {
    fn of(sides: &[(&str, &Side)], names: &Names) -> Self {
        let entry = |(name, side): &(&str, &Side)| {
            let Access { url, authority, token } = side.stage.cluster.admin_access();
            let authority =
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority);
            (
                json!({ "name": name, "cluster": { "server": url, "certificate-authority-data": authority } }),
                json!({ "name": name, "user": { "token": token } }),
                json!({ "name": name, "context": { "cluster": name, "user": name } }),
            )
        };
        let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
        for (cluster, user, context) in sides.iter().map(entry) {
            clusters.push(cluster);
            users.push(user);
            contexts.push(context);
        }
        let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters, "users": users, "contexts": contexts, "current-context": sides[0].0 });
        let path =
            sides[0].1.stage.cluster.scratch().join(format!("{}.contexts", suite::next_number()));
        suite::write_private(&path, &config.to_string());
        Self { kubeconfig: path, environment: names.environment() }
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trustplane"));
        command.env("KUBECONFIG", &self.kubeconfig).envs(self.environment.iter().cloned());
        command
            .arg("federation")
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// As the manual says: the fingerprint from one side, the bundle to the other.
    async fn bootstrap(&self, from: &str, to: &str) {
        let asked = self.run(&["bootstrap", from, to]).await;
        assert_eq!(asked.code, 2, "nobody could be asked: {}", asked.err);
        assert!(asked.err.contains("nothing was changed"), "{}", asked.err);
        let wrong = self.run(&["bootstrap", from, to, "--yes", "--fingerprint", "00"]).await;
        assert_eq!(wrong.code, 2, "{}{}", wrong.out, wrong.err);
        let shown = self.run(&["fingerprint", from, "-o", "json"]).await;
        assert_eq!(shown.code, 0, "{}", shown.err);
        let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
        let fingerprint = shown["fingerprint"].as_str().expect("a fingerprint");
        let done = self.run(&["bootstrap", from, to, "--yes", "--fingerprint", fingerprint]).await;
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    }
}

#[tokio::test]
async fn two_clusters_federate_a_rotation_arrives_and_one_that_goes_dark_is_told_of() {
    let names = Names::start().await;
    let (a, b) = tokio::join!(
        Stage::of("td-a.test", "apps.a.test", "together-a"),
        Stage::of("td-b.test", "apps.b.test", "together-b"),
    );
    let (peer_a, peer_b) = (peer("td-a.test", &a.host()), peer("td-b.test", &b.host()));
    let (mut a, mut b) = tokio::join!(side(a, peer_b, &names), side(b, peer_a, &names));

    let told = a
        .until_peer("td-b.test", "how to bootstrap", A_FETCH, |peer| peer["lastError"].is_string())
        .await;
    let error = told["lastError"].as_str().unwrap_or_default();
    assert!(error.contains("trustplane federation bootstrap"), "{error}");

    let administrator = Administrator::of(&[("a", &a), ("b", &b)], &names);
    administrator.bootstrap("a", "b").await;
    administrator.bootstrap("b", "a").await;
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
    let second = a
        .until_peer("td-b.test", "the new sequence", A_FETCH, |peer| peer["x509Authorities"] == 2)
        .await;
    assert!(second["sequence"].as_u64() > first["sequence"].as_u64(), "{first} {second}");
    workload.until_it_trusts(&b.spire).await;
    // The next process has to know b by authorities that nobody brought.
    let kept = a.stage.until_kept("td-b.test").await;
    assert_eq!(kept.matches("BEGIN CERTIFICATE").count(), 2, "{kept}");

    b.spire.stop();
    let dark = a
        .until_peer("td-b.test", "it is dark", 2 * HINT, |peer| peer["lastError"].is_string())
        .await;
    assert_eq!(dark["x509Authorities"], 2, "what is known of it stays: {dark}");
    assert!(a.spire.bundle_of("td-b.test").await.is_some(), "the cached bundle stays");
    let metrics = a.controller.metrics().await;
    assert!(
        metrics.contains("trustplane_federation_peer_up{trust_domain=\"td-b.test\"} 0"),
        "{metrics}"
    );
    b.spire.start_again().await;
    a.until_peer("td-b.test", "it is back", 2 * HINT, well).await;
    drop((a, b));
}
