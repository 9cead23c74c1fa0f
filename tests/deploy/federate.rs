//! deploy/federate and deploy/trust-domain, and the same of the chart.

use std::process::Command;

use serde_json::{Value, json};
use testkit::at;
use testkit::tools::{folder, kustomize, output, text_of};

use crate::chart::{HELM_MAKES_IT, against_chart, rendered};
use crate::objects::objects;

/// Whose deletion takes keys of the trust domain along.
const WITH_KEYS: [&str; 2] =
    ["CustomResourceDefinition spireservers.operator.openshift.io", "Namespace spire"];

#[test]
fn what_keys_are_in_stands_apart_from_the_controller() {
    let apart = objects(&kustomize(&at("deploy/trust-domain")));
    assert_eq!(apart.keys().collect::<Vec<_>>(), WITH_KEYS.iter().collect::<Vec<_>>());
    let controller = objects(&kustomize(&at("deploy/federate")));
    let kinds = ["Namespace ", "CustomResourceDefinition ", "StatefulSet ", "Secret "];
    let shared = |name: &&String| kinds.iter().any(|kind| name.starts_with(kind));
    assert_eq!(controller.keys().find(shared), None);
}

#[test]
fn the_chart_with_federate_is_the_overlay_with_the_trust_domain_the_controller_and_its_monitoring()
{
    let folders = ["overlays/openshift", "trust-domain", "federate"];
    let all = |name: &str, folders: &[&str]| {
        let resources: Vec<_> = folders.iter().map(|it| format!("../../../deploy/{it}")).collect();
        let resources = format!("resources: [{}]", resources.join(", "));
        folder(name, &[("kustomization.yaml", &resources)])
    };
    let plain = all("chart-federate", &folders);
    assert_eq!(against_chart(&plain, "trustplane", &["federate.enabled=true"]), HELM_MAKES_IT);

    let monitored = [&folders[..], &["monitoring", "federate/monitoring"]].concat();
    let monitored = all("chart-federate-monitoring", &monitored);
    let values = [
        "federate.enabled=true",
        "monitoring.serviceMonitor=true",
        "monitoring.alerts=true",
        "monitoring.dashboard=true",
    ];
    assert_eq!(against_chart(&monitored, "trustplane", &values), HELM_MAKES_IT);

    // Where deploy/trust-domain was applied by hand.
    let without = all("chart-federate-alone", &["overlays/openshift", "federate"]);
    let values = ["federate.enabled=true", "federate.trustDomain.install=false"];
    assert_eq!(against_chart(&without, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn helm_keeps_what_keys_are_in() {
    let objects = rendered("trustplane", &["federate.enabled=true"]);
    for name in WITH_KEYS {
        let kept = &objects[name]["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(kept, "keep", "{name}");
    }
}

#[test]
fn in_other_namespaces_everything_names_them() {
    let values = ["federate.enabled=true", "federate.spireNamespace=identity"];
    let objects = rendered("web", &values);
    for name in [
        "Namespace identity",
        "Role identity/trustplane-federate",
        "RoleBinding default/trustplane-federate-events",
        "Role web/trustplane-federate-lease",
        "ServiceAccount web/trustplane-federate",
    ] {
        assert!(objects.contains_key(name), "{name}: {:?}", objects.keys());
    }
    for (name, object) in &objects {
        if name.contains("Binding ") && name.contains("trustplane-federate") {
            assert_eq!(object["subjects"][0]["namespace"], "web", "{name}");
        }
    }
    let policy = &objects["ValidatingAdmissionPolicy trustplane-federation-endpoint"]["spec"];
    assert_eq!(
        policy["variables"][0],
        json!({ "name": "serverNamespace", "expression": "'identity'" })
    );
    let rule = &objects["FlowSchema trustplane-federate"]["spec"]["rules"][0];
    assert_eq!(rule["subjects"][0]["serviceAccount"]["namespace"], "web");
    assert_eq!(
        arguments(&objects["Deployment web/trustplane-federate"])[1],
        "--namespace=identity"
    );
}

fn arguments(deployment: &Value) -> Vec<&str> {
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    arguments.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn every_value_for_federate_reaches_its_pods_and_the_program_takes_it() {
    let objects = rendered(
        "trustplane",
        &[
            "federate.enabled=true",
            "federate.replicas=3",
            "federate.appsDomain=apps.example.com",
            "federate.serverImage=registry.example.com/spire-server:1.13.3",
            "federate.controllerManagerImage=registry.example.com/spire-controller-manager:0.6.4",
            "federate.extraArgs={--create-only}",
            "federate.resources.limits.memory=1Gi",
            "image.repository=registry.example.com/trustplane",
            "image.pullPolicy=Always",
            "imagePullSecrets[0].name=pull",
            "nodeSelector.disk=ssd",
            "tolerations[0].key=infra",
            "affinity.nodeAffinity.any=thing",
            "priorityClassName=system-cluster-critical",
            "podAnnotations.some=thing",
        ],
    );
    let deployment = &objects["Deployment trustplane/trustplane-federate"];
    assert_eq!(deployment["spec"]["replicas"], 3);
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["some"], "thing");
    let pod = &template["spec"];
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "infra");
    assert_eq!(pod["affinity"]["nodeAffinity"]["any"], "thing");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/trustplane:0.1.0");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"], json!({ "limits": { "memory": "1Gi" } }));
    let arguments = arguments(deployment);
    for argument in [
        "--apps-domain=apps.example.com",
        "--server-image=registry.example.com/spire-server:1.13.3",
        "--controller-manager-image=registry.example.com/spire-controller-manager:0.6.4",
        "--create-only",
    ] {
        assert!(arguments.contains(&argument), "{argument}: {arguments:?}");
    }
    // SeenRequest for help, it reads the arguments before, and starts nothing.
    let mut program = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    output(program.args(&arguments).arg("--help")).unwrap_or_else(|why| panic!("{why}"));
}

/// The overlay that docs/federate.md shows has the controller without what keys are in.
#[test]
fn the_overlay_that_the_manual_shows_can_be_deleted_without_harm() {
    let manual = text_of("docs/federate.md");
    let shown = manual.split("```yaml\n").skip(1).map(|it| it.split("```").next().unwrap_or(it));
    let overlay = shown.into_iter().find(|it| it.contains("resources:\n- ../deploy/federate\n"));
    let overlay = overlay.expect("an overlay").replace("- ../deploy/", "- ../../../deploy/");
    let objects =
        objects(&kustomize(&folder("manual-federate", &[("kustomization.yaml", &overlay)])));
    assert!(
        arguments(&objects["Deployment trustplane/trustplane-federate"])
            .contains(&"--apps-domain=apps.cluster-a.example.com")
    );
    for name in WITH_KEYS {
        assert!(!objects.contains_key(name), "{name}");
    }
}
