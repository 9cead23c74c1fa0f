//! deploy/agent, and the same of the chart.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use testkit::at;
use testkit::tools::{EmptyCluster, folder, kustomize, output};

use crate::chart::{HELM_MAKES_IT, against_chart, rendered, template};
use crate::objects::{Objects, objects};

const DAEMON_SET: &str = "DaemonSet trustplane-agent/trustplane-agent";

/// Values without which the chart installs no agent.
const ENABLED: [&str; 4] = [
    "agent.enabled=true",
    "agent.server=join.example.org:443",
    "agent.trustDomain=td.example.org",
    "agent.token=nodes",
];

/// An overlay as deploy/agent/kustomization.yaml shows it, with these folders of deploy.
fn overlay(name: &str, folders: &[&str]) -> PathBuf {
    let folders: Vec<_> = folders.iter().map(|it| format!("../../../deploy/{it}")).collect();
    let args = "/spec/template/spec/containers/0/args";
    let kustomization = format!(
        "resources: [{}]\n\
         patches:\n\
         - target: {{kind: DaemonSet, name: trustplane-agent}}\n  patch: |-\n    \
         - {{op: replace, path: {args}/1, value: --server=join.example.org:443}}\n    \
         - {{op: replace, path: {args}/2, value: --trust-domain=td.example.org}}\n    \
         - {{op: replace, path: {args}/3, value: --token=nodes}}\n    \
         - {{op: add, path: {args}/-, value: --allow-uid=1000}}\n",
        folders.join(", "),
    );
    folder(name, &[("kustomization.yaml", &kustomization)])
}

fn pod(objects: &Objects) -> &Value {
    &objects[DAEMON_SET]["spec"]["template"]["spec"]
}

fn arguments(objects: &Objects) -> Vec<&str> {
    let arguments = pod(objects)["containers"][0]["args"].as_array().expect("a list");
    arguments.iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_chart_with_the_agent_is_the_overlay_with_it() {
    let values = [&ENABLED[..], &["agent.allowUids={1000}"]].concat();
    let plain = overlay("chart-agent", &["overlays/openshift", "agent"]);
    assert_eq!(against_chart(&plain, "trustplane", &values), HELM_MAKES_IT);

    let folders = ["overlays/openshift", "monitoring", "agent", "agent/monitoring"];
    let whole = overlay("chart-agent-monitored", &folders);
    let monitoring =
        ["monitoring.serviceMonitor=true", "monitoring.alerts=true", "monitoring.dashboard=true"];
    let values = [&values[..], &monitoring].concat();
    assert_eq!(against_chart(&whole, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn the_chart_installs_no_agent_unless_asked_to_and_says_which_value_is_missing() {
    let monitoring = ["monitoring.alerts=true", "monitoring.serviceMonitor=true"];
    let objects = rendered("trustplane", &monitoring);
    assert_eq!(objects.keys().find(|name| name.contains("agent")), None);
    for missing in 1..ENABLED.len() {
        let mut values = ENABLED.to_vec();
        let (name, _) = values.remove(missing).split_once('=').expect("a value");
        let refusal = template("trustplane", &values).expect_err(name);
        assert!(refusal.contains(&format!("set {name}")), "{refusal}");
    }
}

/// The program refuses them, so that no agent joins what nobody chose.
#[test]
fn server_trust_domain_and_token_in_the_manifests_are_none_that_can_be_meant() {
    let objects = objects(&kustomize(&at("deploy/agent")));
    let arguments = arguments(&objects);
    for (argument, flag) in arguments[1..4].iter().zip(["server", "trust-domain", "token"]) {
        let value = argument.strip_prefix(&format!("--{flag}=")).expect("in this place");
        assert!(value.contains('/'), "{argument}");
    }
}

#[test]
fn the_agent_has_no_right_in_the_cluster_and_no_token_to_ask_with() {
    let objects = objects(&kustomize(&at("deploy/agent")));
    let kinds: Vec<_> = objects.keys().filter_map(|name| name.split(' ').next()).collect();
    assert_eq!(kinds, ["DaemonSet", "Namespace", "NetworkPolicy", "ServiceAccount"]);
    let account = &objects["ServiceAccount trustplane-agent/trustplane-agent"];
    assert_eq!(account["automountServiceAccountToken"], false);
    assert_eq!(pod(&objects)["automountServiceAccountToken"], false);
    assert_eq!(pod(&objects)["serviceAccountName"], account["metadata"]["name"]);
}

/// Root, because both folders of the node are root's; apart from that no more than the authority.
#[test]
fn of_its_node_the_agent_gets_two_folders_and_one_of_them_to_write() {
    let objects = objects(&kustomize(&at("deploy/agent")));
    let pod = pod(&objects);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod[field].is_null(), "{field}");
    }
    let mut other = crate::objects::objects(&kustomize(&at("deploy/authority")));
    let other = other.remove("Deployment trustplane/trustplane-authority").expect("it is there");
    let other = &other["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for field in ["securityContext", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[field], other["containers"][0][field], "{field}");
    }
    assert_eq!(
        pod["securityContext"]["seccompProfile"],
        other["securityContext"]["seccompProfile"]
    );
    let of_node = pod["volumes"].as_array().expect("volumes").iter();
    let of_node: Vec<_> = of_node.filter(|it| !it["hostPath"].is_null()).collect();
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let is_read_only = |volume: &&Value| {
        let mount = mounts.iter().find(|it| it["name"] == volume["name"]).expect("it is mounted");
        mount["readOnly"] == true
    };
    let (read, written): (Vec<_>, Vec<_>) = of_node.into_iter().partition(is_read_only);
    let paths = |volumes: Vec<&Value>| {
        volumes.iter().map(|it| it["hostPath"]["path"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(paths(read), ["/run/spire/agent-sockets"]);
    assert_eq!(paths(written), ["/run/trustplane/agent-sockets"]);
}

#[test]
fn every_value_for_the_agent_reaches_its_pods() {
    let chosen = [
        "agent.namespace=agents",
        "agent.role=bot",
        "agent.serverTrust.configMap=authority",
        "agent.serverTrust.ca=ca.crt",
        "agent.spireSocketFolder=/run/spire/sockets",
        "agent.spireSocket=api.sock",
        "agent.socketFolder=/run/other",
        "agent.allowUids={0,1000}",
        "agent.extraArgs={--some=flag}",
        "agent.resources.limits.memory=1Gi",
        "agent.nodeSelector.disk=ssd",
        "agent.tolerations[0].operator=Exists",
        "image.tag=1.2.3",
        "networkPolicy.fromNamespaces={prometheus}",
        "monitoring.alerts=true",
    ];
    let mut objects = rendered("trustplane", &[&ENABLED[..], &chosen].concat());
    for name in [
        "Namespace agents",
        "NetworkPolicy agents/trustplane-agent",
        "PrometheusRule agents/trustplane-agent",
        "ServiceAccount agents/trustplane-agent",
    ] {
        assert!(objects.contains_key(name), "{name}: {:?}", objects.keys());
    }
    let set = objects.remove("DaemonSet agents/trustplane-agent").expect("it is there");
    objects.insert(DAEMON_SET.to_owned(), set);
    assert_eq!(
        arguments(&objects),
        [
            "agent",
            "--server=join.example.org:443",
            "--trust-domain=td.example.org",
            "--token=nodes",
            "--role=bot",
            "--server-ca=/etc/trustplane/server/ca.crt",
            "--workload-api=unix:///run/spire/agent-sockets/api.sock",
            "--socket=/run/trustplane/agent-sockets/agent.sock",
            "--listen=[::]:8080",
            "--log-format=json",
            "--allow-uid=0",
            "--allow-uid=1000",
            "--some=flag",
        ]
    );
    let pod = pod(&objects);
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "authority");
    assert_eq!(pod["volumes"][1]["hostPath"]["path"], "/run/spire/sockets");
    assert_eq!(pod["volumes"][2]["hostPath"]["path"], "/run/other");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["operator"], "Exists");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "trustplane:1.2.3");
    assert_eq!(container["resources"], json!({ "limits": { "memory": "1Gi" } }));

    let without = [&ENABLED[..], &["agent.createNamespace=false"]].concat();
    assert!(!rendered("trustplane", &without).contains_key("Namespace trustplane-agent"));
}

#[test]
fn the_program_takes_every_argument_of_the_agent() {
    let values = [&ENABLED[..], &["agent.allowUids={1000}"]].concat();
    let objects = rendered("trustplane", &values);
    let mut program = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    // Asked for help, it reads the arguments before, and starts nothing.
    output(program.args(arguments(&objects)).arg("--help")).unwrap_or_else(|why| panic!("{why}"));
}

#[tokio::test]
async fn the_api_server_takes_the_agent_twice_without_a_difference() {
    let cluster = EmptyCluster::start("agent").await;
    cluster.accepts(&kustomize(&at("deploy/agent")));
}
