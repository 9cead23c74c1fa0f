//! The program with its account's own rights, installed as users install it.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::{
    Cluster, Controller, Launch, at, eventually, free_port,
    suite::{self, KeyOf},
};
use trustplane::spiffe::bundle::Bundle;

const SOON: Duration = Duration::from_secs(60);
const BUNDLE: [&str; 5] = ["-n", "trustplane", "get", "configmap", "trustplane-bundle"];
const FEDERATION: [&str; 3] = ["get", "spiffefederation", "td-b.test"];

struct Installed {
    cluster: Cluster,
}

impl Installed {
    async fn new(name: &str) -> Self {
        let cluster = Cluster::start_another(name).await;
        for folder in ["deploy/authority/api", "deploy/authority"] {
            let folder = at(folder).display().to_string();
            let applied = cluster.kubectl(&["apply", "--server-side", "-k", &folder]).await;
            applied.expect("the folder is accepted");
        }
        let crd = "crd/spiffefederations.trustplane.dev";
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", crd];
        cluster.kubectl(&wait).await.expect("the API is served");
        Self { cluster }
    }

    /// A replica as its Deployment runs it.
    async fn start(&self) -> Controller {
        let token = self.cluster.token_of("trustplane", "trustplane-authority").await;
        let kubeconfig = self.cluster.kubeconfig(&self.cluster.admin_access().with_token(token));
        let listen = format!("--spiffe-listen=127.0.0.1:{}", free_port().expect("a free port"));
        let arguments = [
            "authority",
            "--trust-domain=td-a.test",
            "--namespace=trustplane",
            "--leader-elect",
            "--leader-elect-namespace=trustplane",
            "--listen=127.0.0.1:0",
            "--log-format=json",
            &listen,
        ];
        // To check that even the most verbose log holds no key.
        Launch::exactly("authority", &arguments, kubeconfig).env("RUST_LOG", "trace").start()
    }

    async fn get(&self, arguments: &[&str]) -> Option<Value> {
        let found = self.cluster.kubectl(&[arguments, &["-o", "json"]].concat()).await.ok()?;
        serde_json::from_str(&found).ok()
    }

    /// Keeps what everybody may read, for tests/suite_audit.rs.
    async fn keep_objects(&self) {
        for kinds in ["events", "configmaps,spiffefederations"] {
            let found = self.cluster.kubectl(&["get", kinds, "-A", "-o", "json"]).await;
            let file = suite::subfolder("events").join(format!("authority-{kinds}.json"));
            suite::write_private(&file, &found.expect("the administrator may"));
        }
    }

    /// Notes the keys of our CAs, so that tests/suite_audit.rs looks for them in every output.
    async fn note_keys(&self) -> usize {
        let secret = ["-n", "trustplane", "get", "secret", "trustplane-authority"];
        let secret = self.get(&secret).await.expect("the Secret with our CA");
        let data = secret["data"].as_object().expect("data").clone();
        let keys = data.iter().filter(|(name, _)| name.ends_with(".key"));
        keys.map(|(_, value)| {
            let key = STANDARD.decode(value.as_str().expect("text")).expect("base64");
            suite::register_der_key(KeyOf::Ca, &key);
        })
        .count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_publish_one_bundle_and_sync_with_the_rights_of_their_account_alone() {
    let installed = Installed::new("authority").await;
    let (mut one, mut two) = (installed.start().await, installed.start().await);
    one.ready().await;
    two.ready().await;
    eventually(SOON, "one bundle is published", async || {
        let found = installed.get(&BUNDLE).await.ok_or("no ConfigMap")?;
        let document = found["data"]["bundle.json"].as_str().ok_or("no document")?.to_owned();
        let bundle = Bundle::parse(document.as_bytes()).map_err(|_| "no bundle")?;
        if (bundle.sequence, bundle.x509.len()) == (Some(1), 1) { Ok(()) } else { Err("another") }
    })
    .await;
    assert_eq!(installed.note_keys().await, 1);

    let document = installed.get(&BUNDLE).await.unwrap()["data"]["bundle.json"].clone();
    let federation = json!({
        "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation", "metadata": { "name": "td-b.test" },
        "spec": { "bundleSource": { "static": { "bundle": document } } },
    });
    let file = installed.cluster.scratch().join("federation.json");
    std::fs::write(&file, federation.to_string()).unwrap();
    let apply = ["apply", "--server-side", "-f", file.to_str().unwrap()];
    installed.cluster.kubectl(&apply).await.expect("it is created");
    eventually(SOON, "it is trusted", async || {
        let found = installed.get(&FEDERATION).await.ok_or_else(String::new)?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let trusted = conditions.iter().find(|it| it["type"] == "Trusted");
        match trusted.is_some_and(|it| it["status"] == "True") {
            true => Ok(()),
            false => Err(found["status"].to_string()),
        }
    })
    .await;
    installed.keep_objects().await;
    let metrics = format!("{}{}", one.metrics().await, two.metrics().await);
    assert!(
        metrics.contains("spiffe_federation_trusted{trust_domain=\"td-b.test\"} 1"),
        "{metrics}"
    );
    for log in [one.log(), two.log()] {
        assert!(!log.contains("forbidden (HTTP 403)"), "a right is missing:\n{log}");
    }
    assert_eq!(one.terminate().await.0, 0);
    assert_eq!(two.terminate().await.0, 0);
}
