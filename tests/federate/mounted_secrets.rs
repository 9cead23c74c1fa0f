//! Pods of the SPIRE server that mount Secrets: the certificate of its endpoint, and that for its database.
//! Started as a kubelet does, by a user of ours and by one that OpenShift assigns.

use std::{fs, net::SocketAddr, os::unix::fs::MetadataExt, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    sync::mpsc::{self, Receiver},
};
use trustplane::federate::decide::render::{Component, FEDERATION_PORT, SERVING_CERT};

use testkit::{
    Pair, eventually,
    kubelet::{Kubelet, Pod},
    pair,
    spire::{ControllerManager, web},
    stage::{NAMESPACE, Stage},
};

const SOON: Duration = Duration::from_secs(60);
const HOST: &str = "federation.td-a.test";
const DATABASE_SECRET: &str = "database";
/// The first user that an OpenShift cluster assigns in a namespace.
const ASSIGNED: i64 = 1_000_650_000;
/// PostgreSQL's request to go on with TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];

async fn create_secret(stage: &Stage, name: &str, pair: &Pair) {
    let Pair { certificate, key, authority } = pair;
    stage
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "stringData": { "tls.crt": certificate, "tls.key": key, "ca.crt": authority },
        }))
        .await;
}

/// Takes the first eight bytes of every connection.
async fn database() -> (SocketAddr, Receiver<[u8; 8]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 8];
            if stream.read_exact(&mut bytes).await.is_ok() && sender.send(bytes).await.is_err() {
                return;
            }
        }
    });
    (address, receiver)
}

/// A stage, its node, and who its Pods run as.
struct NodeStage<'a> {
    stage: &'a Stage,
    node: Kubelet,
    assigned: bool,
}

impl NodeStage<'_> {
    async fn start(&self, reaching: Option<SocketAddr>) -> Pod {
        let set = self.stage.object(Component::StatefulSet).await;
        let mut launch = self.node.pod(&set);
        if self.assigned {
            launch = launch.restricted_v2(ASSIGNED).expect("OpenShift takes the Pod");
        }
        if let Some(address) = reaching {
            launch = launch.reaching(address);
        }
        launch.start().await.unwrap_or_else(|why| panic!("{why}"))
    }

    fn group(&self) -> i64 {
        if self.assigned { ASSIGNED } else { 1000 }
    }

    /// The endpoint serves with the certificate of the Secret, so the server could read its key.
    async fn serves(&self, pair: &Pair) {
        let mut pod = self.start(None).await;
        pod.until_ready().await;
        let at = pod.publish(FEDERATION_PORT).await;
        let answer = eventually(SOON, "a peer fetches the bundle", async || {
            web::get(at, HOST, &pair.authority, "/").await
        })
        .await;
        let bundle: Value = serde_json::from_str(&answer.body).expect("a bundle");
        assert!(bundle["keys"].as_array().is_some_and(|keys| !keys.is_empty()), "{bundle}");
    }

    /// The driver reads the key, and refuses one that everybody may read, before it asks for TLS.
    async fn asks_its_database(&self, stand_in: &mut (SocketAddr, Receiver<[u8; 8]>)) {
        let pod = self.start(Some(stand_in.0)).await;
        let key = fs::metadata(pod.volume("db-tls").join("tls.key")).expect("the key");
        assert_eq!((i64::from(key.gid()), key.mode() & 0o777), (self.group(), 0o440));
        let asked = tokio::time::timeout(SOON, stand_in.1.recv()).await;
        let asked = asked.unwrap_or_else(|_| panic!("{}", pod.log("spire-server")));
        assert_eq!(asked, Some(SSL_REQUEST), "{}", pod.log("spire-server"));
    }
}

/// Changes the database, and waits until the Pod is to have this volume for it.
async fn set_database(stage: &Stage, datastore: Value, secret: Value) {
    stage.change(json!({ "spec": { "datastore": datastore } })).await;
    // The last of its volumes.
    let volume = "/spec/template/spec/volumes/5/secret/secretName";
    stage.until_field(Component::StatefulSet, volume, secret).await;
}

#[tokio::test]
async fn the_server_reads_the_keys_of_mounted_secrets_on_kubernetes_and_on_openshift() {
    let stage = Stage::start("mounted-secrets").await;
    let crds = ControllerManager::crds().display().to_string();
    stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await.expect("SPIRE's CRDs");
    let serving = pair::issued(HOST);
    create_secret(&stage, SERVING_CERT, &serving).await;
    create_secret(&stage, DATABASE_SECRET, &pair::issued("spire")).await;
    let endpoint = json!({ "profile": "https_web", "httpsWeb": { "servingCert": {} } });
    stage.create(json!({ "bundleEndpoint": endpoint })).await;
    let _controller = stage.controller(&["--resync=1s"]).await;
    let mut stand_in = database().await;
    let connection = format!(
        "host=127.0.0.1 port={} user=spire dbname=spire sslmode=verify-ca",
        stand_in.0.port()
    );
    let postgres = json!({
        "databaseType": "postgres", "connectionString": connection, "tlsSecretName": DATABASE_SECRET,
    });

    const GROUP: &str = "/spec/template/spec/securityContext/fsGroup";
    stage.until_field(Component::StatefulSet, GROUP, json!(1000)).await;
    let node = Kubelet::of(&stage.cluster).await;
    let on_node = NodeStage { stage: &stage, node, assigned: false };
    on_node.serves(&serving).await;
    set_database(&stage, postgres, json!(DATABASE_SECRET)).await;
    on_node.asks_its_database(&mut stand_in).await;

    let range = format!("openshift.io/sa.scc.uid-range={ASSIGNED}/10000");
    stage.cluster.kubectl(&["annotate", "namespace", "spire", &range]).await.expect("a range");
    stage.until_field(Component::StatefulSet, GROUP, Value::Null).await;
    let node = Kubelet::of(&stage.cluster).await;
    let on_node = NodeStage { stage: &stage, node, assigned: true };
    while stand_in.1.try_recv().is_ok() {}
    on_node.asks_its_database(&mut stand_in).await;
    set_database(&stage, Value::Null, Value::Null).await;
    on_node.serves(&serving).await;
}
