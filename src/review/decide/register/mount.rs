//! Whether the Pods see a cluster's credential, and how they come to see it.

use serde_json::{Value, json};

/// The volume of the Deployment that has the credentials of all clusters.
const VOLUME: &str = "clusters";

/// The Secret with a cluster's CA and first credential.
pub fn secret_name(cluster: &str) -> String {
    format!("trustplane-review-cluster-{cluster}")
}

/// What kubectl has to patch in the Deployment so that its Pods see the credential. None if they do, or if the
/// Deployment is not made as ours is.
pub fn patch(deployment: &Value, cluster: &str) -> Option<Value> {
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array()?;
    let sources = |volume: &Value| volume["projected"]["sources"].as_array().cloned();
    let name = secret_name(cluster);
    let is_ours = |source: &Value| source["secret"]["name"] == *name;
    if volumes.iter().filter_map(sources).flatten().any(|source| is_ours(&source)) {
        return None;
    }
    let at = volumes.iter().position(|it| it["name"] == VOLUME && it["projected"].is_object())?;
    let source = json!({ "secret": {
        "name": name,
        "optional": true,
        "items": [
            { "key": "ca.crt", "path": format!("{cluster}/ca.crt") },
            { "key": "token", "path": format!("{cluster}/token") },
        ],
    } });
    let list = format!("/spec/template/spec/volumes/{at}/projected/sources");
    // An empty list is not there at all.
    Some(match sources(&volumes[at]).is_some_and(|all| !all.is_empty()) {
        true => json!([{ "op": "add", "path": format!("{list}/-"), "value": source }]),
        false => json!([{ "op": "add", "path": list, "value": [source] }]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is shipped.
    fn deployment() -> Value {
        let manifest = include_str!("../../../../deploy/review/deployment.yaml");
        serde_saphyr::from_str(manifest).unwrap()
    }

    #[test]
    fn a_deployment_that_shows_its_pods_no_credential_of_the_cluster_is_to_be_patched() {
        let mut deployment = deployment();
        let first = patch(&deployment, "b").unwrap();
        assert_eq!(first[0]["path"], "/spec/template/spec/volumes/2/projected/sources");
        let volume = &mut deployment["spec"]["template"]["spec"]["volumes"][2];
        volume["projected"]["sources"] = first[0]["value"].clone();
        assert_eq!(patch(&deployment, "b"), None);
        let second = patch(&deployment, "c").unwrap();
        assert_eq!(second[0]["path"], "/spec/template/spec/volumes/2/projected/sources/-");
        assert_eq!(second[0]["value"]["secret"]["name"], "trustplane-review-cluster-c");
    }

    #[test]
    fn of_a_deployment_that_is_made_otherwise_nothing_is_said() {
        let mut deployment = deployment();
        deployment["spec"]["template"]["spec"]["volumes"][2]["name"] = json!("others");
        assert_eq!(patch(&deployment, "b"), None);
        assert_eq!(patch(&json!({}), "b"), None);
    }
}
