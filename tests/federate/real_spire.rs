//! Real SPIRE servers with configurations written by hand: what the tests of ours stand on.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Access, Cluster, eventually, eventually_equals, free_port,
    pair::issued,
    spire::{ControllerManager, Launch, Names, Pebble, SpireServer, web},
    stage,
};
use trustplane::api::spire_server::Profile;
use trustplane::federate::{
    act::bootstrap,
    decide::bootstrap::{ImportPlan, Offer},
};
use trustplane::spiffe::bundle::Bundle;

/// Longer than a server waits until it looks for new relationships, and then for a bundle.
const SOON: Duration = Duration::from_secs(60);

/// A configuration as in a Pod.
pub fn conf(trust_domain: &str, profile: Value, federates_with: Value) -> Value {
    json!({
        "server": {
            "bind_address": "0.0.0.0",
            "bind_port": "8081",
            "socket_path": "/tmp/spire-server/private/api.sock",
            "trust_domain": trust_domain,
            "data_dir": "/run/spire/data",
            "log_level": "DEBUG",
            "federation": {
                "bundle_endpoint": {
                    "address": "0.0.0.0",
                    "port": 8443,
                    "refresh_hint": "60s",
                    "profile": profile,
                },
                "federates_with": federates_with,
            },
        },
        "plugins": {
            "DataStore": [{ "sql": { "plugin_data": {
                "database_type": "sqlite3",
                "connection_string": "/run/spire/data/datastore.sqlite3",
            }}}],
            "KeyManager": [{ "disk": { "plugin_data": { "keys_path": "/run/spire/data/keys.json" } } }],
            "NodeAttestor": [{ "k8s_psat": { "plugin_data": { "clusters": [
                { "test": { "service_account_allow_list": ["spire:spire-agent"] } },
            ]}}}],
            "Notifier": [{ "k8sbundle": { "plugin_data": { "namespace": "spire" } } }],
        },
    })
}

fn https_spiffe() -> Value {
    json!({ "https_spiffe": {} })
}

/// A peer at the host of the same name.
pub fn spiffe_peer(trust_domain: &str) -> Value {
    json!({ trust_domain: {
        "bundle_endpoint_url": format!("https://{trust_domain}"),
        "bundle_endpoint_profile": {
            "https_spiffe": { "endpoint_spiffe_id": format!("spiffe://{trust_domain}/spire/server") },
        },
    }})
}

pub async fn spiffe_server(name: &str, peer: Value, names: &Names) -> SpireServer {
    let server = Launch::new(name, conf(name, https_spiffe(), peer)).through(names).start().await;
    names.point(name, server.federation_address());
    server
}

/// How many keys a bundle document has that certificates verify with.
fn authorities(document: &Value) -> usize {
    let keys = document["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    keys.iter().filter(|key| key["use"] == "x509-svid").count()
}

#[tokio::test]
async fn the_real_server_accepts_federation_inside_server_and_refuses_it_elsewhere() {
    let good = conf("a.test", https_spiffe(), spiffe_peer("b.test"));
    SpireServer::validate(&good).await.expect("a configuration that the server takes");

    let mut bad = good;
    bad["federation"] = bad["server"]["federation"].take();
    bad["server"].as_object_mut().expect("a section").remove("federation");
    let refusal = SpireServer::validate(&bad).await.expect_err("federation at top level");
    assert!(refusal.contains("unknown configuration"), "{refusal}");
}

#[tokio::test]
async fn two_servers_federate_both_ways_and_a_rotation_reaches_the_other() {
    let names = Names::start().await;
    let a = spiffe_server("a.test", spiffe_peer("b.test"), &names).await;
    let b = spiffe_server("b.test", spiffe_peer("a.test"), &names).await;
    assert!(a.bundle_list().await.is_empty());
    let unknown = a.entry_create(&["b.test"]).await.expect_err("nobody has bootstrapped it yet");
    assert!(unknown.contains("b.test"), "{unknown}");

    a.bundle_set("b.test", &b.bundle_show().await).await;
    b.bundle_set("a.test", &a.bundle_show().await).await;
    assert_eq!(a.bundle_list().await.keys().collect::<Vec<_>>(), ["b.test"]);
    assert_eq!(b.bundle_list().await.keys().collect::<Vec<_>>(), ["a.test"]);
    let entry = a.entry_create(&["b.test"]).await.expect("an entry that federates");
    assert_eq!(entry["federates_with"], json!(["b.test"]));

    b.rotate().await;
    let rotated = b.bundle_show().await;
    assert_eq!(authorities(&rotated), 2);
    eventually(SOON, "a has fetched b's new authority", async || {
        a.refresh("b.test").await?;
        let seen = a.bundle_of("b.test").await.unwrap_or_default();
        if seen["keys"] == rotated["keys"] { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;

    names.forget("b.test");
    let why = a.refresh("b.test").await.expect_err("b has gone dark");
    assert!(why.contains("Bad Gateway"), "{why}");
    assert!(a.bundle_of("b.test").await.is_some(), "the cached bundle stays");
}

#[tokio::test]
async fn a_server_that_starts_again_keeps_its_bundles_and_its_place() {
    let names = Names::start().await;
    let mut a = spiffe_server("a.test", spiffe_peer("b.test"), &names).await;
    let b = spiffe_server("b.test", spiffe_peer("a.test"), &names).await;
    a.bundle_set("b.test", &b.bundle_show().await).await;
    let (before, address) = (a.bundle_show().await, a.federation_address());

    a.start_again().await;

    assert_eq!(a.federation_address(), address);
    assert_eq!(a.bundle_show().await["keys"], before["keys"]);
    a.refresh("b.test").await.expect("b is still trusted");
}

#[tokio::test]
async fn an_acme_endpoint_gets_its_certificate_from_pebble_and_a_peer_fetches_from_it() {
    let names = Names::start().await;
    let port = free_port().expect("a free port");
    let pebble = Pebble::start(port).await;
    let acme = json!({ "https_web": { "acme": {
        "directory_url": pebble.directory_url(),
        "domain_name": "a.test",
        "email": "admin@a.test",
        "tos_accepted": true,
    }}});
    let a = Launch::new("acme", conf("a.test", acme, json!({})))
        .trusting(pebble.authority())
        .federating_at(port)
        .start()
        .await;
    names.point("a.test", a.federation_address());

    // The first who asks by that name makes the server fetch a certificate.
    let issued_by = pebble.issuing_authority().await;
    let answer = web::get(a.federation_address(), "a.test", &issued_by, "/").await;
    let answer = answer.expect("the endpoint has a certificate of Pebble");
    let served: Value = serde_json::from_str(&answer.body).expect("a bundle");
    assert_eq!(served["keys"], a.bundle_show().await["keys"]);

    let peer = json!({ "a.test": {
        "bundle_endpoint_url": "https://a.test",
        "bundle_endpoint_profile": { "https_web": {} },
    }});
    let b = Launch::new("fetching", conf("b.test", https_spiffe(), peer))
        .through(&names)
        .trusting(&issued_by)
        .start()
        .await;
    b.refresh("a.test").await.expect("no bootstrap is needed");
    assert_eq!(b.bundle_of("a.test").await.expect("a's bundle")["keys"], served["keys"]);
}

#[tokio::test]
async fn a_served_certificate_is_read_again_after_its_interval() {
    let (first, second) = (issued("a.test"), issued("a.test"));
    let profile = json!({ "https_web": { "serving_cert_file": {
        "cert_file_path": "/run/spire/server-tls/tls.crt",
        "key_file_path": "/run/spire/server-tls/tls.key",
        "file_sync_interval": "1s",
    }}});
    let launch = Launch::new("serving", conf("a.test", profile, json!({})));
    let a = launch.serving(&first).start().await;
    web::get(a.federation_address(), "a.test", &first.authority, "/").await.expect("a bundle");

    a.serve(&second);

    eventually(SOON, "the renewed certificate is served", async || {
        web::get(a.federation_address(), "a.test", &second.authority, "/").await.map(|_| ())
    })
    .await;
}

/// A cluster, and the controller manager of the SPIRE server of a.test on it.
async fn cluster_with_manager(name: &str, a: &SpireServer) -> (Cluster, ControllerManager) {
    let cluster = Cluster::start_another(name).await;
    let crds = ControllerManager::crds().display().to_string();
    cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await.expect("its CRDs");
    let kubeconfig = cluster.kubeconfig(&manager_access(&cluster).await);
    let manager = ControllerManager::start("a", manager_conf("a.test"), a, &kubeconfig).await;
    (cluster, manager)
}

#[tokio::test]
async fn a_cluster_federated_trust_domain_becomes_a_relationship_with_its_bundle() {
    let names = Names::start().await;
    let a = spiffe_server("a.test", json!({}), &names).await;
    let b = spiffe_server("b.test", json!({}), &names).await;
    let (cluster, manager) = cluster_with_manager("controller-manager", &a).await;

    create(&cluster, &federated_trust_domain(&b).await).await;

    until_known(&a, "b.test", &manager).await;
    let bundle = a.bundle_of("b.test").await.expect("b's bundle");
    assert_eq!(bundle["keys"], b.bundle_show().await["keys"]);
    a.refresh("b.test").await.expect("a fetches from b");

    let gone = ["delete", "clusterfederatedtrustdomain", "b"];
    cluster.kubectl(&gone).await.expect("it can be deleted");
    eventually_equals(SOON, "the relationship is gone", 0, async || a.relationships().await.len())
        .await;
    assert_eq!(refused(&cluster), Vec::<String>::new());
}

#[tokio::test]
async fn a_bundle_that_is_bootstrapped_again_reaches_the_server() {
    let names = Names::start().await;
    let a = spiffe_server("a.test", json!({}), &names).await;
    let b = spiffe_server("b.test", json!({}), &names).await;
    let (cluster, manager) = cluster_with_manager("bootstrapped-again", &a).await;
    create(&cluster, &federated_trust_domain(&b).await).await;
    until_known(&a, "b.test", &manager).await;

    // b lost its volume: its server is another, with authorities that nobody has seen.
    drop(b);
    let replaced = spiffe_server("b.test", json!({}), &names).await;
    let lost = a.refresh("b.test").await;
    assert!(lost.is_err(), "a can't know the new server by the old authorities");

    // What `trustplane federation bootstrap` does, which `lastError` tells people to run.
    stage::install(&cluster, "deploy/trust-domain").await;
    let mut server = stage::server(Value::Null);
    server["spec"]["trustDomain"] = json!("a.test");
    create(&cluster, &server).await;
    let here = bootstrap::Cluster { context: "a".to_owned(), client: cluster.admin().await };
    let document = replaced.bundle_show().await;
    let plan = here.plan(&offer(&document)).await.expect("it can be planned");
    assert!(matches!(plan, ImportPlan::Change { .. }), "{plan:?}");
    here.apply(&plan).await.expect("the object takes the new bundle");
    eventually(SOON, "a's server has the bundle that was brought", async || {
        let seen = a.bundle_of("b.test").await.unwrap_or_default();
        if seen["keys"] == document["keys"] { Ok(()) } else { Err(manager.log()) }
    })
    .await;
    a.refresh("b.test").await.expect("a fetches from the new server");

    let again = here.plan(&offer(&document)).await.expect("it can be planned");
    assert!(matches!(again, ImportPlan::Nothing), "{again:?}");
    // Were they not the same, the manager would bring this bundle again and again, old as it gets.
    let url = ["get", "clusterfederatedtrustdomain", "b", "-o=jsonpath={.spec.bundleEndpointURL}"];
    let url = cluster.kubectl(&url).await.expect("the object");
    assert_eq!(a.relationships().await[0]["bundle_endpoint_url"], url.trim());
}

/// The offer of b.test to its peers.
fn offer(document: &Value) -> Offer {
    let document = document.to_string();
    Offer {
        trust_domain: "b.test".to_owned(),
        url: "https://b.test".to_owned(),
        profile: Profile::HttpsSpiffe,
        endpoint_id: Some("spiffe://b.test/spire/server".to_owned()),
        bundle: Bundle::parse(document.as_bytes()).expect("a bundle"),
        document,
    }
}

pub const NAMESPACE: &str = "spire";

/// As in the ConfigMap of a Pod.
fn manager_conf(trust_domain: &str) -> Value {
    json!({
        "apiVersion": "spire.spiffe.io/v1alpha1",
        "kind": "ControllerManagerConfig",
        "metadata": { "name": "spire-controller-manager", "namespace": NAMESPACE },
        "metrics": { "bindAddress": "0.0.0.0:8082" },
        "health": { "healthProbeBindAddress": "0.0.0.0:8083" },
        "clusterName": "test",
        "trustDomain": trust_domain,
        "ignoreNamespaces": ["kube-system", "kube-public"],
        "spireServerSocketPath": "/tmp/spire-server/private/api.sock",
        "watchClassless": true,
        "className": "spire-controller-manager",
    })
}

/// An account with the rights of a controller manager, and no more.
async fn manager_access(cluster: &Cluster) -> Access {
    let own = ["clusterfederatedtrustdomains", "clusterspiffeids", "clusterstaticentries"];
    let status = own.map(|name| format!("{name}/status"));
    let name = json!({ "name": "spire-server" });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": name,
        "rules": [
            { "apiGroups": [""], "resources": ["nodes", "pods", "namespaces", "endpoints"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["spire.spiffe.io"], "resources": own, "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["spire.spiffe.io"], "resources": status, "verbs": ["get", "patch", "update"] },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": name,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "spire-server" },
        "subjects": [{ "kind": "ServiceAccount", "name": "spire-server", "namespace": NAMESPACE }],
    });
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": "spire-server", "namespace": NAMESPACE },
    });
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await.expect("a namespace");
    for object in [role, binding, account] {
        create(cluster, &object).await;
    }
    cluster.admin_access().with_token(cluster.token_of(NAMESPACE, "spire-server").await)
}

/// Requests of the controller manager that were forbidden.
pub fn refused(cluster: &Cluster) -> Vec<String> {
    let account = format!("system:serviceaccount:{NAMESPACE}:spire-server");
    let entries = cluster.audit().entries();
    let refused = entries.iter().filter(|it| it.user == account && it.code == 403);
    refused.map(|it| format!("{} {}", it.verb, it.uri)).collect()
}

/// Waits until the controller manager has told the server about a trust domain.
pub async fn until_known(server: &SpireServer, trust_domain: &str, manager: &ControllerManager) {
    eventually(SOON, "the server knows its peer", async || {
        let relationships = server.relationships().await;
        let known = relationships.iter().any(|it| it["trust_domain"] == trust_domain);
        if known { Ok(()) } else { Err(manager.log()) }
    })
    .await;
}

/// The ClusterFederatedTrustDomain that an administrator bootstraps a peer with.
pub async fn federated_trust_domain(peer: &SpireServer) -> Value {
    let trust_domain = peer.trust_domain();
    brought(trust_domain, trust_domain, &peer.bundle_show().await.to_string())
}

/// The same for a peer at some host, with some bundle.
pub fn brought(trust_domain: &str, host: &str, bundle: &str) -> Value {
    json!({
        "apiVersion": "spire.spiffe.io/v1alpha1",
        "kind": "ClusterFederatedTrustDomain",
        "metadata": { "name": trust_domain.trim_end_matches(".test") },
        "spec": {
            "trustDomain": trust_domain,
            "bundleEndpointURL": format!("https://{host}"),
            "bundleEndpointProfile": {
                "type": "https_spiffe",
                "endpointSPIFFEID": format!("spiffe://{trust_domain}/spire/server"),
            },
            "trustDomainBundle": bundle,
        },
    })
}

pub async fn create(cluster: &Cluster, object: &Value) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), object.to_string()).expect("a file that takes an object");
    let path = file.path().display().to_string();
    eventually(SOON, "the object is taken", async || {
        cluster.kubectl(&["create", "-f", &path]).await
    })
    .await;
}

#[tokio::test]
async fn what_spire_takes_for_keys_although_it_is_named_otherwise_is_refused_by_us() {
    let names = Names::start().await;
    let a = spiffe_server("a.test", spiffe_peer("b.test"), &names).await;
    let b = spiffe_server("b.test", spiffe_peer("a.test"), &names).await;
    let [own, other] = [a.bundle_show().await, b.bundle_show().await];
    for name in ["Keys", "\u{212a}eys", "key\u{17f}"] {
        // The last of two counts for SPIRE.
        let document = format!("{{\"keys\":{},\"{name}\":{}}}", other["keys"], own["keys"]);
        a.bundle_set_text("b.test", &document).await;
        let taken = a.bundle_of("b.test").await.expect("a bundle");
        assert_eq!(taken["keys"][0]["x5c"], own["keys"][0]["x5c"], "{name}");
        let ours = trustplane::spiffe::bundle::Bundle::parse(document.as_bytes());
        assert_eq!(ours, Err(trustplane::spiffe::bundle::BundleError::Ambiguous), "{name}");
    }
}
