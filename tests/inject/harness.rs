//! The harness tells the truth: what it says about the cluster is what happened there.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::{Cluster, RouteFixture, SecretFixture, eventually_equals, pair, suite};

#[tokio::test]
async fn the_audit_log_says_what_our_account_wrote_and_nothing_else() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("audit").await;
    let held = pair::issued("shop.example.com");
    RouteFixture::edge("shop").create(&ns).await;
    let ours = kube::Api::namespaced_with(
        cluster.account().client().await,
        ns.name(),
        &resource_of_routes(),
    );

    let patch = json!({ "spec": { "tls": { "certificate": held.certificate, "key": held.key } } });
    let _: kube::api::DynamicObject = ours
        .patch("shop", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("our account may patch Routes");
    let conflicting = json!({ "metadata": { "resourceVersion": "1" } });
    ours.patch_status("shop", &PatchParams::default(), &Patch::Merge(conflicting))
        .await
        .expect_err("a stale write is refused");
    ns.patch_route("shop", json!({ "metadata": { "labels": { "by": "admin" } } })).await;

    let writes = ns.quiet(Duration::from_millis(200)).await;
    assert_eq!(writes, ["patch routes/shop", "patch routes/shop/status (409)"]);
    assert_eq!(writes.committed(), ["patch routes/shop"]);
    let body =
        writes[0].request_object.as_ref().expect("writes to Routes are logged with their body");
    assert_eq!(body["spec"]["tls"]["certificate"], held.certificate);
    assert!(ns.route_holds("shop", &held).await);
}

#[tokio::test]
async fn the_account_has_the_rights_of_deploy_and_no_more() {
    let cluster = Cluster::forbidding().await;
    let ns = cluster.namespace("rights").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&ns).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.account().client().await, ns.name());
    let forbidden = || {
        let entries = cluster.audit().forbidden_by_account();
        let here = entries.iter().filter(|entry| entry.namespace == ns.name());
        here.map(|entry| entry.to_string()).collect::<Vec<_>>()
    };

    let listed = secrets.list(&ListParams::default()).await.expect("Secrets can be listed");
    assert_eq!((listed.items.len(), forbidden()), (1, vec![]));
    secrets.delete("shop-tls", &Default::default()).await.expect_err("Secrets cannot be deleted");

    assert_eq!(forbidden(), ["delete secrets/shop-tls (403)"]);
    let used = cluster.audit().permissions_used();
    let permission = |verb: &str| (String::new(), "secrets".to_owned(), verb.to_owned());
    assert!(
        used.contains(&permission("list")) && !used.contains(&permission("delete")),
        "{used:?}"
    );
}

#[tokio::test]
async fn a_cluster_can_lack_the_certificate_status_as_openshift_does() {
    let cluster = Cluster::start_without_certificate_status("without-status").await;
    let ns = cluster.namespace("status").await;
    RouteFixture::edge("shop").create(&ns).await;
    let conditions = json!([{ "type": "Default", "status": "True" }]);
    let written =
        ns.patch_route_status("shop", json!({ "status": { "certificate": conditions } })).await;
    assert_eq!(written["status"]["certificate"], json!(null));
}

#[tokio::test]
async fn a_router_that_writes_the_whole_status_drops_the_certificate() {
    let ns = Cluster::get().await.namespace("router").await;
    RouteFixture::edge("shop").create(&ns).await;
    let conditions = json!([{ "type": "Default", "status": "True" }]);
    ns.patch_route_status("shop", json!({ "status": { "certificate": conditions } })).await;
    let ingress = json!([{ "host": "shop.example.com", "routerName": "default" }]);
    let written = ns.replace_route_status("shop", json!({ "ingress": ingress })).await;
    assert_eq!(written["status"], json!({ "ingress": ingress }));
}

#[test]
fn a_missing_toolbox_is_said_in_one_line() {
    let nowhere = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "harness::a_second_cluster_ends_when_its_test_does", "--nocapture"]);
    command.env("TRUSTPLANE_CACHE", nowhere.path()).env("TRUSTPLANE_SUITE", nowhere.path());
    let output = command.env("RUST_BACKTRACE", "0").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(101), "it fails rather than skipping");
    assert!(said.lines().any(|line| line == "toolbox is missing: run `make toolbox`"), "{said}");
}

#[tokio::test]
async fn the_condition_of_a_route_is_the_one_that_is_true() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("condition").await;
    RouteFixture::edge("shop").create(&ns).await;
    assert_eq!(ns.certificate_condition("shop").await, None);

    let conditions = json!([
        { "type": "Default", "status": "False", "reason": "SecretInjected" },
        { "type": "Managed", "status": "True", "reason": "SecretInjected" },
    ]);
    ns.patch_route_status("shop", json!({ "status": { "certificate": conditions } })).await;

    let expected = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
    eventually_equals(Duration::from_secs(1), "Managed", expected, async || {
        ns.certificate_condition("shop").await
    })
    .await;
    let table =
        cluster.kubectl(&["get", "routes", "-n", ns.name()]).await.expect("kubectl lists Routes");
    assert!(table.contains("CERTIFICATE") && table.contains("Managed"), "{table}");
}

#[tokio::test]
async fn keys_are_noted_for_the_last_check_and_for_nobody_else() {
    use std::os::unix::fs::PermissionsExt;

    let made = pair::issued("shop.example.com");
    let noted = std::fs::read_to_string(suite::folder().join("keys")).expect("keys are noted");
    assert!(noted.contains(made.key.trim()));
    assert!(!format!("{made:?}").contains("PRIVATE"));
    let mode = |path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(
        (mode(suite::folder().to_owned()), mode(suite::folder().join("keys"))),
        (0o700, 0o600)
    );
}

#[tokio::test]
async fn a_second_cluster_ends_when_its_test_does() {
    let start = Instant::now();
    let cluster = Cluster::start_another("another").await;
    println!("a cluster of its own took {:?}", start.elapsed());
    let (processes, scratch) = (cluster.process_ids(), cluster.scratch().to_owned());
    assert!(processes.iter().all(|pid| testkit::tied::is_alive(*pid)));

    drop(cluster);

    assert!(!processes.iter().any(|pid| testkit::tied::is_alive(*pid)));
    assert!(!scratch.exists());
}

fn resource_of_routes() -> kube::api::ApiResource {
    kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
        "route.openshift.io",
        "v1",
        "Route",
    ))
}
