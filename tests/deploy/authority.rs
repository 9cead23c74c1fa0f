//! deploy/authority with its parts, and the same of the chart. On a real API server: what it accepts, and who
//! may write the status of a SPIFFEFederation or a JoinToken.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::tools::{EmptyCluster, folder, kustomize, output};
use testkit::{at, eventually, eventually_equals};

use crate::chart::{HELM_MAKES_IT, against_chart, rendered, template};
use crate::objects::{Objects, objects};

const PATIENCE: Duration = Duration::from_secs(30);
const CRDS: [&str; 2] = [
    "CustomResourceDefinition jointokens.trustplane.dev",
    "CustomResourceDefinition spiffefederations.trustplane.dev",
];
const GROUP: &str = "trustplane.dev";
const DEPLOYMENT: &str = "Deployment trustplane/trustplane-authority";
const ACCOUNT: &str = "system:serviceaccount:trustplane:trustplane-authority";

/// Values without which the chart installs no authority.
const ENABLED: [&str; 2] = ["authority.enabled=true", "authority.trustDomain=td.example.org"];

/// An overlay as deploy/authority/kustomization.yaml shows it, with these folders of deploy and these components.
fn overlay(name: &str, folders: &[&str], components: &[&str]) -> PathBuf {
    let list = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(|it| format!("../../../deploy/{it}")).collect();
        all.join(", ")
    };
    let kustomization = format!(
        "resources: [{}]\n\
         components: [{}]\n\
         patches:\n\
         - target: {{kind: Deployment, name: trustplane-authority}}\n  patch: |-\n    \
         - {{op: replace, path: /spec/template/spec/containers/0/args/1, value: --trust-domain=td.example.org}}\n",
        list(folders),
        list(components),
    );
    folder(name, &[("kustomization.yaml", &kustomization)])
}

fn with<'a>(values: &[&'a str]) -> Vec<&'a str> {
    [&ENABLED[..], values].concat()
}

fn arguments(objects: &Objects, deployment: &str) -> Vec<String> {
    let arguments = &objects[deployment]["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array().expect("a list").iter();
    arguments.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

#[test]
fn the_chart_with_the_authority_is_the_overlay_with_its_api_and_the_controller() {
    let folders = ["overlays/openshift", "authority/api", "authority"];
    let plain = overlay("chart-authority", &folders, &[]);
    assert_eq!(against_chart(&plain, "trustplane", &ENABLED), HELM_MAKES_IT);

    // Where deploy/authority/api was applied by hand.
    let without = overlay("chart-authority-alone", &["overlays/openshift", "authority"], &[]);
    let values = with(&["authority.crd.install=false"]);
    assert_eq!(against_chart(&without, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn the_chart_with_all_of_the_authority_is_the_overlay_with_both_profiles_joins_routes_and_monitoring()
 {
    let folders = [
        "overlays/openshift",
        "monitoring",
        "authority/api",
        "authority",
        "authority/routes",
        "authority/monitoring",
    ];
    let whole = overlay("chart-authority-whole", &folders, &["authority/web", "authority/join"]);
    let values = with(&[
        "authority.web.enabled=true",
        "authority.join.enabled=true",
        "authority.routes.enabled=true",
        "monitoring.serviceMonitor=true",
        "monitoring.alerts=true",
        "monitoring.dashboard=true",
    ]);
    assert_eq!(against_chart(&whole, "trustplane", &values), HELM_MAKES_IT);
}

#[test]
fn the_chart_installs_nothing_of_the_authority_unless_asked_to() {
    let objects =
        rendered("trustplane", &["monitoring.alerts=true", "monitoring.serviceMonitor=true"]);
    let found = objects.keys().find(|name| name.contains("authority") || name.contains("spiffe"));
    assert_eq!(found, None);
}

#[test]
fn without_a_trust_domain_the_chart_refuses_and_says_which_value_is_missing() {
    let refusal = template("trustplane", &["authority.enabled=true"]).expect_err("it is needed");
    assert!(refusal.contains("set authority.trustDomain"), "{refusal}");
    for wrong in ["TD.example.org", "spiffe://td.example.org", "td.example.org/a"] {
        let value = format!("authority.trustDomain={wrong}");
        let refusal = template("trustplane", &["authority.enabled=true", &value]);
        let refusal = refusal.expect_err(wrong);
        assert!(refusal.contains("values don't meet the specifications"), "{refusal}");
    }
}

/// The program refuses it, so that no CA is made for a name that nobody chose.
#[test]
fn the_trust_domain_in_the_manifests_is_a_name_that_none_can_have() {
    let objects = objects(&kustomize(&at("deploy/authority")));
    let arguments = arguments(&objects, DEPLOYMENT);
    let named = arguments[1].strip_prefix("--trust-domain=").expect("the second argument");
    assert!(named.contains('/'), "{named}");
}

#[test]
fn helm_keeps_the_apis_because_federations_and_tokens_go_with_them() {
    let objects = rendered("trustplane", &ENABLED);
    for crd in CRDS {
        assert_eq!(objects[crd]["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
}

/// Keys are in a Secret that the program makes: no manifest holds it, so none deletes it.
#[test]
fn deleting_the_controller_deletes_neither_keys_nor_federations() {
    let controller = objects(&kustomize(&at("deploy/authority")));
    let kinds = ["Namespace ", "CustomResourceDefinition ", "Secret ", "ConfigMap "];
    let shared = |name: &&String| kinds.iter().any(|kind| name.starts_with(kind));
    assert_eq!(controller.keys().find(shared), None);
    let api = objects(&kustomize(&at("deploy/authority/api")));
    assert_eq!(api.keys().collect::<Vec<_>>(), CRDS);
}

#[test]
fn in_another_namespace_everything_of_the_authority_names_it() {
    let values = with(&[
        "authority.routes.enabled=true",
        "authority.web.enabled=true",
        "authority.join.enabled=true",
        "networkPolicy.fromNamespaces={prometheus}",
    ]);
    let objects = rendered("web", &values);
    for name in [
        "Deployment web/trustplane-authority",
        "NetworkPolicy web/trustplane-authority",
        "PodDisruptionBudget web/trustplane-authority",
        "Role web/trustplane-authority",
        "Role web/trustplane-authority-lease",
        "RoleBinding default/trustplane-authority-events",
        "Route web/trustplane-authority-join",
        "Route web/trustplane-authority-spiffe",
        "Route web/trustplane-authority-web",
        "Service web/trustplane-authority",
        "ServiceAccount web/trustplane-authority",
    ] {
        assert!(objects.contains_key(name), "{name}: {:?}", objects.keys());
    }
    for (name, object) in &objects {
        if name.contains("Binding ") && name.contains("trustplane-authority") {
            assert_eq!(object["subjects"][0]["namespace"], "web", "{name}");
        }
    }
    let policy = &objects["ValidatingAdmissionPolicy trustplane-spiffe-status"]["spec"];
    let variable = json!({ "name": "authorityNamespace", "expression": "'web'" });
    assert_eq!(policy["variables"][0], variable);
    let rule = &objects["FlowSchema trustplane-authority"]["spec"]["rules"][0];
    assert_eq!(rule["subjects"][0]["serviceAccount"]["namespace"], "web");
    let metrics = &objects["NetworkPolicy web/trustplane-authority"]["spec"]["ingress"][0];
    let from = &metrics["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(from, &json!(["prometheus"]));
}

#[test]
fn only_what_is_served_has_a_route_and_its_host_can_be_chosen() {
    let values = with(&[
        "authority.routes.enabled=true",
        "authority.routes.spiffeHost=spiffe.example.org",
        "authority.routes.webHost=bundle.example.org",
        "authority.routes.joinHost=join.example.org",
    ]);
    let join = "Route trustplane/trustplane-authority-join";
    let spiffe = "Route trustplane/trustplane-authority-spiffe";
    let web = "Route trustplane/trustplane-authority-web";
    let objects = rendered("trustplane", &values);
    assert_eq!(objects[spiffe]["spec"]["host"], "spiffe.example.org");
    assert!(!objects.contains_key(web) && !objects.contains_key(join));
    let both = ["authority.web.enabled=true", "authority.join.enabled=true"];
    let objects = rendered("trustplane", &[&values[..], &both].concat());
    assert_eq!(objects[web]["spec"]["host"], "bundle.example.org");
    assert_eq!(objects[join]["spec"]["host"], "join.example.org");
    for route in [spiffe, web, join] {
        assert_eq!(objects[route]["spec"]["tls"], json!({ "termination": "passthrough" }));
        let port = &objects[route]["spec"]["port"]["targetPort"];
        let ports = &objects["Service trustplane/trustplane-authority"]["spec"]["ports"];
        let ports = ports.as_array().expect("ports");
        assert!(ports.iter().any(|it| it["name"] == *port), "{port} of {ports:?}");
    }
}

#[test]
fn every_value_for_the_authority_reaches_its_pods_and_the_program_takes_it() {
    let values = with(&[
        "authority.replicas=3",
        "authority.web.enabled=true",
        "authority.web.secretName=bundle-tls",
        "authority.join.enabled=true",
        "authority.join.proxyProtocol=true",
        "authority.refreshHint=10m",
        "authority.caTtl=60d",
        "authority.svidTtl=2h",
        "authority.minSyncInterval=30s",
        "authority.extraArgs={--watch-timeout=30s}",
        "authority.resources.limits.memory=1Gi",
        "image.repository=registry.example.com/trustplane",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=pull",
        "nodeSelector.disk=ssd",
        "tolerations[0].key=infra",
        "affinity.nodeAffinity.any=thing",
        "priorityClassName=system-cluster-critical",
        "podAnnotations.some=thing",
    ]);
    let objects = rendered("trustplane", &values);
    let deployment = &objects[DEPLOYMENT];
    assert_eq!(deployment["spec"]["replicas"], 3);
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["some"], "thing");
    let pod = &template["spec"];
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "infra");
    assert_eq!(pod["affinity"]["nodeAffinity"]["any"], "thing");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "bundle-tls");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/trustplane:0.1.0");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"], json!({ "limits": { "memory": "1Gi" } }));
    let arguments = arguments(&objects, DEPLOYMENT);
    for argument in [
        "--trust-domain=td.example.org",
        "--refresh-hint=10m",
        "--ca-ttl=60d",
        "--svid-ttl=2h",
        "--min-sync-interval=30s",
        "--watch-timeout=30s",
        "--web-listen=[::]:8444",
    ] {
        assert!(arguments.iter().any(|it| it == argument), "{argument}: {arguments:?}");
    }
    // Asked for help, it reads the arguments before, and starts nothing.
    let mut program = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    output(program.args(&arguments).arg("--help")).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn nobody_can_join_unless_the_service_is_asked_for_and_addresses_are_believed_only_on_request() {
    let join = |argument: &String| argument.contains("join") || argument.contains("proxy");
    let of = |values: &[&str]| {
        let objects = rendered("trustplane", &with(values));
        let mut arguments = arguments(&objects, DEPLOYMENT);
        arguments.retain(join);
        arguments
    };
    let enabled = "authority.join.enabled=true";
    assert_eq!(of(&["authority.join.proxyProtocol=true"]), [""; 0]);
    assert_eq!(of(&[enabled]), ["--join-listen=[::]:8445"]);
    let proxied = of(&[enabled, "authority.join.proxyProtocol=true"]);
    assert_eq!(proxied, ["--join-listen=[::]:8445", "--proxy-protocol"]);
}

/// The container is hardened like the injector's; only names, arguments and ports differ.
#[test]
fn the_pods_of_the_authority_may_do_no_more_than_those_of_the_injector() {
    let pod = |folder: &str, name: &str| {
        let mut objects = objects(&kustomize(&at(folder)));
        objects.remove(name).expect("the Deployment")["spec"]["template"]["spec"].take()
    };
    let own = pod("deploy/authority", DEPLOYMENT);
    let other = pod("deploy/base", "Deployment trustplane/trustplane-inject");
    for field in ["securityContext", "terminationGracePeriodSeconds", "volumes", "hostNetwork"] {
        assert_eq!(own[field], other[field], "{field}");
    }
    for field in ["securityContext", "livenessProbe", "readinessProbe", "resources", "env"] {
        assert_eq!(own["containers"][0][field], other["containers"][0][field], "{field}");
    }
}

/// Of the trust domain that its name is.
pub fn federation() -> Value {
    json!({
        "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation",
        "metadata": { "name": "td-b.test" },
        "spec": { "bundleSource": { "static": { "bundle": "{\"keys\":[]}" } } },
    })
}

fn join_token() -> Value {
    json!({
        "apiVersion": "trustplane.dev/v1", "kind": "JoinToken", "metadata": { "name": "ci" },
        "spec": {
            "roles": ["Bot"], "botName": "deploy", "joinMethod": "spiffe", "maxUses": 3,
            "spiffe": { "allow": [{ "spiffeID": "spiffe://td-b.test/ci/*" }] },
        },
    })
}

/// The headings of a table of kubectl.
fn columns(shown: &str) -> Vec<&str> {
    let headings = shown.lines().next().unwrap_or_default().split("   ");
    headings.map(str::trim).filter(|it| !it.is_empty()).collect()
}

/// Gives a user a role in the whole cluster.
fn bind(cluster: &EmptyCluster, user: &str, role: &str) {
    let (role, user_flag) = (format!("--clusterrole={role}"), format!("--user={user}"));
    let bind = ["create", "clusterrolebinding", user, &role, &user_flag];
    cluster.kubectl(&bind).expect("a ClusterRoleBinding");
}

/// The verbs that a list of `kubectl auth can-i` has for a resource, in order.
fn verbs(listed: &str, resource: &str) -> String {
    let lines = listed.lines().filter(|line| line.split_whitespace().next() == Some(resource));
    let verbs = lines.filter_map(|line| line.trim_end().strip_suffix(']')?.rsplit_once('['));
    let verbs: BTreeSet<&str> = verbs.flat_map(|(_, verbs)| verbs.split_whitespace()).collect();
    verbs.into_iter().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_api_server_takes_it_twice_and_lets_the_authority_alone_write_a_status() {
    let cluster = EmptyCluster::start("authority").await;
    cluster.accepts(&kustomize(&at("crds")));
    cluster.accepts(&kustomize(&at("deploy/overlays/openshift")));
    for folder in ["deploy/authority/api", "deploy/authority", "deploy/authority/routes"] {
        cluster.accepts(&kustomize(&at(folder)));
    }
    cluster.apply(&federation());
    cluster.apply(&join_token());
    bind(&cluster, "ed", "trustplane-spiffe-editor");
    bind(&cluster, "vi", "trustplane-spiffe-viewer");

    let resources = ["spiffefederations", "jointokens"];
    let resources = resources.map(|it| [format!("{it}.{GROUP}"), format!("{it}.{GROUP}/status")]);
    let rights = |user: &str| {
        let listed = cluster.kubectl(&["auth", "can-i", "--list", "--no-headers", "--as", user]);
        let listed = listed.expect("rights can be listed");
        resources.as_flattened().iter().map(|it| verbs(&listed, it)).collect::<Vec<_>>()
    };
    let every = "create delete get list patch update watch";
    for (user, expected) in [
        ("ed", [every, "get", every, "get"]),
        ("vi", ["get list watch", "get", "get list watch", "get"]),
        ("nobody", [""; 4]),
        (ACCOUNT, ["get list watch", "patch", "get list watch", "patch"]),
    ] {
        // A binding is in force a moment after it was accepted.
        let expected = expected.map(str::to_owned).to_vec();
        eventually_equals(PATIENCE, user, expected, async || rights(user)).await;
    }

    let write = |object: [&str; 2], patch: &str, user: &[&str]| {
        let patch = ["--subresource=status", "--type=merge", "-p", patch];
        cluster.kubectl(&[&["patch"], &object[..], &patch, user].concat())
    };
    let write_status = |user: &[&str]| {
        write(["spiffefederation", "td-b.test"], r#"{"status":{"sequence":"7"}}"#, user)
    };
    let use_token = |user: &[&str]| write(["jointoken", "ci"], r#"{"status":{"uses":2}}"#, user);
    // A policy is in force a moment after it was accepted.
    let refusal = eventually(PATIENCE, "cluster-admin is refused", async || {
        let words = "may not write the status of SPIFFEFederation \"td-b.test\"";
        match write_status(&[]) {
            Err(why) if why.contains(words) => Ok(why),
            other => Err(other),
        }
    })
    .await;
    assert!(refusal.contains(&format!("so {ACCOUNT} alone writes it")), "{refusal}");
    let refusal = write_status(&["--as=ed"]).expect_err("no right");
    assert!(refusal.contains("cannot patch resource \"spiffefederations/status\""), "{refusal}");
    let refusal = use_token(&[]).expect_err("the policy covers both");
    assert!(refusal.contains("may not write the status of JoinToken \"ci\""), "{refusal}");
    assert!(refusal.contains("raise spec.maxUses"), "{refusal}");
    let refusal = use_token(&["--as=ed"]).expect_err("no right");
    assert!(refusal.contains("cannot patch resource \"jointokens/status\""), "{refusal}");
    // kubectl reads the status before it patches it, which the authority needs no right for.
    bind(&cluster, ACCOUNT, "trustplane-spiffe-viewer");
    eventually(PATIENCE, "the authority writes it", async || write_status(&["--as", ACCOUNT]))
        .await;
    use_token(&["--as", ACCOUNT]).expect("this, too");

    // The right to ask for a rotation is none to change what is published.
    let role = "--role=trustplane-spiffe-rotator";
    let rotator = ["-n", "trustplane", "create", "rolebinding", "ro", role, "--user=ro"];
    cluster.kubectl(&rotator).expect("a RoleBinding");
    for name in ["trustplane-bundle", "trustplane-authority-requests"] {
        let create = ["-n", "trustplane", "create", "configmap", name];
        cluster.kubectl(&create).expect("as the authority makes it");
    }
    let annotate = |name: &str| {
        let annotate = ["-n", "trustplane", "annotate", "configmap", name, "a=b", "--as=ro"];
        cluster.kubectl(&annotate)
    };
    eventually(PATIENCE, "they ask", async || annotate("trustplane-authority-requests")).await;
    let refusal = annotate("trustplane-bundle").expect_err("that is the authority's");
    assert!(refusal.contains("cannot patch resource \"configmaps\""), "{refusal}");

    // The spec is the editor's, the status stays what it was, and the columns tell of both.
    let keep = r#"{"metadata":{"labels":{"team":"a"}},"status":{"sequence":"8"}}"#;
    let patch = ["patch", "spiffefederation", "td-b.test", "--type=merge", "-p", keep, "--as=ed"];
    cluster.kubectl(&patch).expect("the editor changes it");
    let sequence = ["get", "spfed", "td-b.test", "-o=jsonpath={.status.sequence}", "--as=vi"];
    assert_eq!(cluster.kubectl(&sequence).as_deref(), Ok("7"));
    let shown = cluster.kubectl(&["get", "spfed", "--as=vi"]).expect("a table");
    let story =
        ["NAME", "TRUST DOMAIN", "TRUSTED", "SYNCED", "SEQUENCE", "LAST SYNC", "NEXT", "REASON"];
    assert_eq!(columns(&shown), story);
    let shown = cluster.kubectl(&["get", "jtok", "--as=vi"]).expect("a table");
    let story = ["NAME", "ROLES", "BOT", "USES", "MAX USES", "EXPIRES", "AGE"];
    assert_eq!(columns(&shown), story);
    let row: Vec<_> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..5], ["ci", "[\"Bot\"]", "deploy", "2", "3"], "{shown}");
    for object in [["spfed", "td-b.test"], ["jtok", "ci"]] {
        let delete = [&["delete"], &object[..], &["--as=ed"]].concat();
        cluster.kubectl(&delete).expect("the editor deletes it");
    }
}
