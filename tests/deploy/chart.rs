//! The chart renders what the overlays hold, and refuses values that it does not know.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::at;
use testkit::tools::{folder, helm, kustomize, output};

use crate::objects::{Objects, differences, objects, without_helms_own};

/// Version of the tests' API server; helm built from its module knows none by itself.
pub const KUBERNETES: &str = "1.36.0";

pub fn template(namespace: &str, values: &[&str]) -> Result<Objects, String> {
    let mut helm = helm();
    helm.args(["template", "trustplane"]).arg(at("deploy/chart"));
    helm.args(["--kube-version", KUBERNETES, "--namespace", namespace]);
    for value in values {
        helm.args(["--set", value]);
    }
    Ok(objects(&output(&mut helm)?))
}

pub fn rendered(namespace: &str, values: &[&str]) -> Objects {
    template(namespace, values).unwrap_or_else(|why| panic!("{why}"))
}

/// Where they differ, seen from the overlay.
pub fn against_chart(overlay: &Path, namespace: &str, values: &[&str]) -> Vec<String> {
    let chart = without_helms_own(rendered(namespace, values));
    differences(&objects(&kustomize(overlay)), &chart)
}

/// helm stores the release in the namespace, so the namespace has to be there first: helm makes it
/// when it is told to, or its owner does.
pub const HELM_MAKES_IT: [&str; 1] = ["only left: Namespace trustplane"];

#[test]
fn without_values_it_is_the_overlay_for_openshift() {
    let overlay = at("deploy/overlays/openshift");
    assert_eq!(against_chart(&overlay, "trustplane", &[]), HELM_MAKES_IT);
}

#[test]
fn with_the_route_api_it_is_the_overlay_for_kubernetes() {
    let overlay = at("deploy/overlays/kubernetes");
    assert_eq!(against_chart(&overlay, "trustplane", &["routeCrd.install=true"]), HELM_MAKES_IT);
}

#[test]
fn with_one_namespace_it_is_the_overlay_for_one_namespace() {
    let overlay = at("deploy/overlays/single-namespace");
    let none: [&str; 0] = [];
    assert_eq!(against_chart(&overlay, "shop", &["namespaces={shop}"]), none);

    let overlay = at("deploy/overlays/single-namespace/without-policy");
    let values = ["namespaces={shop}", "policy.enabled=false"];
    assert_eq!(against_chart(&overlay, "shop", &values), none);
}

#[test]
fn with_monitoring_it_is_the_overlay_and_deploy_monitoring() {
    let both = folder(
        "chart-monitoring",
        &[(
            "kustomization.yaml",
            "resources: [../../../deploy/overlays/openshift, ../../../deploy/monitoring]",
        )],
    );
    let values =
        ["serviceMonitor", "alerts", "dashboard"].map(|it| format!("monitoring.{it}=true"));
    assert_eq!(
        against_chart(&both, "trustplane", &values.each_ref().map(String::as_str)),
        HELM_MAKES_IT
    );
}

#[test]
fn with_authenticated_metrics_it_is_the_overlay_and_the_components() {
    let resources = "resources: [../../../deploy/overlays/openshift, ../../../deploy/monitoring]";
    let component = "../../../deploy/components";
    let monitoring =
        ["monitoring.serviceMonitor=true", "monitoring.alerts=true", "monitoring.dashboard=true"];

    let plain = format!("{resources}\ncomponents: [{component}/authenticated-metrics]");
    let plain = folder("chart-authenticated", &[("kustomization.yaml", &plain)]);
    let values = [&monitoring[..], &["metricsAuth.enabled=true"]].concat();
    assert_eq!(against_chart(&plain, "trustplane", &values), HELM_MAKES_IT);

    let openshift = format!(
        "{resources}\ncomponents: [{component}/authenticated-metrics, {component}/openshift-serving-certificate]"
    );
    let openshift = folder("chart-serving", &[("kustomization.yaml", &openshift)]);
    let values = [&values[..], &["metricsAuth.openshiftServingCertificate=true"]].concat();
    assert_eq!(against_chart(&openshift, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn several_namespaces_get_a_role_each_and_the_cluster_gets_none() {
    let objects = rendered("trustplane", &["namespaces={shop,blog}"]);
    for namespace in ["shop", "blog"] {
        assert!(objects.contains_key(&format!("Role {namespace}/trustplane-inject")));
        let binding = &objects[&format!("RoleBinding {namespace}/trustplane-inject")];
        assert_eq!(binding["subjects"][0]["namespace"], "trustplane");
    }
    for kind in ["ClusterRole", "FlowSchema"] {
        assert!(!objects.keys().any(|name| name.starts_with(kind)), "{:?}", objects.keys());
    }
    let container = &objects["Deployment trustplane/trustplane-inject"]["spec"]["template"]["spec"]
        ["containers"][0];
    assert_eq!(container["args"][1], "--namespace=shop");
    assert_eq!(container["args"][2], "--namespace=blog");
}

#[test]
fn in_another_namespace_the_flow_schema_names_the_account_there() {
    let objects = rendered("web", &[]);
    let rule = &objects["FlowSchema trustplane-inject"]["spec"]["rules"][0];
    assert_eq!(rule["subjects"][0]["serviceAccount"]["namespace"], "web");
}

#[test]
fn every_value_for_the_pods_reaches_them() {
    let objects = rendered(
        "trustplane",
        &[
            "image.repository=registry.example.com/trustplane",
            "image.tag=1.2.3",
            "image.pullPolicy=Always",
            "imagePullSecrets[0].name=pull",
            "replicas=3",
            "onInvalidSecret=keep",
            "secretMissingGrace=30s",
            "status=annotated",
            "extraArgs={--concurrency=32}",
            "nodeSelector.disk=ssd",
            "tolerations[0].key=infra",
            "affinity.nodeAffinity.any=thing",
            "priorityClassName=system-cluster-critical",
            "podAnnotations.some=thing",
            "resources.limits.memory=1Gi",
            "networkPolicy.fromNamespaces={prometheus}",
        ],
    );
    let spec = &objects["Deployment trustplane/trustplane-inject"]["spec"];
    assert_eq!(spec["replicas"], 3);
    let template = &spec["template"];
    assert_eq!(template["metadata"]["annotations"]["some"], "thing");
    let pod = &template["spec"];
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "infra");
    assert_eq!(pod["affinity"]["nodeAffinity"]["any"], "thing");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/trustplane:1.2.3");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    let arguments = container["args"].as_array().expect("arguments");
    for argument in [
        "--on-invalid-secret=keep",
        "--secret-missing-grace=30s",
        "--status=annotated",
        "--concurrency=32",
    ] {
        assert!(arguments.iter().any(|given| given == argument), "{argument}: {arguments:?}");
    }
    let policy = &objects["NetworkPolicy trustplane/trustplane-inject"]["spec"]["ingress"][0];
    let from = &policy["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(from[0], "prometheus");
}

/// Names may be all digits, or a word that YAML takes for something else.
#[test]
fn names_that_look_like_numbers_stay_names() {
    let values = folder(
        "chart-names",
        &[(
            "values.yaml",
            "namespaces: ['1e3', 'true']\n\
             priorityClassName: 'on'\n\
             monitoring: {serviceMonitor: true, alerts: true, dashboard: true}\n\
             metricsAuth: {enabled: true, secretName: '12'}",
        )],
    );
    let mut helm = helm();
    helm.args(["template", "123"]).arg(at("deploy/chart")).arg("--values");
    helm.arg(values.join("values.yaml"));
    helm.args(["--kube-version", KUBERNETES, "--namespace", "2024"]);
    let objects = objects(&output(&mut helm).unwrap_or_else(|why| panic!("{why}")));

    for (name, object) in &objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["app.kubernetes.io/instance"], "123", "{name}");
        let namespace = &metadata["namespace"];
        assert!(namespace.is_null() || namespace.is_string(), "{name}: {namespace}");
    }
    for namespace in ["1e3", "true"] {
        let binding = &objects[&format!("RoleBinding {namespace}/trustplane-inject")];
        assert_eq!(binding["subjects"][0]["namespace"], "2024");
    }
    let pod = &objects["Deployment 2024/trustplane-inject"]["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "on");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "12");
}

/// The policy is there once, as values.yaml says; of all else each has its own.
#[test]
fn two_installations_for_some_namespaces_share_no_object() {
    let installed = |place: &str| {
        let namespaces = format!("namespaces={{{place}}}");
        rendered(place, &[&namespaces, "policy.enabled=false", "metricsAuth.enabled=true"])
    };
    let (one, other) = (installed("shop"), installed("blog"));
    let shared: Vec<_> = one.keys().filter(|name| other.contains_key(*name)).collect();
    assert!(shared.is_empty(), "{shared:?}");
    let binding = &one["ClusterRoleBinding trustplane-metrics-reader-shop"];
    assert!(
        one.contains_key(&format!("ClusterRole {}", binding["roleRef"]["name"].as_str().unwrap()))
    );
}

#[test]
fn a_label_for_the_dashboard_can_be_chosen() {
    let values = ["monitoring.dashboard=true", "monitoring.labels.grafana_dashboard=yes"];
    let objects = rendered("trustplane", &values);
    let labels = &objects["ConfigMap trustplane/trustplane-dashboard"]["metadata"]["labels"];
    assert_eq!(labels["grafana_dashboard"], "yes");
}

/// `minAvailable: 1` of one replica is a node that is never drained.
#[test]
fn one_replica_may_be_evicted() {
    for replicas in [1, 2] {
        let objects = rendered("trustplane", &[&format!("replicas={replicas}")]);
        let budget = &objects["PodDisruptionBudget trustplane/trustplane-inject"]["spec"];
        assert_eq!((&budget["maxUnavailable"], &budget["minAvailable"]), (&1.into(), &Value::Null));
    }
}

#[test]
fn the_program_takes_every_argument_that_it_is_given() {
    let accepts = |arguments: &[&str]| {
        // SeenRequest for help, it reads the arguments before, and starts nothing.
        output(Command::new(env!("CARGO_BIN_EXE_trustplane")).args(arguments).arg("--help"))
    };
    accepts(&["inject", "--no-such-flag"]).expect_err("it would complain");
    let values = [
        "namespaces={shop,blog}",
        "onInvalidSecret=keep",
        "secretMissingGrace=30s",
        "status=annotated",
        "metricsAuth.enabled=true",
    ];
    let objects = rendered("trustplane", &values);
    let deployment = &objects["Deployment trustplane/trustplane-inject"];
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<&str> =
        arguments.as_array().expect("a list").iter().filter_map(|it| it.as_str()).collect();
    assert_eq!(arguments.len(), 12);
    accepts(&arguments).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn values_that_it_does_not_know_are_refused() {
    for value in [
        "replica=3",
        "onInvalidSecret=maybe",
        "policy.enabled=perhaps",
        "namespaces={No_Name}",
        "federate.spireNamespace=No_Name",
        "federate.peers=3",
        "authority.trustDomain=No/Name",
        "authority.federations=3",
        "authority.caTtl=soon!",
        "authority.join.port=1",
        "agent.server=https://join.example.org",
        "agent.role=node",
        "agent.allowUids={root}",
        "review.clusters={No_Name}",
        "review.tls.secretName=",
        "review.jwksRefresh=soon!",
        "review.issuer=x",
    ] {
        let refusal = template("trustplane", &[value]).expect_err(value);
        assert!(
            refusal.contains("values don't meet the specifications of the schema"),
            "{refusal}"
        );
    }
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    for value in [
        "federate.enabled=false",
        "federate.enabled=true",
        "authority.enabled=true,authority.trustDomain=td.example.org",
        "agent.enabled=true,agent.server=a:1,agent.trustDomain=td.example.org,agent.token=nodes",
        "review.enabled=true,review.tls.certManager=true,review.remote.enabled=true",
    ] {
        let lint = ["lint", "--strict", "--quiet", "--set", value];
        let linted = output(helm().args(lint).arg(at("deploy/chart")));
        assert_eq!(linted.as_deref(), Ok(""), "{value}");
    }
}
