//! The Pod that we render, run as a kubelet runs it: the real programs, as the official images have them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    eventually,
    kubelet::{self, Kubelet, Pod, PodLaunch},
    spire::{ControllerManager, Names, SpireServer},
    stage::Stage,
    suite,
};
use trustplane::federate::decide::render::Component;

use crate::real_spire::{refused, spiffe_peer, spiffe_server};
use crate::rendered::rendered_for_tests;

const SERVER: &str = "spire-server";
const MANAGER: &str = "spire-controller-manager";
const SPIRE: &str = "/opt/spire/bin/spire-server";
const SOON: Duration = Duration::from_secs(60);
/// The first user that an OpenShift cluster assigns in a namespace.
const ASSIGNED: i64 = 1_000_650_000;

/// td-a.test, which federates with td-b.test.
async fn installed() -> Stage {
    let stage = Stage::start("pod").await;
    let crds = ControllerManager::crds().display().to_string();
    stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await.expect("SPIRE's CRDs");
    stage
        .create(json!({
            "bundleEndpoint": { "profile": "https_spiffe" },
            "federatesWith": [{
                "trustDomain": "td-b.test",
                "bundleEndpointUrl": "https://td-b.test",
                "bundleEndpointProfile": "https_spiffe",
                "endpointSpiffeId": "spiffe://td-b.test/spire/server",
            }],
        }))
        .await;
    stage
}

async fn stateful_set(stage: &Stage, pod_security: Value) -> Value {
    stage
        .until_field(Component::StatefulSet, "/spec/template/spec/securityContext", pod_security)
        .await;
    stage.object(Component::StatefulSet).await
}

/// A namespace that enforces the strictest of Kubernetes' Pod Security Standards takes it.
async fn is_admitted_as_restricted(stage: &Stage, pod: &PodLaunch) {
    let label = "pod-security.kubernetes.io/enforce=restricted";
    let labelled = stage.cluster.kubectl(&["label", "namespace", "spire", label]).await;
    labelled.expect("a label");
    let file = stage.cluster.scratch().join(format!("{}.json", suite::next_number()));
    let mut object = json!(pod.object());
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    // A claim's volume stands in the Pod once there is a Pod.
    let claim =
        json!({ "name": "spire-data", "persistentVolumeClaim": { "claimName": "spire-data" } });
    object["spec"]["volumes"].as_array_mut().expect("volumes").push(claim);
    suite::write_private(&file, &object.to_string());
    let file = file.display().to_string();
    let created = stage.cluster.kubectl(&["create", "--dry-run=server", "-f", &file]).await;
    created.expect("the Pod is admitted");
}

async fn spire(pod: &Pod, arguments: &[&str]) -> String {
    let answer = pod.exec(SERVER, &[&[SPIRE], arguments].concat()).await;
    answer.unwrap_or_else(|why| panic!("{arguments:?}: {why}\n{}", pod.log(SERVER)))
}

async fn bundle(pod: &Pod) -> Value {
    let shown = spire(pod, &["bundle", "show", "-format", "spiffe"]).await;
    serde_json::from_str(&shown).expect("a bundle")
}

fn runs_as(pod: &Pod, user: i64, group: i64, groups: &str) {
    for container in [SERVER, MANAGER] {
        let status = |field: &str| pod.status(container, field);
        assert_eq!(status("Uid"), vec![user.to_string(); 4].join(" "), "{container}");
        assert_eq!(status("Gid"), vec![group.to_string(); 4].join(" "), "{container}");
        assert_eq!(status("Groups"), groups, "{container}");
        assert_eq!(status("CapBnd"), "0000000000000000", "{container}");
    }
}

/// Nobody but the server's user may read the keys of the trust domain.
fn keys_belong_to(node: &Kubelet, user: i64) {
    let keys = fs::metadata(node.claim("spire-data").join("keys.json")).expect("keys");
    assert_eq!((i64::from(keys.uid()), keys.mode() & 0o777), (user, 0o600));
}

/// The server has what the controller manager was told.
async fn an_entry_arrives(stage: &Stage, pod: &Pod, name: &str) {
    stage
        .apply(&json!({
            "apiVersion": "spire.spiffe.io/v1alpha1",
            "kind": "ClusterStaticEntry",
            "metadata": { "name": name },
            "spec": {
                "spiffeID": format!("spiffe://td-a.test/{name}"),
                "parentID": "spiffe://td-a.test/agent",
                "selectors": ["unix:uid:4711"],
            },
        }))
        .await;
    eventually(SOON, "the entry arrives", async || {
        let shown = spire(pod, &["entry", "show", "-output", "json"]).await;
        if shown.contains(&format!("/{name}")) { Ok(()) } else { Err(pod.log(MANAGER)) }
    })
    .await;
}

/// Both ways: out through the proxy that the controller has, and in.
async fn federates(pod: &Pod, other: &SpireServer, names: &Names) {
    let file = pod.volume("spire-server-tmp").join("b.json");
    fs::write(&file, other.bundle_show().await.to_string()).expect("a file for the container");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    let id = ["-id", "spiffe://td-b.test"];
    let set = ["bundle", "set", "-format", "spiffe", "-path", "/tmp/b.json"];
    spire(pod, &[&set[..], &id].concat()).await;
    spire(pod, &[&["federation", "refresh"], &id[..]].concat()).await;

    names.point("td-a.test", pod.publish(8443).await);
    other.bundle_set("td-a.test", &bundle(pod).await).await;
    other.refresh("td-a.test").await.expect("the endpoint is reached, and proves who it is");
}

#[tokio::test]
async fn the_official_images_run_on_kubernetes_and_on_openshift_as_the_pod_says() {
    let names = Names::start().await;
    let (stage, other) =
        tokio::join!(installed(), spiffe_server("td-b.test", spiffe_peer("td-a.test"), &names));
    let _controller = stage.controller_with(&["--resync=1s"], &names.environment()).await;
    let named = json!({
        "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
    });
    let set = stateful_set(&stage, named).await;
    let node = Kubelet::of(&stage.cluster).await;
    is_admitted_as_restricted(&stage, &node.pod(&set)).await;

    let start = async || {
        let launch = node.pod(&set).reaching(names.address());
        let mut pod = launch.start().await.unwrap_or_else(|why| panic!("{why}"));
        pod.until_ready().await;
        pod
    };
    let pod = start().await;
    runs_as(&pod, 1000, 1000, "1000");
    keys_belong_to(&node, 1000);
    an_entry_arrives(&stage, &pod, "shop").await;
    federates(&pod, &other, &names).await;
    let before = bundle(&pod).await;
    eventually(SOON, "the server publishes its bundle", async || {
        let map = stage.object(Component::BundleConfigMap).await;
        let text = map["data"]["bundle.crt"].as_str().unwrap_or_default().to_owned();
        if text.contains("BEGIN CERTIFICATE") { Ok(()) } else { Err(pod.log(SERVER)) }
    })
    .await;

    drop(pod);
    let pod = start().await;
    assert_eq!(bundle(&pod).await["keys"], before["keys"], "it finds its keys again");
    keys_belong_to(&node, 1000);
    drop(pod);

    let range = format!("openshift.io/sa.scc.uid-range={ASSIGNED}/10000");
    stage.cluster.kubectl(&["annotate", "namespace", "spire", &range]).await.expect("a range");
    let refusal = node.pod(&set).restricted_v2(ASSIGNED).err();
    assert!(refusal.is_some(), "OpenShift takes no Pod with a user of our choice");
    let assigned = json!({ "fsGroupChangePolicy": "OnRootMismatch" });
    let set = stateful_set(&stage, assigned).await;
    let node = Kubelet::of(&stage.cluster).await;
    let launch = node.pod(&set).restricted_v2(ASSIGNED).expect("OpenShift takes the Pod");
    let mut pod = launch.start().await.unwrap_or_else(|why| panic!("{why}"));
    pod.until_ready().await;
    // OpenShift leaves them in the group of root.
    runs_as(&pod, ASSIGNED, 0, &ASSIGNED.to_string());
    keys_belong_to(&node, ASSIGNED);
    an_entry_arrives(&stage, &pod, "bank").await;
    assert_eq!(refused(&stage.cluster), Vec::<String>::new());
}

#[test]
fn the_kubelet_starts_the_rendered_pod_and_would_not_without_a_user() {
    let mut set = rendered_for_tests(Component::StatefulSet);
    assert_eq!(kubelet::refusal(&set), None);
    let context = &mut set["spec"]["template"]["spec"]["securityContext"];
    context.as_object_mut().expect("a security context").remove("runAsUser");
    let refusal = kubelet::refusal(&set).expect("an image without a user, in a Pod without one");
    assert_eq!(
        refusal,
        "CreateContainerConfigError: spire-controller-manager: \
         container has runAsNonRoot and image will run as root"
    );
}
