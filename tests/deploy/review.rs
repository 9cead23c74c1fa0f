//! deploy/review with its parts and its remote side, and the same of the chart. On a real API server: what it
//! accepts, and what either account may do.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::tools::{EmptyCluster, folder, kustomize, output, text_of};
use testkit::{at, eventually_equals, toolbox};

use crate::chart::{HELM_MAKES_IT, against_chart, rendered};
use crate::objects::{Objects, objects};

const PATIENCE: Duration = Duration::from_secs(30);
const DEPLOYMENT: &str = "Deployment trustplane/trustplane-review";
const ENABLED: &str = "review.enabled=true";
const CONFIG: &str = "clusters: {local: {issuer: https://kubernetes.default.svc}}";

/// What `register` and deploy/review/kustomization.yaml say about a remote cluster.
const WITH_CLUSTER_B: &str = "\
patches:
- target: {kind: Deployment, name: trustplane-review}
  patch: |-
    - op: add
      path: /spec/template/spec/volumes/2/projected/sources/-
      value:
        secret:
          name: trustplane-review-cluster-b
          optional: true
          items: [{key: ca.crt, path: b/ca.crt}, {key: token, path: b/token}]
configMapGenerator:
- name: trustplane-review-config
  namespace: trustplane
  literals: ['clusters.yaml=clusters: {local: {issuer: https://kubernetes.default.svc}}']
  options:
    disableNameSuffixHash: true
    labels: {app.kubernetes.io/name: trustplane, app.kubernetes.io/part-of: trustplane}
";

/// An overlay with these folders of deploy, these components of deploy/review, and what else is in it.
fn overlay(name: &str, folders: &[&str], components: &[&str], more: &str) -> PathBuf {
    let list = |parent: &str, all: &[&str]| {
        let all: Vec<_> = all.iter().map(|it| format!("../../../deploy/{parent}{it}")).collect();
        all.join(", ")
    };
    let (folders, components) = (list("", folders), list("review/", components));
    let kustomization = format!("resources: [{folders}]\ncomponents: [{components}]\n{more}");
    folder(name, &[("kustomization.yaml", &kustomization)])
}

fn pod<'a>(objects: &'a Objects, deployment: &str) -> &'a Value {
    &objects[deployment]["spec"]["template"]["spec"]
}

fn arguments(objects: &Objects) -> Vec<&str> {
    let arguments = pod(objects, DEPLOYMENT)["containers"][0]["args"].as_array();
    arguments.expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_chart_with_review_is_the_overlay_with_it() {
    let plain = overlay("chart-review", &["overlays/openshift", "review"], &[], "");
    assert_eq!(against_chart(&plain, "trustplane", &[ENABLED]), HELM_MAKES_IT);
}

#[test]
fn the_chart_with_all_of_review_is_the_overlay_with_clusters_certificate_callers_and_monitoring() {
    let folders = ["overlays/openshift", "monitoring", "review", "review/monitoring"];
    let whole =
        overlay("chart-review-whole", &folders, &["cert-manager", "client-ca"], WITH_CLUSTER_B);
    let config = format!("review.config.clusters={CONFIG}").replace(',', "\\,");
    let values = [
        ENABLED,
        "review.clusters={b}",
        "review.tls.certManager=true",
        "review.clientCA.configMap=trustplane-review-client-ca",
        "monitoring.serviceMonitor=true",
        "monitoring.alerts=true",
        "monitoring.dashboard=true",
        &config,
    ];
    assert_eq!(against_chart(&whole, "trustplane", &values), HELM_MAKES_IT);

    let folders = ["overlays/openshift", "review"];
    let openshift =
        overlay("chart-review-openshift", &folders, &["openshift-serving-certificate"], "");
    let values = [ENABLED, "review.tls.openshiftServingCertificate=true"];
    assert_eq!(against_chart(&openshift, "trustplane", &values), HELM_MAKES_IT);
}

/// Where trustplane runs for other reasons, too.
#[test]
fn the_chart_brings_the_account_for_a_remote_cluster_without_the_service() {
    let remote = overlay("chart-review-remote", &["overlays/openshift", "review/remote"], &[], "");
    let values = ["review.remote.enabled=true"];
    assert_eq!(against_chart(&remote, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn the_chart_installs_nothing_of_review_unless_asked_to() {
    let objects =
        rendered("trustplane", &["monitoring.alerts=true", "monitoring.serviceMonitor=true"]);
    assert_eq!(objects.keys().find(|name| name.contains("review")), None);
    // Whoever writes the configuration by another way keeps it.
    let objects = rendered("trustplane", &[ENABLED]);
    assert_eq!(objects.keys().find(|name| name.starts_with("ConfigMap")), None);
}

/// The namespace may hold keys, and credentials are in a Secret that the program makes.
#[test]
fn deleting_the_service_deletes_neither_credentials_nor_configuration() {
    let kinds = ["Namespace ", "Secret ", "ConfigMap ", "CustomResourceDefinition "];
    for folder in ["deploy/review", "deploy/review/monitoring"] {
        let objects = objects(&kustomize(&at(folder)));
        let shared = |name: &&String| kinds.iter().any(|kind| name.starts_with(kind));
        assert_eq!(objects.keys().find(shared), None, "{folder}");
    }
    let namespace = "Namespace trustplane";
    let apart = objects(&kustomize(&at("deploy/review/namespace")));
    assert_eq!(apart.keys().collect::<Vec<_>>(), [namespace]);
    assert_eq!(apart[namespace], objects(&kustomize(&at("deploy/base")))[namespace]);
}

#[test]
fn in_another_namespace_everything_of_review_names_it() {
    let values = [
        ENABLED,
        "review.tls.certManager=true",
        "review.tls.dnsNames={review.example.org}",
        "networkPolicy.fromNamespaces={prometheus}",
    ];
    let objects = rendered("web", &values);
    for name in [
        "Certificate web/trustplane-review",
        "Certificate web/trustplane-review-ca",
        "Deployment web/trustplane-review",
        "Issuer web/trustplane-review",
        "Issuer web/trustplane-review-root",
        "NetworkPolicy web/trustplane-review",
        "PodDisruptionBudget web/trustplane-review",
        "Role web/trustplane-review",
        "Role web/trustplane-review-lease",
        "Service web/trustplane-review",
        "ServiceAccount web/trustplane-review",
    ] {
        assert!(objects.contains_key(name), "{name}: {:?}", objects.keys());
    }
    for (name, object) in &objects {
        if name.contains("Binding ") && name.contains("trustplane-review") {
            assert_eq!(object["subjects"][0]["namespace"], "web", "{name}");
        }
    }
    let rule = &objects["FlowSchema trustplane-review"]["spec"]["rules"][0];
    assert_eq!(rule["subjects"][0]["serviceAccount"]["namespace"], "web");
    let names = &objects["Certificate web/trustplane-review"]["spec"]["dnsNames"];
    let expected = [
        "trustplane-review.web.svc",
        "trustplane-review.web.svc.cluster.local",
        "review.example.org",
    ];
    assert_eq!(names, &json!(expected));
    let ingress = &objects["NetworkPolicy web/trustplane-review"]["spec"]["ingress"];
    let from = &ingress[0]["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(from, &json!(["prometheus"]));
    assert_eq!(ingress[1], json!({ "ports": [{ "protocol": "TCP", "port": "api" }] }));
}

#[test]
fn the_overlay_of_kube_federated_auth_has_its_names_and_nothing_is_left_in_our_namespace() {
    let components = ["cert-manager", "client-ca", "openshift-serving-certificate"];
    let overlay = overlay("kube-fed", &["overlays/kube-federated-auth"], &components, "");
    let rendered = kustomize(&overlay);
    assert!(!rendered.contains("namespace: trustplane\n"), "{rendered}");
    let objects = objects(&rendered);

    // As its manifest for a Service has it.
    let service = &objects["Service kube-federated-auth/kube-fed"];
    let spec = &service["spec"];
    assert_eq!(spec["selector"], json!({ "app": "kube-federated-auth" }));
    assert_eq!(
        (&spec["ports"][0]["port"], &spec["ports"][0]["targetPort"]),
        (&json!(443), &json!("api"))
    );
    let deployment = "Deployment kube-federated-auth/trustplane-review";
    let labels = &objects[deployment]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["app"], "kube-federated-auth");
    let container = &pod(&objects, deployment)["containers"][0];
    assert_eq!(container["ports"][0], json!({ "name": "api", "containerPort": 8080 }));
    let mounts = container["volumeMounts"].as_array().expect("mounts").iter();
    let mounts = mounts.filter(|it| it["name"] == "clusters").map(|it| &it["mountPath"]);
    let folders = ["/etc/trustplane/clusters", "/etc/kube-fed/clusters"];
    assert_eq!(mounts.collect::<Vec<_>>(), folders, "as `register` writes it, and as it was");

    let certificate = &objects["Certificate kube-federated-auth/trustplane-review"]["spec"];
    assert_eq!(certificate["dnsNames"][0], "kube-fed.kube-federated-auth.svc");
    let serving = "service.beta.openshift.io/serving-cert-secret-name";
    assert_eq!(service["metadata"]["annotations"][serving], certificate["secretName"]);
    for (name, object) in &objects {
        let whole_cluster = !name.contains('/');
        assert_eq!(object["metadata"]["namespace"].is_null(), whole_cluster, "{name}");
        if name.contains("Binding ") {
            assert_eq!(object["subjects"][0]["namespace"], "kube-federated-auth", "{name}");
        }
    }
    let rule = &objects["FlowSchema trustplane-review"]["spec"]["rules"][0];
    assert_eq!(rule["subjects"][0]["serviceAccount"]["namespace"], "kube-federated-auth");
}

#[test]
fn every_value_for_review_reaches_its_pods() {
    let values = [
        ENABLED,
        "review.replicas=3",
        "review.config.configMap=clusters",
        "review.clusters={b,c.example}",
        "review.tls.secretName=serving",
        "review.clientCA.configMap=kube-apiservers",
        "review.jwksRefresh=1m",
        "review.extraArgs={--caller-auth=none}",
        "review.resources.limits.memory=1Gi",
        "image.repository=registry.example.com/trustplane",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=pull",
        "nodeSelector.disk=ssd",
        "tolerations[0].key=infra",
        "affinity.nodeAffinity.any=thing",
        "priorityClassName=system-cluster-critical",
        "podAnnotations.some=thing",
    ];
    let objects = rendered("trustplane", &values);
    assert_eq!(objects[DEPLOYMENT]["spec"]["replicas"], 3);
    let template = &objects[DEPLOYMENT]["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["some"], "thing");
    let pod = pod(&objects, DEPLOYMENT);
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "infra");
    assert_eq!(pod["affinity"]["nodeAffinity"]["any"], "thing");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    let volumes = &pod["volumes"];
    assert_eq!(volumes[0]["configMap"]["name"], "clusters");
    assert_eq!(volumes[1]["secret"]["secretName"], "serving");
    let second = &volumes[2]["projected"]["sources"][1]["secret"];
    assert_eq!(second["name"], "trustplane-review-cluster-c.example");
    assert_eq!(second["items"][1], json!({ "key": "token", "path": "c.example/token" }));
    assert_eq!(volumes[3]["configMap"]["name"], "kube-apiservers");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/trustplane:0.1.0");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"], json!({ "limits": { "memory": "1Gi" } }));
    let expected = [
        "--client-ca-file=/etc/trustplane/review-client-ca/ca.crt",
        "--jwks-refresh=1m",
        "--caller-auth=none",
    ];
    assert_eq!(arguments(&objects)[8..], expected);
}

#[test]
fn the_program_takes_every_argument_of_review() {
    let values = [
        ENABLED,
        "review.clientCA.configMap=kube-apiservers",
        "review.jwksRefresh=1m",
        "review.extraArgs={--caller-auth=none}",
    ];
    let objects = rendered("trustplane", &values);
    let mut program = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    // Asked for help, it reads the arguments before, and starts nothing.
    output(program.args(arguments(&objects)).arg("--help")).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn the_overlay_that_the_manual_shows_gives_the_pods_the_files_of_its_cluster() {
    let manual = text_of("docs/review.md");
    let (_, shown) = manual.split_once("# install/kustomization.yaml\n").expect("an overlay");
    let (shown, _) = shown.split_once("```").expect("its end");
    let overlay = shown.replace("- ../deploy/", "- ../../../deploy/");
    let objects =
        objects(&kustomize(&folder("manual-review", &[("kustomization.yaml", &overlay)])));
    let secret = &pod(&objects, DEPLOYMENT)["volumes"][2]["projected"]["sources"][0]["secret"];
    assert_eq!(secret["name"], "trustplane-review-cluster-b");
    assert_eq!(secret["items"][1], json!({ "key": "token", "path": "b/token" }));
    for name in ["Namespace trustplane", "Certificate trustplane/trustplane-review"] {
        assert!(objects.contains_key(name), "{name}: {:?}", objects.keys());
    }
}

/// The container is hardened like the injector's.
#[test]
fn the_pods_of_review_may_do_no_more_than_those_of_the_injector_and_have_time_to_drain() {
    let own = objects(&kustomize(&at("deploy/review")));
    let other = objects(&kustomize(&at("deploy/base")));
    let own = pod(&own, DEPLOYMENT);
    let other = pod(&other, "Deployment trustplane/trustplane-inject");
    for field in ["securityContext", "hostNetwork", "hostPID", "hostIPC"] {
        assert_eq!(own[field], other[field], "{field}");
    }
    for field in ["securityContext", "livenessProbe", "readinessProbe", "env"] {
        assert_eq!(own["containers"][0][field], other["containers"][0][field], "{field}");
    }
    for mount in own["containers"][0]["volumeMounts"].as_array().expect("mounts") {
        assert_eq!(mount["readOnly"], true, "{mount}");
    }
    // 5 s in which others stop asking, 20 s for reviews under way, 10 s for the last write and the Lease.
    assert!(own["terminationGracePeriodSeconds"].as_u64() > Some(5 + 20 + 10), "{own}");
}

/// Whether an account of this namespace may do this.
fn may(cluster: &EmptyCluster, account: &str, what: &str) -> bool {
    let account = format!("--as=system:serviceaccount:{account}:trustplane-review");
    let mut question = vec!["auth", "can-i", &*account];
    question.extend(what.split(' '));
    cluster.kubectl(&question).is_ok_and(|answer| answer.trim() == "yes")
}

#[tokio::test]
async fn the_api_server_takes_it_twice_and_either_account_may_do_its_work_and_nothing_else() {
    let cluster = EmptyCluster::start("review").await;
    let crds = toolbox().unwrap_or_else(|why| panic!("{why}")).join("cert-manager.crds.yaml");
    let crds = crds.display().to_string();
    // Too large for `apply`.
    cluster.kubectl(&["create", "-f", &crds]).expect("they are accepted");
    let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds];
    cluster.kubectl(&wait).expect("they are served");
    cluster.accepts(&kustomize(&at("deploy/review/namespace")));
    let whole = ["cert-manager", "client-ca"];
    let whole = overlay("review-whole", &["review"], &whole, WITH_CLUSTER_B);
    // The last one of the two counts: what is for the whole cluster has the same names in both.
    for folder in [at("deploy/overlays/kube-federated-auth"), whole, at("deploy/review/remote")] {
        cluster.accepts(&kustomize(&folder));
    }

    let (local, remote) = ("trustplane", "trustplane-review");
    for (account, question, expected) in [
        (local, "create tokenreviews.authentication.k8s.io", true),
        (local, "create subjectaccessreviews.authorization.k8s.io", true),
        (local, "get /openid/v1/jwks", true),
        (local, "get secrets/trustplane-review -n trustplane", true),
        (local, "patch secrets/trustplane-review -n trustplane", true),
        (local, "create secrets -n trustplane", true),
        (local, "get secrets/trustplane-review-tls -n trustplane", false),
        (local, "get secrets/trustplane-authority -n trustplane", false),
        (local, "list secrets -n trustplane", false),
        (local, "delete secrets/trustplane-review -n trustplane", false),
        (local, "patch configmaps/trustplane-review-status -n trustplane", true),
        (local, "patch configmaps/trustplane-review-config -n trustplane", false),
        (local, "update leases.coordination.k8s.io/trustplane-review -n trustplane", true),
        (local, "create secrets -n default", false),
        (
            local,
            "create serviceaccounts/trustplane-review --subresource=token -n trustplane",
            false,
        ),
        (remote, "create tokenreviews.authentication.k8s.io", true),
        (remote, "get /openid/v1/jwks", true),
        (remote, "get /.well-known/openid-configuration", true),
        (
            remote,
            "create serviceaccounts/trustplane-review --subresource=token -n trustplane-review",
            true,
        ),
        (remote, "create serviceaccounts/default --subresource=token -n trustplane-review", false),
        (
            remote,
            "create serviceaccounts/trustplane-review --subresource=token -n trustplane",
            false,
        ),
        (remote, "create serviceaccounts -n trustplane-review", false),
        (remote, "create subjectaccessreviews.authorization.k8s.io", false),
        (remote, "list secrets -n trustplane-review", false),
        (remote, "get namespaces/trustplane-review", false),
    ] {
        // A binding is in force a moment after it was accepted.
        let what = format!("{account}: {question}");
        eventually_equals(PATIENCE, &what, expected, async || may(&cluster, account, question))
            .await;
    }
}
