//! What is read of a Deployment and of a ConfigMap.

use serde_json::{Value, json};

use super::*;

const CONFIG: &str = "\
clusters:
  local: {issuer: https://kubernetes.default.svc}
  b: {issuer: https://b, api_server: https://b:6443, token_path: /etc/trustplane/clusters/b/token}
  c: {issuer: https://c, api_server: https://c:6443, ca_cert: /etc/trustplane/clusters/c/ca.crt, \
token_path: /etc/trustplane/clusters/c/token}
";

/// The Pods of deploy/review, with these clusters.
fn pod(clusters: &[&str]) -> PodSpec {
    let deployment = include_str!("../../../deploy/review/deployment.yaml");
    let mut deployment: Value = serde_saphyr::from_str(deployment).unwrap();
    let sources = clusters.iter().map(|name| {
        let item = |key: &str| json!({ "key": key, "path": format!("{name}/{key}") });
        let items = ["ca.crt", "token"].map(item);
        json!({ "secret": { "name": format!("trustplane-review-cluster-{name}"), "items": items } })
    });
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["volumes"][2]["projected"]["sources"] = sources.collect();
    serde_json::from_value(pod.take()).unwrap()
}

fn found(data: Value, pod: &PodSpec) -> ConfigurationFound {
    let config_map: ConfigMap = serde_json::from_value(json!({ "data": data })).unwrap();
    ConfigurationFound::read("clusters", Some(&config_map), pod)
}

#[test]
fn the_configuration_is_that_of_the_config_map_which_the_pods_mount() {
    let mut pod = pod(&[]);
    assert_eq!(mounts::config_map(&pod, CONFIG_KEY), Some(REVIEW_CONFIG_MAP));
    let volumes = pod.volumes.as_mut().unwrap();
    volumes[0].config_map.as_mut().unwrap().name = "clusters".to_owned();
    assert_eq!(mounts::config_map(&pod, CONFIG_KEY), Some("clusters"));
    pod.containers[0].args = Some(vec!["review".to_owned()]);
    assert_eq!(mounts::config_map(&pod, CONFIG_KEY), None);
}

#[test]
fn a_cluster_whose_files_no_volume_brings_is_named() {
    let of = |clusters: &[&str]| found(json!({ CONFIG_KEY: CONFIG }), &pod(clusters)).unmounted;
    assert_eq!(of(&["b", "c"]), [""; 0]);
    assert_eq!(of(&["b"]), ["c"]);
    assert_eq!(of(&[]), ["b", "c"]);

    // A volume of another kind may hold anything.
    let mut other = pod(&[]);
    other.volumes.as_mut().unwrap()[2].projected = None;
    assert_eq!(found(json!({ CONFIG_KEY: CONFIG }), &other).unmounted, [""; 0]);
    other.containers[0].volume_mounts = None;
    assert_eq!(found(json!({ CONFIG_KEY: CONFIG }), &other).unmounted, ["b", "c"]);
}

#[test]
fn a_configuration_that_is_missing_and_one_with_faults_are_told_apart() {
    let pod = pod(&[]);
    assert_eq!(ConfigurationFound::read("clusters", None, &pod).read, None);
    assert_eq!(found(json!({ "other.yaml": CONFIG }), &pod).read, None);
    let faults = found(json!({ CONFIG_KEY: "clusters: {}" }), &pod).read.unwrap().unwrap_err();
    assert_eq!(faults[0].line, 1);
    let config = found(json!({ CONFIG_KEY: CONFIG }), &pod).read.unwrap().unwrap();
    assert_eq!(config.clusters.len(), 3);
}

#[test]
fn the_status_of_each_cluster_is_read_by_itself_and_what_is_new_in_it_is_passed_over() {
    let now = "2030-06-15T12:00:00Z".parse().unwrap();
    let well = json!({
        "reachable": true, "keys": 2, "credential": { "from": "secret", "expires": now },
        "invented": { "later": 1 },
    });
    let ill = json!({
        "reachable": false, "keys": 0, "outage": { "since": now, "error": "HTTP 503" },
        "problems": [{ "reason": "NoCredential", "text": "there is no token" }],
    });
    let data = json!({ "a": well.to_string(), "b": ill.to_string(), "c": "no JSON" });
    let config_map = serde_json::from_value(json!({ "data": data })).unwrap();
    let clusters = StatusFound::read(&config_map, now).clusters;
    let (a, b) = (clusters["a"].as_ref().unwrap(), clusters["b"].as_ref().unwrap());
    assert!(a.reachable && a.outage.is_none() && a.problems.is_empty());
    assert_eq!(a.credential.as_ref().unwrap().expires, Some(now));
    assert!(!b.reachable && b.credential.is_none());
    assert_eq!(
        (&*b.outage.as_ref().unwrap().error, &*b.problems[0].reason),
        ("HTTP 503", "NoCredential")
    );
    assert_eq!(clusters["c"], None);
}
