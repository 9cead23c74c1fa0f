//! deploy/base: accepted by a real API server, and asking for no more than it needs.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use testkit::Cluster;
use trustplane::names::INJECT_LEASE;

const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base");

async fn deployed(client: &Client) -> Deployment {
    Api::namespaced(client.clone(), "trustplane")
        .get("trustplane-inject")
        .await
        .expect("deploy/base is applied")
}

/// The Pod that a Deployment would make.
fn pod_of(deployment: &Deployment) -> Pod {
    let template = deployment.spec.template.clone();
    let metadata = ObjectMeta {
        name: Some("trustplane-inject-1".to_owned()),
        ..template.metadata.unwrap_or_default()
    };
    Pod { metadata, spec: template.spec, status: None }
}

#[tokio::test]
async fn applying_it_twice_changes_nothing() {
    let cluster = Cluster::get().await;
    let difference = cluster.kubectl(&["diff", "--server-side", "-k", BASE]).await;
    assert_eq!(difference.as_deref(), Ok(""));
}

#[tokio::test]
async fn its_pods_pass_the_restricted_profile() {
    let client = Cluster::get().await.admin().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "trustplane");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let pod = pod_of(&deployed(&client).await);

    pods.create(&dry_run, &pod).await.expect("the Pod is accepted");

    // The namespace would have refused it.
    let mut privileged = pod;
    let spec = privileged.spec.as_mut().expect("a Pod has a spec");
    spec.containers[0].security_context.as_mut().expect("it is set").allow_privilege_escalation =
        Some(true);
    let refusal =
        pods.create(&dry_run, &privileged).await.expect_err("the profile is enforced").to_string();
    assert!(
        refusal.contains("violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation"),
        "{refusal}"
    );
}

#[tokio::test]
async fn its_pods_take_any_user_id_but_root_and_write_nowhere() {
    let client = Cluster::get().await.admin().await;
    let deployment = deployed(&client).await;
    assert_eq!(deployment.spec.replicas, Some(2));
    let spec = pod_of(&deployment).spec.expect("a Pod has a spec");
    let whole = spec.security_context.expect("it is set");
    assert_eq!(
        (whole.run_as_non_root, whole.run_as_user, whole.fs_group),
        (Some(true), None, None)
    );
    let container = &spec.containers[0];
    let own = container.security_context.as_ref().expect("it is set");
    assert_eq!((own.run_as_user, own.read_only_root_filesystem), (None, Some(true)));
    assert_eq!(
        own.capabilities.as_ref().and_then(|capabilities| capabilities.drop.clone()),
        Some(vec!["ALL".to_owned()])
    );
    assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
    assert!(container.resources.as_ref().is_some_and(|resources| resources.requests.is_some()));
}

#[tokio::test]
async fn its_rules_name_what_they_allow() {
    let client = Cluster::get().await.admin().await;
    let cluster_role: ClusterRole =
        Api::all(client.clone()).get("trustplane-inject").await.expect("deploy/base is applied");
    let role: Role = Api::namespaced(client, "trustplane")
        .get("trustplane-inject-lease")
        .await
        .expect("deploy/base is applied");
    for rule in cluster_role.rules.into_iter().chain(role.rules).flatten() {
        let named =
            [rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default(), rule.verbs]
                .concat();
        assert!(!named.iter().any(|name| name.contains('*')), "{named:?}");
    }
}

#[tokio::test]
async fn its_account_may_hold_its_own_lease_and_no_other() {
    let cluster = Cluster::forbidding().await;
    let client = cluster.account().client().await;
    let leases = |namespace: &str| -> Api<Lease> { Api::namespaced(client.clone(), namespace) };
    let lease = |name: &str| Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Lease::default()
    };
    let ours = leases("trustplane")
        .create(&PostParams::default(), &lease(INJECT_LEASE))
        .await
        .expect("ours can be made");
    leases("trustplane").get(INJECT_LEASE).await.expect("ours can be read");
    leases("trustplane")
        .replace(INJECT_LEASE, &PostParams::default(), &ours)
        .await
        .expect("ours can be renewed");

    leases("trustplane").get("another").await.expect_err("another cannot be read");
    leases("default")
        .create(&PostParams::default(), &lease(INJECT_LEASE))
        .await
        .expect_err("nor made elsewhere");

    // A test that needs a Lease of its own gets the same right in its own namespace.
    let ns = cluster.namespace("lease").await;
    ns.allow_leases().await;
    leases(ns.name())
        .create(&PostParams::default(), &lease(INJECT_LEASE))
        .await
        .expect("the copied role allows it");
    assert_eq!(ns.writes().to_leases().committed(), ["create leases/trustplane-inject"]);
}
