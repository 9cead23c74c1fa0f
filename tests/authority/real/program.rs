//! The program with its account's own rights, installed as users install it.

use std::{net::SocketAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::{
    Cluster, Controller, Launch, at, eventually, free_port,
    suite::{self, KeyOf},
};
use trustplane::spiffe::bundle::Bundle;

use super::join::GoClient;
use crate::{
    join::{
        self, PARTNER,
        client::{Attempt, Joins, PartnerCa},
    },
    stage::OWN,
};

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
        let crds = ["crd/spiffefederations.trustplane.dev", "crd/jointokens.trustplane.dev"];
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", crds[0], crds[1]];
        cluster.kubectl(&wait).await.expect("the APIs are served");
        Self { cluster }
    }

    /// A replica as its Deployment runs it, and where others join at it.
    async fn start(&self) -> (Controller, SocketAddr) {
        let token = self.cluster.token_of("trustplane", "trustplane-authority").await;
        let kubeconfig = self.cluster.kubeconfig(&self.cluster.admin_access().with_token(token));
        let free = || SocketAddr::from(([127, 0, 0, 1], free_port().expect("a free port")));
        let (spiffe, join) = (free(), free());
        let arguments = [
            "authority",
            &format!("--trust-domain={OWN}"),
            "--namespace=trustplane",
            "--leader-elect",
            "--leader-elect-namespace=trustplane",
            "--listen=127.0.0.1:0",
            "--log-format=json",
            &format!("--spiffe-listen={spiffe}"),
            &format!("--join-listen={join}"),
        ];
        // To check that even the most verbose log holds no key.
        let launch = Launch::exactly("authority", &arguments, kubeconfig);
        (launch.env("RUST_LOG", "trace").start(), join)
    }

    async fn create(&self, object: &Value) {
        let file = self.file(object);
        let applied = self.cluster.kubectl(&["apply", "--server-side", "-f", &file]).await;
        applied.expect("it is created");
    }

    /// What a GitOps tool finds different from what it applied.
    async fn drift(&self, object: &Value) -> Result<String, String> {
        self.cluster.kubectl(&["diff", "--server-side", "-f", &self.file(object)]).await
    }

    fn file(&self, object: &Value) -> String {
        let file = self.cluster.scratch().join(format!("{}.json", suite::next_number()));
        std::fs::write(&file, object.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// The bundle that is published.
    async fn document(&self) -> String {
        eventually(SOON, "one bundle is published", async || {
            let found = self.get(&BUNDLE).await.ok_or("no ConfigMap")?;
            let document = found["data"]["bundle.json"].as_str().ok_or("no document")?.to_owned();
            let bundle = Bundle::parse(document.as_bytes()).map_err(|_| "no bundle")?;
            let is_first = (bundle.sequence, bundle.x509.len()) == (Some(1), 1);
            if is_first { Ok(document) } else { Err("another") }
        })
        .await
    }

    async fn get(&self, arguments: &[&str]) -> Option<Value> {
        let found = self.cluster.kubectl(&[arguments, &["-o", "json"]].concat()).await.ok()?;
        serde_json::from_str(&found).ok()
    }

    /// Keeps what everybody may read, for tests/suite_audit.rs.
    async fn keep_objects(&self) {
        for kinds in ["events", "configmaps,spiffefederations,jointokens"] {
            let found = self.cluster.kubectl(&["get", kinds, "-A", "-o", "json"]).await;
            let file = suite::subfolder("events");
            let file = file.join(format!("authority-{kinds}-{}.json", suite::next_number()));
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

fn federation(name: &str, source: Value) -> Value {
    json!({
        "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation", "metadata": { "name": name },
        "spec": { "bundleSource": source },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_publish_one_bundle_and_sync_with_the_rights_of_their_account_alone() {
    let installed = Installed::new("authority").await;
    let ((mut one, _), (mut two, _)) = (installed.start().await, installed.start().await);
    one.ready().await;
    two.ready().await;
    let document = installed.document().await;
    assert_eq!(installed.note_keys().await, 1);

    let federation = federation("td-b.test", json!({ "static": { "bundle": document } }));
    installed.create(&federation).await;
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
    assert_eq!(installed.drift(&federation).await.as_deref(), Ok(""));
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

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_that_join_two_replicas_at_once_one_uses_a_token_for_one_and_renews() {
    let installed = Installed::new("authority-join").await;
    let ((mut one, at_one), (mut two, at_two)) = (installed.start().await, installed.start().await);
    one.ready().await;
    two.ready().await;
    let ca = PartnerCa::new(PARTNER);
    installed.create(&federation(PARTNER, ca.source())).await;
    let once = join::token("once", |spec| spec["maxUses"] = json!(1));
    installed.create(&once).await;
    installed.create(&join::token("ci", |_| {})).await;
    let mut clients = GoClient::new(installed.document().await, &[at_one, at_two]);
    installed.note_keys().await;
    let probe = Attempt::new(&ca, "/ci/probe");
    eventually(SOON, "both replicas let others join", async || {
        let joined = clients.join_all(&[&probe, &probe]).await;
        joined.into_iter().collect::<Result<Vec<_>, _>>()
    })
    .await;

    // A replica that knows the token made later knows this one, too.
    join::one_of_a_hundred_joins(&ca, "once", &mut clients).await;
    let token = installed.get(&["get", "jointoken", "once"]).await.unwrap();
    assert_eq!(token["status"]["usedBy"].as_array().unwrap().len(), 1, "{token}");
    assert_eq!(installed.drift(&once).await.as_deref(), Ok(""));
    installed.keep_objects().await;
    for log in [one.log(), two.log()] {
        assert!(!log.contains("forbidden (HTTP 403)"), "a right is missing:\n{log}");
    }
    assert_eq!(one.terminate().await.0, 0);
    assert_eq!(two.terminate().await.0, 0);
}
