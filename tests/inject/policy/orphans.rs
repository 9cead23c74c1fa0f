//! Somebody can have the garbage collector take an owner off a Route: they delete the Ingress and ask for
//! its Routes to be orphaned. The collector may read every Secret, but not create routes/custom-host.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use testkit::{
    Cluster, Controller, RouteFixture, SecretFixture, eventually, eventually_equals, pair, suite,
    tied::{self, Tied},
    toolbox,
};

use crate::{
    policy::{
        guarded,
        users::{Person, create_custom_hosts, edit_routes},
    },
    scene::{PATIENCE, SILENCE, Scene},
};

const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// The real garbage collector with the account that Kubernetes has for it.
fn start_collector(cluster: &Cluster) -> Tied {
    let kubeconfig = cluster.kubeconfig(cluster.admin_access());
    let folder = suite::subfolder(&format!("collector-{}", suite::next_number()));
    let program = toolbox().unwrap_or_else(|why| panic!("{why}")).join("kube-controller-manager");
    let mut command = tied::command(Path::new(&program), &folder.join("collector.log"), None);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--controllers=garbage-collector-controller", "--use-service-account-credentials"])
        .args(["--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"]);
    Tied::spawn(command).expect("the garbage collector starts")
}

async fn make_ingress(person: &Person, namespace: &str) -> Ingress {
    let ingress = json!({
        "metadata": { "name": "web" },
        "spec": { "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } },
    });
    let ingress = serde_json::from_value(ingress).expect("an Ingress");
    let api: Api<Ingress> = Api::namespaced(person.client().clone(), namespace);
    api.create(&PostParams::default(), &ingress).await.expect("the Ingress is accepted")
}

#[tokio::test]
async fn the_garbage_collector_does_not_take_the_ingress_off_for_somebody() {
    let cluster = Cluster::start_another("orphans").await;
    guarded::install(&cluster).await;
    let ns = cluster.namespace("orphans").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&ns).await;
    let ingresses = json!({ "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["create", "delete"] });
    let rules = [edit_routes(), create_custom_hosts(), ingresses];
    let mallory = Person::new(&ns, "mallory", &rules).await;
    let ingress = make_ingress(&mallory, ns.name()).await;
    // What ingress-to-route makes of it.
    let owner = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "controller": true,
        "uid": ingress.metadata.uid,
    });
    let route = RouteFixture::edge("shop").annotated("shop-tls");
    route.with("/metadata/ownerReferences", json!([owner])).create(&ns).await;
    let controller = Controller::start(&ns, &[]).await;
    let scene = Scene { ns, controller };
    let _collector = start_collector(&cluster);

    let mine: Api<Ingress> = Api::namespaced(mallory.client().clone(), scene.ns.name());
    mine.delete("web", &DeleteParams::orphan()).await.expect("the Ingress may be deleted");

    eventually(Duration::from_secs(90), "the collector is refused", async || {
        let entries = cluster.audit().entries();
        let refused = |entry: &testkit::Entry| {
            entry.user == COLLECTOR && entry.resource == "routes" && entry.code == 403
        };
        if entries.iter().any(|entry| refused(entry)) { Ok(()) } else { Err("not yet") }
    })
    .await;
    scene.ns.quiet(SILENCE).await;
    let owners = async || scene.ns.route("shop").await["metadata"]["ownerReferences"].clone();
    assert_eq!(owners().await, json!([owner]), "the Ingress still controls the Route");
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));

    // Without the annotation there is nothing to guard, and the collector finishes.
    assert_eq!(mallory.annotate("shop", None).await, Ok(()));
    eventually_equals(PATIENCE, "the Route is nobody's", json!(null), owners).await;
    scene.settles("shop", "Default", "NoCertificate").await;
    let again = mallory.annotate("shop", Some("shop-tls")).await;
    assert_eq!(again.map_err(|refusal| refusal.code), Err(403));
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
}
