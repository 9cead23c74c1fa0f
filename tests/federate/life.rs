//! From a SpireServer to its objects, on a real API server.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, ResourceExt,
    api::DynamicObject,
    discovery::{Discovery, verbs::LIST},
};
use serde_json::{Value, json};
use testkit::{
    SecretFixture, eventually, eventually_equals, pair,
    proxy::{Fault, Proxy},
    spire::ControllerManager,
    stage::{self, NAMESPACE, Stage},
};
use tokio::task::JoinSet;
use trustplane::{
    federate::decide::render::{Component, FEDERATION_PORT},
    names::FIELD_MANAGER,
};

use crate::{
    many_peers::{Peer, Served},
    mixed::{by_spiffe, svid},
    real_spire::brought,
    side::server_conf,
};

/// Every object once, and the status.
pub fn first_writes() -> BTreeSet<String> {
    [
        "create serviceaccounts/spire-server",
        "create clusterroles/spire-server",
        "create clusterrolebindings/spire-server",
        "create roles/spire-server",
        "create rolebindings/spire-server",
        "create configmaps/spire-bundle",
        "create configmaps/spire-server",
        "create configmaps/spire-controller-manager",
        "create services/spire-server",
        "create statefulsets/spire-server",
        "create routes/spire-server-federation",
        "patch spireservers/cluster/status",
    ]
    .map(str::to_owned)
    .into()
}

#[tokio::test]
async fn each_object_is_written_once_and_then_nothing_until_something_changes() {
    let stage = Stage::start("federation-once").await;
    stage.create(stage::spiffe()).await;
    let controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    let writes = stage.writes().await;
    // The status names the spec before the ConfigMap has it, and tells of everything at the end.
    assert_eq!(writes.len(), first_writes().len() + 1, "one write an object: {writes:#?}");
    assert_eq!(writes.iter().cloned().collect::<BTreeSet<_>>(), first_writes());
    drop(controller);

    let again = stage.controller(&[]).await;
    assert_eq!(stage.writes().await, writes, "a restart writes nothing");
    assert_eq!(stage.refused(), Vec::<String>::new(), "deploy/federate grants what is called");
    drop(again);
}

/// All that goes with the SpireServer of this uid, and all else that we wrote, as
/// `configmaps/spire-server`. Events are no part of it.
async fn left_of(stage: &Stage, uid: &str) -> BTreeSet<String> {
    let kinds = Discovery::new(stage.admin.clone()).run_aggregated().await.expect("kinds");
    let resources = kinds.groups().flat_map(|group| group.recommended_resources());
    let listed = resources.filter(|(it, can)| can.supports_operation(LIST) && it.kind != "Event");
    let mut left = BTreeSet::new();
    for (resource, _) in listed {
        let api: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &resource);
        let objects = api.list(&Default::default()).await.expect("a list");
        let ours = objects.iter().filter(|it| it.uid().as_deref() == Some(uid) || is_of(it, uid));
        left.extend(ours.map(|it| format!("{}/{}", resource.plural, it.name_any())));
    }
    left
}

fn is_of(object: &DynamicObject, uid: &str) -> bool {
    let written = |it: &ManagedFieldsEntry| it.manager.as_deref() == Some(FIELD_MANAGER);
    object.owner_references().iter().any(|owner| owner.uid == uid)
        || object.managed_fields().iter().any(written)
}

#[tokio::test]
async fn deleting_the_spire_server_leaves_nothing_of_it_not_even_what_is_remembered_of_peers() {
    const PEER: &str = "td-b.test";
    let served = Served::new(&svid("spiffe://td-b.test/spire/server"));
    let mut tasks = JoinSet::new();
    let port = served.start(Peer::Good, &mut tasks).await;
    let stage = Stage::start("federation-gone").await;
    let crds = ControllerManager::crds().display().to_string();
    let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
    applied.expect("SPIRE's CRDs");
    // A fetched bundle is kept if it differs from the imported one.
    let older = Served::new(&svid("spiffe://td-b.test/spire/server"));
    let both = both_bundles(served.bundle(), older.bundle());
    stage.apply(&brought(PEER, &format!("localhost:{port}"), &both)).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([by_spiffe(PEER, port)]);
    stage.create(federation).await;
    let no_proxy = [("NO_PROXY".to_owned(), "localhost".to_owned())];
    let _controller = stage.controller_with(&[], &no_proxy).await;
    stage.until_kept(PEER).await;
    let writes = stage.writes().await;

    let uid = stage.server().await["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let made = first_writes().into_iter().filter_map(|it| Some(it.strip_prefix("create ")?.into()));
    let others = ["configmaps/trustplane-peers", "spireservers/cluster"].map(str::to_owned);
    assert_eq!(left_of(&stage, &uid).await, made.chain(others).collect());
    let _collector = stage.collector();
    stage.delete().await;
    eventually(Duration::from_secs(60), "nothing is left of it", async || {
        let left = left_of(&stage, &uid).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(stage.writes().await, writes, "nothing is written for what is gone");
}

fn both_bundles(one: &str, other: &str) -> String {
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("a bundle");
    let (mut both, other) = (read(one), read(other));
    both["keys"] = json!([both["keys"][0], other["keys"][0]]);
    both.to_string()
}

/// Where the bundle endpoint shows.
async fn exposed_by(stage: &Stage) -> Vec<&'static str> {
    let service = stage.object(Component::Service).await;
    let server = stage.object(Component::StatefulSet).await;
    let has_port = |ports: &Value, name: &str| {
        ports.as_array().into_iter().flatten().any(|port| port[name] == FEDERATION_PORT)
    };
    let containers = server.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let mut containers = containers.into_iter().flatten();
    let found = [
        ("Route", stage.find(Component::Route).await.is_some()),
        ("Service", has_port(&service["spec"]["ports"], "port")),
        ("Pod", containers.any(|it| has_port(&it["ports"], "containerPort"))),
        ("server.conf", server_conf(stage).await["server"]["federation"].is_object()),
    ];
    found.into_iter().filter_map(|(name, found)| found.then_some(name)).collect()
}

#[tokio::test]
async fn without_federation_there_is_no_route_no_port_and_no_section_until_it_is_added() {
    let stage = Stage::start("federation-none").await;
    stage.create(Value::Null).await;
    let _controller = stage.controller(&[]).await;
    stage.until_condition("ServiceAvailable", "True", "Available").await;
    stage.writes().await;
    assert_eq!(exposed_by(&stage).await, [""; 0]);
    assert_eq!(stage.condition("RouteAvailable").await, Default::default(), "nothing to speak of");

    stage.change(json!({ "spec": { "federation": stage::spiffe() } })).await;
    let all = vec!["Route", "Service", "Pod", "server.conf"];
    let what = "the bundle endpoint is exposed";
    eventually_equals(Duration::from_secs(30), what, all, async || exposed_by(&stage).await).await;
}

#[tokio::test]
async fn terms_that_are_not_accepted_are_told_and_nothing_is_made_until_they_are() {
    let stage = Stage::start("federation-terms").await;
    let acme = json!({
        "directoryUrl": "https://acme.test/directory",
        "domainName": "federation.td-a.test",
        "email": "admins@td-a.test",
    });
    let endpoint = json!({ "profile": "https_web", "httpsWeb": { "acme": acme } });
    stage.create(json!({ "bundleEndpoint": endpoint })).await;
    let _controller = stage.controller(&[]).await;
    let told = stage
        .until_condition("ConfigurationValid", "False", "InvalidFederationConfiguration")
        .await;
    assert_eq!(
        told,
        "spec.federation.bundleEndpoint.httpsWeb.acme.tosAccepted: the authority's terms are not \
         accepted; read them, then set it to \"true\"\nUntil that is fixed nothing is made or changed"
    );
    assert_eq!(
        stage.writes().await,
        ["patch spireservers/cluster/status"],
        "it is told, and no more"
    );

    let accepted = json!({ "acme": { "tosAccepted": "true" } });
    let accepted = json!({ "bundleEndpoint": { "httpsWeb": accepted } });
    stage.change(json!({ "spec": { "federation": accepted } })).await;
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
    stage.until_field(Component::Route, "/spec/host", json!("federation.td-a.test")).await;
    stage.until_field(Component::Route, "/spec/tls/termination", json!("passthrough")).await;
    let conf = server_conf(&stage).await["server"]["federation"]["bundle_endpoint"].to_string();
    assert!(conf.contains("\"tos_accepted\":true"), "{conf}");
}

#[tokio::test]
async fn drift_is_put_back_field_by_field_and_what_others_added_survives() {
    let stage = Stage::start("federation-drift").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    let foreign = json!({ "labels": { "team": "theirs" }, "annotations": { "note": "theirs" } });
    let host = stage.object(Component::Route).await["spec"]["host"].clone();
    assert_eq!(host, "spire-server-federation-spire.apps.test");
    stage
        .meddle(
            Component::Route,
            json!({ "metadata": foreign, "spec": { "host": "other.test", "tls": { "termination": "edge" }, "to": { "name": "other" } } }),
        )
        .await;
    stage.until_field(Component::Route, "/spec/host", host).await;
    stage.until_field(Component::Route, "/spec/tls/termination", json!("passthrough")).await;
    stage.until_field(Component::Route, "/spec/to/name", json!("spire-server")).await;
    stage.until_field(Component::Route, "/metadata/labels/team", json!("theirs")).await;
    stage.until_field(Component::Route, "/metadata/annotations/note", json!("theirs")).await;

    let label = "app.kubernetes.io/managed-by";
    stage.meddle(Component::Route, json!({ "metadata": { "labels": { label: "them" } } })).await;
    let pointer = "/metadata/labels/app.kubernetes.io~1managed-by";
    stage.until_field(Component::Route, pointer, json!("trustplane")).await;
    stage.meddle(Component::Service, json!({ "metadata": { "labels": { label: null } }, "spec": { "selector": { "app.kubernetes.io/name": "mine" } } })).await;
    stage
        .until_field(
            Component::Service,
            "/spec/selector/app.kubernetes.io~1name",
            json!("spire-server"),
        )
        .await;
    stage.until_field(Component::Service, pointer, json!("trustplane")).await;

    stage
        .meddle(
            Component::ServerConfigMap,
            json!({ "data": { "server.conf": "{}", "mine": "stays" } }),
        )
        .await;
    stage.until_field(Component::ServerConfigMap, "/data/mine", json!("stays")).await;
    eventually(Duration::from_secs(30), "server.conf is put back", async || {
        let conf = stage.object(Component::ServerConfigMap).await["data"]["server.conf"].clone();
        if conf.as_str().is_some_and(|it| it.contains("td-a.test")) {
            Ok(())
        } else {
            Err(conf.to_string())
        }
    })
    .await;

    let volumes =
        stage.object(Component::StatefulSet).await["spec"]["template"]["spec"]["volumes"].clone();
    let mut theirs = volumes.clone();
    theirs[0] = json!({ "name": volumes[0]["name"], "emptyDir": {} });
    let theirs = json!({ "spec": { "template": { "spec": { "volumes": theirs } } } });
    stage.meddle(Component::StatefulSet, theirs).await;
    stage.until_field(Component::StatefulSet, "/spec/template/spec/volumes", volumes).await;

    stage.remove(Component::StatefulSet).await;
    stage.until_field(Component::StatefulSet, "/metadata/name", json!("spire-server")).await;
    stage.remove(Component::Route).await;
    stage.until_field(Component::Route, "/metadata/name", json!("spire-server-federation")).await;
}

#[tokio::test]
async fn peers_come_and_go_and_each_change_rolls_the_server_out() {
    let stage = Stage::start("federation-peers").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    const HASH: &str = "/spec/template/metadata/annotations/trustplane.dev~1server-config";
    let hash = async || {
        stage.object(Component::StatefulSet).await.pointer(HASH).cloned().unwrap_or_default()
    };
    let before = hash().await;
    let peer = json!({
        "trustDomain": "td-b.test", "bundleEndpointUrl": "https://127.0.0.1:1/",
        "bundleEndpointProfile": "https_spiffe", "endpointSpiffeId": "spiffe://td-b.test/spire/server",
    });
    stage.change(json!({ "spec": { "federation": { "federatesWith": [peer] } } })).await;
    let status = eventually(Duration::from_secs(30), "the peer has a status", async || {
        let peers = stage.server().await["status"]["federation"]["peers"].clone();
        match peers[0]["lastError"].as_str() {
            Some(_) => Ok(peers[0].clone()),
            None => Err(peers.to_string()),
        }
    })
    .await;
    assert_eq!(
        (&status["trustDomain"], &status["reachable"]),
        (&json!("td-b.test"), &json!(false))
    );
    let error = status["lastError"].as_str().unwrap_or_default();
    assert!(error.contains("trustplane federation bootstrap"), "it says what to do: {error}");
    let with = hash().await;
    assert_ne!(before, with);
    stage.change(json!({ "spec": { "federation": { "federatesWith": null } } })).await;
    stage.until_field(Component::StatefulSet, HASH, before).await;
    let what = "the peer is forgotten";
    eventually(Duration::from_secs(30), what, async || {
        let peers = stage.server().await["status"]["federation"]["peers"].clone();
        if peers == json!([]) { Ok(()) } else { Err(peers.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn what_the_api_server_can_t_check_is_told_all_at_once_and_fixed_by_a_change() {
    let stage = Stage::start("federation-invalid").await;
    let mut wrong = stage::spiffe();
    wrong["federatesWith"] = json!([
        {
            "trustDomain": "td-b.test", "bundleEndpointUrl": "https://b.test", "bundleEndpointProfile": "https_spiffe",
            "endpointSpiffeId": "spiffe://TD-B.test/spire/server",
        },
        {
            "trustDomain": "td-c.test", "bundleEndpointUrl": "https://c.test", "bundleEndpointProfile": "https_spiffe",
            "endpointSpiffeId": "spiffe://td-c.test",
        },
    ]);
    stage.create(wrong).await;
    let _controller = stage.controller(&[]).await;
    let message = stage
        .until_condition("ConfigurationValid", "False", "InvalidFederationConfiguration")
        .await;
    let told = [
        "federatesWith[0].endpointSpiffeId: write it in lower case",
        "federatesWith[1].endpointSpiffeId: it names no server",
    ];
    assert!(told.iter().all(|told| message.contains(told)), "{message}");
    assert_eq!(stage.find(Component::ServerConfigMap).await, None, "nothing is made of it");
    stage.change(json!({ "spec": { "federation": { "federatesWith": null } } })).await;
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
    stage.until_field(Component::ServerConfigMap, "/metadata/name", json!("spire-server")).await;
}

#[tokio::test]
async fn a_route_that_the_administrator_keeps_is_left_alone_and_reported_as_chosen() {
    let stage = Stage::start("federation-own-route").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    stage.change(json!({ "spec": { "federation": { "managedRoute": "false" } } })).await;
    stage.until_condition("RouteAvailable", "Unknown", "ManagedRouteDisabled").await;
    stage.meddle(Component::Route, json!({ "spec": { "host": "mine.test" } })).await;
    stage.writes().await;
    assert_eq!(stage.object(Component::Route).await["spec"]["host"], "mine.test");
    stage.change(json!({ "spec": { "federation": { "managedRoute": "true" } } })).await;
    stage
        .until_field(
            Component::Route,
            "/spec/host",
            json!("spire-server-federation-spire.apps.test"),
        )
        .await;
}

#[tokio::test]
async fn the_external_secret_is_asked_for_by_the_annotation_and_judged() {
    let stage = Stage::start("federation-secret").await;
    stage.create(stage::web("web-tls")).await;
    let _controller = stage.controller(&[]).await;
    let message = stage
        .until_condition("ConfigurationValid", "False", "InvalidFederationConfiguration")
        .await;
    assert!(message.contains("there is no Secret web-tls in namespace spire"), "{message}");
    const ANNOTATION: &str = "/metadata/annotations/route.openshift.io~1tls-secret-name";
    stage.until_field(Component::Route, ANNOTATION, json!("web-tls")).await;
    stage.until_field(Component::Route, "/spec/tls/termination", json!("reencrypt")).await;

    let secret =
        SecretFixture::tls("web-tls", &pair::issued("spire-server-federation-spire.apps.test"));
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(stage.admin.clone(), NAMESPACE);
    secrets.create(&Default::default(), &secret.secret()).await.expect("the Secret is accepted");
    // No watch on Secrets, least privilege: it is looked at again after half a minute.
    let what = "the Secret is found";
    eventually(Duration::from_secs(60), what, async || {
        let found = stage.condition("ConfigurationValid").await;
        if found.0 == "True" { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    let none = json!({ "spec": { "federation": { "bundleEndpoint": { "httpsWeb": { "servingCert": { "externalSecretRef": null } } } } } });
    stage.change(none).await;
    stage.until_field(Component::Route, ANNOTATION, Value::Null).await;
}

#[tokio::test]
async fn in_create_only_mode_what_is_missing_is_made_and_what_differs_is_named() {
    let stage = Stage::start("federation-create-only").await;
    stage.create(Value::Null).await;
    let controller = stage.controller(&[]).await;
    stage.until_field(Component::StatefulSet, "/metadata/name", json!("spire-server")).await;
    stage.writes().await;
    drop(controller);
    let _controller = stage.controller(&["--create-only"]).await;
    stage.change(json!({ "spec": { "federation": stage::spiffe() } })).await;
    let message = stage.until_condition("CreateOnlyMode", "True", "OutOfStep").await;
    for differs in ["ServerConfigMap: data.server.conf", "Service: ", "StatefulSet: "] {
        assert!(message.contains(differs), "{differs} in {message}");
    }
    stage.until_field(Component::Route, "/metadata/name", json!("spire-server-federation")).await;
    let conf = stage.object(Component::ServerConfigMap).await["data"]["server.conf"].clone();
    assert!(!conf.as_str().unwrap_or_default().contains("bundle_endpoint"), "{conf}");
}

#[tokio::test]
async fn a_dry_run_shows_each_object_once_as_a_difference_writes_nothing_and_ends() {
    let stage = Stage::start("federation-dry").await;
    let (code, out) = stage.run(&["--dry-run"]).await;
    assert_eq!((code, &*out), (0, "There is no SpireServer: nothing would be done.\n"));

    stage.create(stage::spiffe()).await;
    const PASSWORD: &str = "not-for-eyes";
    let secret = json!({ "databaseType": "postgres", "connectionString": format!("host=db user=u password={PASSWORD}") });
    stage.change(json!({ "spec": { "datastore": secret } })).await;
    let (code, out) = stage.run(&["--dry-run"]).await;
    assert_eq!(code, 0, "{out}");
    assert_eq!(out.matches(" would be created\n").count(), 11, "{out}");
    for part in [
        "+ Route spire/spire-server-federation would be created\n",
        "    +   host: spire-server-federation-spire.apps.test\n",
        "  RouteAvailable             Unknown  FederationRouteCreated\n",
        "Objects that would be created: 11, changed: 0.\n",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(!out.contains(PASSWORD), "{out}");
    assert_eq!(stage.writes().await, Vec::<String>::new());

    let controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    drop(controller);
    let (code, out) = stage.run(&["--dry-run"]).await;
    assert!(code == 0 && out.contains("Nothing was changed, and nothing would be."), "{out}");
    let writes = stage.writes().await;
    stage.meddle(Component::Route, json!({ "spec": { "host": "other.test" } })).await;
    let (code, out) = stage.run(&["--dry-run", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&out).expect("JSON");
    let objects = shown["objects"].as_array().cloned().unwrap_or_default();
    let changed: Vec<_> = objects.iter().filter(|it| it["action"] != "keep").collect();
    assert_eq!((code, changed.len()), (0, 1), "{out}");
    let diff = changed[0]["diff"].to_string();
    assert!(diff.contains("-   host: other.test"), "{diff}");
    assert!(!out.contains(PASSWORD), "{out}");
    assert_eq!(stage.writes().await, writes);
}

#[tokio::test]
async fn a_route_that_can_t_be_read_made_or_changed_is_told_and_made_up_for() {
    let stage = Stage::start("federation-refused").await;
    stage.create(stage::spiffe()).await;
    let refused = Arc::new(Mutex::new(Some(Method::GET)));
    let script = refused.clone();
    let proxy = Proxy::start(&stage.cluster, move |asked| {
        let about_route =
            asked.path.contains("/routes") && !asked.is_watch() && !asked.is_list_of("routes");
        let is_create = asked.method == Method::POST && asked.path.ends_with("/routes");
        let refuses = script.lock().expect("a lock").as_ref() == Some(&asked.method);
        if refuses && (about_route || is_create) {
            Fault::answer(500, "not now")
        } else {
            Fault::Forward
        }
    })
    .await;
    let refuse = |method| *refused.lock().expect("a lock") = method;
    let _controller = stage.controller_through(&proxy).await;
    stage.until_condition("RouteAvailable", "False", "FederationRouteRetrievalFailed").await;
    refuse(Some(Method::POST));
    stage.until_condition("RouteAvailable", "False", "FederationRouteCreationFailed").await;
    refuse(None);
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    refuse(Some(Method::PATCH));
    stage.meddle(Component::Route, json!({ "spec": { "host": "other.test" } })).await;
    stage.until_condition("RouteAvailable", "False", "FederationRouteUpdateFailed").await;
    refuse(None);
    stage.until_field(Component::Route, "/spec/host", json!(stage.host())).await;
}

#[tokio::test]
async fn an_object_that_somebody_else_made_is_left_alone_until_they_hand_it_over() {
    let stage = Stage::start("federation-taken").await;
    let data = json!({ "server.conf": "mine" });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "spire-server", "namespace": NAMESPACE }, "data": data });
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(stage.admin.clone(), NAMESPACE);
    let map = serde_json::from_value(map).expect("a ConfigMap");
    maps.create(&Default::default(), &map).await.expect("the ConfigMap is accepted");
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&[]).await;
    let message = stage.until_condition("ServerConfigMapAvailable", "False", "Taken").await;
    assert!(message.contains("trustplane.dev/adopt"), "{message}");
    stage.writes().await;
    assert_eq!(stage.object(Component::ServerConfigMap).await["data"], data);
    const HASH: &str = "/spec/template/metadata/annotations/trustplane.dev~1server-config";
    stage.until_field(Component::StatefulSet, HASH, json!("unknown")).await;

    stage
        .meddle(
            Component::ServerConfigMap,
            json!({ "metadata": { "annotations": { "trustplane.dev/adopt": "true" } } }),
        )
        .await;
    let ready = async || {
        let found = stage.condition("ServerConfigMapAvailable").await;
        if found.0 == "True" { Ok(()) } else { Err(format!("{found:?}")) }
    };
    eventually(Duration::from_secs(60), "it is taken over", ready).await;
    let hash =
        stage.object(Component::StatefulSet).await.pointer(HASH).cloned().unwrap_or_default();
    assert_ne!(hash, "unknown", "the server is rolled out with it");
}

/// What OpenShift has; of it, only what is read.
fn ingresses() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "ingresses.config.openshift.io" },
        "spec": {
            "group": "config.openshift.io",
            "scope": "Cluster",
            "names": { "kind": "Ingress", "plural": "ingresses", "singular": "ingress", "listKind": "IngressList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

#[tokio::test]
async fn openshift_knows_the_domain_of_its_routes() {
    let stage = Stage::start("federation-domain").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller_anywhere(&["--resync=1s"], &[]).await;
    let told = stage.until_condition("RouteAvailable", "False", "FederationRouteHostUnknown").await;
    assert!(told.contains("--apps-domain"), "{told}");

    stage.apply(&ingresses()).await;
    let ingress = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Ingress",
        "metadata": { "name": "cluster" },
        "spec": { "domain": "apps.ocp.test" },
    });
    stage.apply(&ingress).await;
    let host = |domain: &str| json!(format!("spire-server-federation-spire.{domain}"));
    stage.until_field(Component::Route, "/spec/host", host("apps.ocp.test")).await;
    let mut chosen = ingress.clone();
    chosen["spec"]["appsDomain"] = json!("shops.test");
    stage.apply(&chosen).await;
    stage.until_field(Component::Route, "/spec/host", host("shops.test")).await;
}
