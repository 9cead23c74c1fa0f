//! The overlays, applied as a user would to a cluster that has nothing.

use std::time::Duration;

use testkit::{
    Cluster, Launch, RouteFixture, SecretFixture, at, eventually_equals, pair,
    tools::{EmptyCluster, folder, go, kustomize, text_of},
};

use crate::objects::objects;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_one_for_kubernetes_is_applied_in_one_go_and_applying_it_again_changes_nothing() {
    let cluster = EmptyCluster::start("overlay").await;
    let overlay = at("deploy/overlays/kubernetes");
    let overlay = overlay.to_str().expect("a path is text");

    let first = cluster.kubectl(&["apply", "-k", overlay]).expect("everything is accepted");
    assert!(first.contains("deployment.apps/trustplane-inject created"), "{first}");
    assert!(first.contains("routes.route.openshift.io created"), "{first}");

    let version =
        "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}\n{end}";
    let versions =
        || cluster.kubectl(&["get", "-k", overlay, "-o", version]).expect("all is there");
    let before = versions();
    cluster.kubectl(&["apply", "-k", overlay]).expect("everything is accepted");
    assert_eq!(versions(), before);
    assert_eq!(cluster.kubectl(&["diff", "-k", overlay]).as_deref(), Ok(""));
    cluster.passes_check().await;
}

#[tokio::test]
async fn the_one_for_openshift_takes_monitoring_and_authenticated_metrics() {
    let cluster = EmptyCluster::start("components").await;
    // The CRDs of the Prometheus operator.
    let operator = "github.com/prometheus-operator/prometheus-operator";
    let crds = go::module("e2e/monitoring-crds", operator).join("example/prometheus-operator-crd");
    for kind in ["servicemonitors", "prometheusrules", "podmonitors"] {
        let crd = crds.join(format!("monitoring.coreos.com_{kind}.yaml"));
        let crd = crd.to_str().expect("a path is text");
        cluster.kubectl(&["create", "-f", crd]).expect("the CRD is accepted");
    }
    cluster
        .kubectl(&["wait", "--for=condition=Established", "crd", "--all"])
        .expect("all are served");

    cluster.accepts(&kustomize(&at("deploy/overlays/openshift")));
    for folder in [
        "monitoring",
        "trust-domain",
        "federate",
        "federate/monitoring",
        "authority/api",
        "authority",
        "authority/monitoring",
        "review",
        "review/monitoring",
    ] {
        cluster.accepts(&kustomize(&at("deploy").join(folder)));
    }

    let component = "../../../deploy/components";
    let site = format!(
        "resources: [../../../deploy/overlays/openshift, ../../../deploy/monitoring]\n\
         components: [{component}/authenticated-metrics, {component}/openshift-serving-certificate]"
    );
    let site = folder("site", &[("kustomization.yaml", &site)]);
    cluster.accepts(&kustomize(&site));
    let can = |verb: &str, what: &str, account: &str| {
        let account = format!("--as=system:serviceaccount:trustplane:{account}");
        let answer = cluster.kubectl(&["auth", "can-i", verb, what, &account]);
        answer.is_ok_and(|answer| answer.trim() == "yes")
    };
    assert!(can("get", "/metrics", "trustplane-metrics-reader"));
    assert!(!can("list", "secrets", "trustplane-metrics-reader"));
    assert!(can("create", "tokenreviews.authentication.k8s.io", "trustplane"));
    assert!(can("create", "subjectaccessreviews.authorization.k8s.io", "trustplane"));
}

#[test]
fn the_one_that_the_manual_shows_does_what_it_says() {
    let manual = text_of("docs/operating.md");
    let (_, section) = manual.split_once("### An overlay of your own").expect("the section");
    let (_, shown) = section.split_once("```yaml\n").expect("an overlay");
    let (shown, _) = shown.split_once("```").expect("its end");
    let site = shown.replace("- ../", "- ../../../deploy/");
    let objects = objects(&kustomize(&folder("manual", &[("kustomization.yaml", &site)])));
    let container = &objects["Deployment trustplane/trustplane-inject"]["spec"]["template"]["spec"]
        ["containers"][0];
    assert_eq!(container["image"], "YOUR/IMAGE:TAG");
    for flag in ["--metrics-auth=token", "--on-invalid-secret=keep"] {
        let arguments = container["args"].as_array().expect("a list");
        assert!(arguments.iter().any(|argument| argument == flag), "{arguments:?}");
    }
    assert!(objects.contains_key("ServiceMonitor trustplane/trustplane-inject"));
    assert!(objects.contains_key("ValidatingAdmissionPolicy trustplane-route-secrets"));
}

/// Kinds that have no namespace.
fn is_for_the_whole_cluster(name: &str) -> bool {
    !name.contains('/')
}

#[test]
fn the_one_for_one_namespace_makes_nothing_for_the_whole_cluster_but_the_policy() {
    let whole = objects(&kustomize(&at("deploy/overlays/single-namespace")));
    let policy = objects(&kustomize(&at("deploy/policy")));
    let for_the_cluster: Vec<_> =
        whole.keys().filter(|name| is_for_the_whole_cluster(name)).collect();
    assert_eq!(for_the_cluster, policy.keys().collect::<Vec<_>>());

    let rest = objects(&kustomize(&at("deploy/overlays/single-namespace/without-policy")));
    for (name, object) in rest {
        assert!(!is_for_the_whole_cluster(&name), "{name}");
        assert_eq!(object["metadata"]["namespace"], "shop", "{name}");
    }
}

#[tokio::test]
async fn the_one_for_one_namespace_serves_it_with_rights_in_it_alone() {
    let cluster = Cluster::start_another("single").await;
    let (ns, other) = (cluster.namespace("single").await, cluster.namespace("other").await);
    // Users edit one line.
    let path = "deploy/overlays/single-namespace/without-policy/kustomization.yaml";
    let edited = text_of(path)
        .replace("namespace: shop", &format!("namespace: {}", ns.name()))
        .replace("../../../base", "../../../deploy/base");
    let overlay = folder("single-namespace", &[("kustomization.yaml", &edited)]);
    let applied = cluster.kubectl(&["apply", "-k", overlay.to_str().expect("text")]).await;
    applied.expect("everything is accepted");

    let of_deployment = ["-n", ns.name(), "get", "deployment", "trustplane-inject", "-o"];
    let arguments = "jsonpath={.spec.template.spec.containers[0].args[1]}";
    let namespace_flag = cluster.kubectl(&[&of_deployment[..], &[arguments]].concat()).await;
    assert_eq!(namespace_flag.as_deref(), Ok(&*format!("--namespace={}", ns.name())));

    for place in [&ns, &other] {
        SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(place).await;
        RouteFixture::edge("shop").annotated("shop-tls").create(place).await;
    }
    let account = cluster.account().with_token(cluster.token_of(ns.name(), "trustplane").await);
    let mut controller = Launch::within(&ns)
        .kubeconfig(cluster.kubeconfig(&account))
        .flags(&["--leader-elect"])
        .env("POD_NAMESPACE", ns.name())
        .start();
    controller.ready().await;
    let managed = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
    eventually_equals(PATIENCE, "the Route of its namespace", managed, async || {
        ns.certificate_condition("shop").await
    })
    .await;
    let untouched = other.pair_in_route("shop").await == (String::new(), String::new());
    assert!(untouched, "another namespace is left alone");

    let name = format!("system:serviceaccount:{}:trustplane", ns.name());
    let refused = cluster.audit().entries().into_iter();
    let refused = refused.filter(|entry| entry.user == name && entry.code == 403).count();
    assert_eq!(refused, 0, "its Role allows all that it does");
    let allowed = ["auth", "can-i", "get", "secrets", "-n", other.name(), "--as", &name];
    assert!(cluster.kubectl(&allowed).await.is_err(), "and nothing elsewhere");
}
