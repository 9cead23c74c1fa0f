//! What we render, given to those who read it in a cluster: the real SPIRE server and the real
//! controller manager.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Cluster, eventually,
    pair::issued,
    spire::{ControllerManager, Launch, Names, SpireServer},
};
use trustplane::api::spire_server::SpireServer as SpireServerObject;
use trustplane::federate::decide::render::{Component, Proxy, RenderContext, render};

use crate::real_spire::{
    NAMESPACE, create, federated_trust_domain, refused, spiffe_server, until_known,
};

/// As the API server completes it.
fn wanted(endpoint: Value, peers: usize) -> SpireServerObject {
    let peer = |number: usize| {
        let name = format!("peer-{number}.test");
        match number % 2 {
            0 => json!({
                "trustDomain": name,
                "bundleEndpointUrl": format!("https://{name}"),
                "bundleEndpointProfile": "https_spiffe",
                "endpointSpiffeId": format!("spiffe://{name}/spire/server"),
            }),
            _ => json!({
                "trustDomain": name,
                "bundleEndpointUrl": format!("https://{name}/bundle"),
                "bundleEndpointProfile": "https_web",
            }),
        }
    };
    let object = json!({
        "metadata": { "name": "cluster", "uid": "4711", "generation": 1 },
        "spec": {
            "trustDomain": "a.test",
            "clusterName": "cluster-a",
            "logLevel": "info",
            "logFormat": "text",
            "jwtIssuer": "https://oidc.a.test",
            "caValidity": "24h",
            "defaultX509Validity": "1h",
            "defaultJWTValidity": "5m",
            "caKeyType": "ec-p256",
            "jwtKeyType": "rsa-2048",
            "caSubject": { "country": "DE", "organization": "Test", "commonName": "a" },
            "persistence": { "size": "1Gi", "accessMode": "ReadWriteOnce" },
            "datastore": {
                "databaseType": "sqlite3",
                "connectionString": "/run/spire/data/datastore.sqlite3",
                "maxOpenConns": 100,
                "maxIdleConns": 2,
                "connMaxLifetime": 3600,
                "disableMigration": "false",
            },
            "federation": {
                "bundleEndpoint": endpoint,
                "federatesWith": (0..peers).map(peer).collect::<Vec<_>>(),
                "managedRoute": "true",
            },
        },
    });
    serde_json::from_value(object).expect("a SpireServer")
}

fn endpoints() -> BTreeMap<&'static str, Value> {
    let web = |with: Value| json!({ "profile": "https_web", "refreshHint": 300, "httpsWeb": with });
    BTreeMap::from([
        ("https_spiffe", json!({ "profile": "https_spiffe", "refreshHint": 300 })),
        ("https_web with servingCert", web(json!({ "servingCert": { "fileSyncInterval": 3600 } }))),
        (
            "https_web with acme",
            web(json!({ "acme": {
                "directoryUrl": "https://acme.test/dir",
                "domainName": "a.test",
                "email": "admin@a.test",
                "tosAccepted": "false",
            }})),
        ),
    ])
}

/// All that is rendered of it.
pub fn objects(wanted: &SpireServerObject) -> BTreeMap<Component, Value> {
    let setting = RenderContext {
        namespace: NAMESPACE.to_owned(),
        apps_domain: Some("apps.test".to_owned()),
        server_image: "spire-server:1.13.3".to_owned(),
        controller_manager_image: "spire-controller-manager:0.6.4".to_owned(),
        pod_user: None,
        proxy: Proxy::default(),
    };
    render(wanted, &setting).into_iter().map(|it| (it.part, it.object)).collect()
}

fn rendered(wanted: &SpireServerObject, part: Component) -> Value {
    objects(wanted).remove(&part).expect("what is always rendered")
}

/// Objects rendered from a short SpireServer, with the official images.
pub fn rendered_for_tests(part: Component) -> Value {
    rendered(&wanted(endpoints()["https_spiffe"].clone(), 0), part)
}

/// The content of a file in a rendered ConfigMap.
fn file(wanted: &SpireServerObject, part: Component, name: &str) -> Value {
    let map = rendered(wanted, part);
    serde_json::from_str(map["data"][name].as_str().expect("a file")).expect("JSON")
}

/// The rendered server.conf.
pub fn server_conf(wanted: &SpireServerObject) -> Value {
    file(wanted, Component::ServerConfigMap, "server.conf")
}

#[tokio::test]
async fn the_real_server_finds_every_profile_with_none_one_and_fifty_peers_valid() {
    for (profile, endpoint) in endpoints() {
        for peers in [0, 1, 50] {
            let conf = server_conf(&wanted(endpoint.clone(), peers));
            let verdict = SpireServer::validate(&conf).await;
            assert_eq!(verdict, Ok(()), "{profile}, {peers} peers");
        }
    }
}

/// `validate` does not look into plugins; a start does.
#[tokio::test]
async fn the_real_server_starts_with_every_profile() {
    for (profile, endpoint) in endpoints() {
        let conf = server_conf(&wanted(endpoint, 2));
        let server = Launch::new("rendered", conf).serving(&issued("a.test")).start().await;
        let keys = server.bundle_show().await["keys"].as_array().map_or(0, Vec::len);
        assert!(keys > 0, "{profile}");
    }
}

#[tokio::test]
async fn the_real_controller_manager_gives_workloads_a_peers_bundle_with_the_rights_we_render() {
    let names = Names::start().await;
    let b = spiffe_server("b.test", json!({}), &names).await;
    let wanted = wanted(json!({ "profile": "https_spiffe", "refreshHint": 300 }), 0);
    let a = Launch::new("a", server_conf(&wanted)).through(&names).start().await;
    let cluster = Cluster::start_another("rendered-manager").await;
    let crds = ControllerManager::crds().display().to_string();
    cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await.expect("its CRDs");
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await.expect("a namespace");
    let rights = [
        Component::ServiceAccount,
        Component::ClusterRole,
        Component::ClusterRoleBinding,
        Component::Role,
    ];
    for part in rights.into_iter().chain([Component::RoleBinding]) {
        create(&cluster, &rendered(&wanted, part)).await;
    }
    let token = cluster.token_of(NAMESPACE, "spire-server").await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token(token));
    let conf =
        file(&wanted, Component::ControllerManagerConfigMap, "controller-manager-config.yaml");
    let manager = ControllerManager::start("rendered", conf, &a, &kubeconfig).await;

    create(&cluster, &federated_trust_domain(&b).await).await;
    until_known(&a, "b.test", &manager).await;
    for object in workload() {
        create(&cluster, &object).await;
    }

    let what = "a workload gets the bundle of b";
    let entry = eventually(Duration::from_secs(60), what, async || {
        let shown = a.ask(&["entry", "show", "-output", "json"]).await;
        let shown: Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
        let entry = shown["entries"].get(0).cloned();
        entry.ok_or_else(|| manager.log())
    })
    .await;
    assert_eq!(entry["federates_with"], json!(["b.test"]));
    assert_eq!(entry["spiffe_id"]["path"], "/ns/default/pod/shop");
    assert_eq!(refused(&cluster), Vec::<String>::new());
}

/// A Pod on a node, and who it is.
fn workload() -> [Value; 4] {
    let identity =
        "spiffe://{{ .TrustDomain }}/ns/{{ .PodMeta.Namespace }}/pod/{{ .PodMeta.Name }}";
    let container = json!({ "name": "shop", "image": "shop" });
    let account = json!({ "name": "default", "namespace": "default" });
    [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account }),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "shop", "namespace": "default" },
            "spec": { "nodeName": "node", "containers": [container] },
        }),
        json!({
            "apiVersion": "spire.spiffe.io/v1alpha1",
            "kind": "ClusterSPIFFEID",
            "metadata": { "name": "everybody" },
            "spec": { "spiffeIDTemplate": identity, "federatesWith": ["b.test"] },
        }),
    ]
}
