//! The only writer of this job: creates and updates objects, and writes the status.

use std::sync::Arc;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch},
};
use serde_json::{Value, json};

use crate::{
    api::spire_server::{SpireServer, SpireServerStatus},
    federate::decide::{
        conditions::{ApplyResult, Operation, SOMEBODY},
        merge,
        render::{Component, RenderContext, Rendered},
    },
    k8s::{
        api_error::{self, ApiError},
        client::{patch_params, post_params},
    },
    names::{ADOPT_ANNOTATION, FIELDS_ANNOTATION},
};

/// What may be done to existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Full,
    /// Only missing objects are created.
    CreateOnly,
}

/// A live object compared with the rendered one.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    Missing,
    Same(Value),
    /// `patch` is an RFC 7396 merge patch that makes it as rendered.
    Differs {
        live: Value,
        patch: Value,
    },
    /// Owned by somebody else.
    Taken(String),
    Deleting,
}

#[derive(Clone)]
pub struct Writer {
    client: Client,
    setting: Arc<RenderContext>,
    mode: Mode,
}

impl Writer {
    /// The client's gate decides whether writes are sent.
    pub fn new(client: Client, setting: Arc<RenderContext>, mode: Mode) -> Self {
        Self { client, setting, mode }
    }

    /// Creates the object, or updates it to match.
    pub async fn put(&self, rendered: &Rendered, owner: &str) -> ApplyResult {
        self.put_as(self.mode, rendered, owner).await
    }

    /// Creates the object if it is missing, and never changes it.
    pub async fn put_missing(&self, rendered: &Rendered, owner: &str) -> ApplyResult {
        self.put_as(Mode::CreateOnly, rendered, owner).await
    }

    async fn put_as(&self, mode: Mode, rendered: &Rendered, owner: &str) -> ApplyResult {
        let mut outcome = self.try_put(mode, rendered, owner).await;
        for _ in 0..2 {
            // Somebody else, most often Kubernetes itself, wrote in between.
            if matches!(outcome, Err((_, ApiError::Conflict))) {
                outcome = self.try_put(mode, rendered, owner).await;
            }
        }
        outcome.unwrap_or_else(|(doing, error)| ApplyResult::Failed(doing, error))
    }

    async fn try_put(
        &self,
        mode: Mode,
        rendered: &Rendered,
        owner: &str,
    ) -> Result<ApplyResult, (Operation, ApiError)> {
        let Rendered { part, object } = rendered;
        let api = self.api(*part);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let compared = self.compare(rendered, owner).await;
        let (live, patch) = match compared.map_err(|error| (Operation::Read, error))? {
            Comparison::Missing => {
                let created = self.create(*part, &api, object).await;
                return created.map_err(|error| (Operation::Create, error));
            }
            Comparison::Taken(other) => return Ok(ApplyResult::Taken(other)),
            // Writes to it now would be lost with it; it is created again once it is gone.
            Comparison::Deleting => return Err((Operation::Update, ApiError::Conflict)),
            Comparison::Same(live) => return Ok(ApplyResult::InPlace(live)),
            Comparison::Differs { live, patch } => (live, patch),
        };
        let fields = merge::named(&patch);
        match mode {
            // Only our own bookkeeping annotations differ.
            Mode::CreateOnly if fields.is_empty() => Ok(ApplyResult::InPlace(live)),
            Mode::CreateOnly => Ok(ApplyResult::OutOfStep(fields, live)),
            Mode::Full => {
                let (params, patch) = (patch_params(), Patch::Merge(patch));
                let patched = api_error::with_timeout(api.patch(name, &params, &patch)).await;
                let patched = patched.map_err(|error| (Operation::Update, error))?;
                if patched.metadata.resource_version.as_deref()
                    == live["metadata"]["resourceVersion"].as_str()
                {
                    // The API server considers both equal.
                    return Ok(ApplyResult::InPlace(live));
                }
                tracing::info!(object = %name, part = ?part, fields = %fields.join(", "), "changed");
                Ok(ApplyResult::Updated(fields, without_pair(json!(patched)).0))
            }
        }
    }

    /// Compares an object with a fresh read of it.
    pub async fn compare(&self, rendered: &Rendered, owner: &str) -> Result<Comparison, ApiError> {
        let Rendered { part, object } = rendered;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(live) = api_error::with_timeout(self.api(*part).get_opt(name)).await? else {
            return Ok(Comparison::Missing);
        };
        let (live, had_pair) = without_pair(json!(live));
        if let Some(other) = other_owner(&live, owner) {
            return Ok(Comparison::Taken(other));
        }
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Comparison::Deleting);
        }
        let Some(mut patch) = merge::patch(&live, object) else {
            return Ok(Comparison::Same(live));
        };
        if had_pair && object["spec"]["tls"]["termination"] == "passthrough" {
            // OpenShift refuses a passthrough Route that still holds a pair.
            patch["spec"]["tls"]["certificate"] = Value::Null;
            patch["spec"]["tls"]["key"] = Value::Null;
        }
        Ok(Comparison::Differs { live, patch })
    }

    async fn create(
        &self,
        part: Component,
        api: &Api<DynamicObject>,
        object: &Value,
    ) -> Result<ApplyResult, ApiError> {
        let name = &object["metadata"]["name"];
        let created = serde_json::from_value(merge::creation(object));
        let created: DynamicObject = created.map_err(|_| ApiError::Undecodable)?;
        match api_error::with_timeout(api.create(&post_params(), &created)).await {
            // Of what is to be created, only its namespace can be missing.
            Err(ApiError::NotFound) => {
                return Ok(ApplyResult::NoNamespace(self.setting.namespace.clone()));
            }
            created => created?,
        };
        tracing::info!(object = %name, ?part, "created");
        Ok(ApplyResult::Created)
    }

    /// Writes the status that was decided from this version of the SpireServer, and returns the object that the
    /// API server has then. Fails if the SpireServer changed since.
    pub async fn write_status(
        &self,
        server: &SpireServer,
        status: &SpireServerStatus,
    ) -> Result<SpireServer, ApiError> {
        let meta = &server.metadata;
        let mut patch = json!({
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
            "status": status,
        });
        // A merge patch keeps what it does not name.
        if let Some(federation) = &status.federation {
            let absent = [
                ("endpointUrl", federation.endpoint_url.is_none()),
                ("peersSummary", federation.peers_summary.is_none()),
            ];
            for (name, _) in absent.into_iter().filter(|(_, absent)| *absent) {
                patch["status"]["federation"][name] = Value::Null;
            }
        }
        let api: Api<SpireServer> = Api::all(self.client.clone());
        let name = meta.name.as_deref().unwrap_or_default();
        api_error::with_timeout(api.patch_status(name, &patch_params(), &Patch::Merge(patch))).await
    }

    fn api(&self, part: Component) -> Api<DynamicObject> {
        let resource = resource(part);
        if matches!(part, Component::ClusterRole | Component::ClusterRoleBinding) {
            return Api::all_with(self.client.clone(), &resource);
        }
        Api::namespaced_with(self.client.clone(), &self.setting.namespace, &resource)
    }
}

pub fn resource(part: Component) -> ApiResource {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let (group, kind, plural) = match part {
        Component::ServiceAccount => ("", "ServiceAccount", "serviceaccounts"),
        Component::ClusterRole => (RBAC, "ClusterRole", "clusterroles"),
        Component::ClusterRoleBinding => (RBAC, "ClusterRoleBinding", "clusterrolebindings"),
        Component::Role => (RBAC, "Role", "roles"),
        Component::RoleBinding => (RBAC, "RoleBinding", "rolebindings"),
        Component::BundleConfigMap
        | Component::ServerConfigMap
        | Component::ControllerManagerConfigMap
        | Component::PeersConfigMap => ("", "ConfigMap", "configmaps"),
        Component::Service => ("", "Service", "services"),
        Component::StatefulSet => ("apps", "StatefulSet", "statefulsets"),
        Component::Route => ("route.openshift.io", "Route", "routes"),
    };
    let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Removes the injector's certificate and key, and says whether there were any.
fn without_pair(mut live: Value) -> (Value, bool) {
    let tls = live.pointer_mut("/spec/tls").and_then(Value::as_object_mut);
    let had_pair = tls.is_some_and(|tls| {
        let taken = ["key", "certificate"].map(|field| tls.remove(field));
        taken.iter().any(Option::is_some)
    });
    (live, had_pair)
}

/// The owner, if it is not this SpireServer. An earlier SpireServer of the same name is another owner:
/// the garbage collector is about to delete its objects.
fn other_owner(live: &Value, owner: &str) -> Option<String> {
    let meta = &live["metadata"];
    let owners = meta["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(other) = owners.iter().find(|it| it["controller"] == true && it["uid"] != owner) {
        let [kind, name] = ["kind", "name"].map(|field| other[field].as_str().unwrap_or("?"));
        return Some(format!("{kind} {name}"));
    }
    let annotations = &meta["annotations"];
    let ours = owners.iter().any(|it| it["uid"] == owner)
        || annotations[FIELDS_ANNOTATION].is_string()
        || annotations[ADOPT_ANNOTATION] == "true";
    (!ours).then(|| SOMEBODY.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_in_the_route_is_let_go_as_soon_as_it_is_read() {
        let live = json!({ "spec": { "host": "a", "tls": { "termination": "reencrypt", "key": "PRIVATE", "certificate": "PEM" } } });
        let expected = json!({ "spec": { "host": "a", "tls": { "termination": "reencrypt" } } });
        assert_eq!(without_pair(live), (expected, true));
    }

    #[test]
    fn an_object_that_another_controller_owns_is_left_to_it() {
        let owned = |uid: &str| json!({ "metadata": { "ownerReferences": [{ "kind": "Tenant", "name": "a", "uid": uid, "controller": true }] } });
        assert_eq!(other_owner(&owned("2"), "1"), Some("Tenant a".to_owned()));
        assert_eq!(other_owner(&owned("1"), "1"), None);
    }

    #[test]
    fn an_object_that_a_person_made_is_taken_over_only_where_they_say_so() {
        let with = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
        assert_eq!(other_owner(&json!({ "metadata": {} }), "1"), Some(SOMEBODY.to_owned()));
        assert_eq!(other_owner(&with(json!({ ADOPT_ANNOTATION: "true" })), "1"), None);
        assert_eq!(other_owner(&with(json!({ FIELDS_ANNOTATION: "{}" })), "1"), None);
    }
}
