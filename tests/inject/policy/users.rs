//! Ordinary users: real tokens, and the rights that a Role of their namespace gives them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{Access, Namespace, RouteFixture, eventually_equals};
use trustplane::names::SECRET_NAME_ANNOTATION;

/// The right to do everything with Routes, their certificates on OpenShift excepted.
pub fn edit_routes() -> Value {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    json!({ "apiGroups": ["route.openshift.io"], "resources": ["routes"], "verbs": verbs })
}

/// The right that OpenShift asks for where a certificate is written into a Route.
pub fn create_custom_hosts() -> Value {
    json!({ "apiGroups": ["route.openshift.io"], "resources": ["routes/custom-host"], "verbs": ["create"] })
}

/// The right to read one Secret.
pub fn get_secret(name: &str) -> Value {
    json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"] })
}

/// The right that a router has.
pub fn write_status() -> Value {
    json!({ "apiGroups": ["route.openshift.io"], "resources": ["routes/status"], "verbs": ["update", "patch"] })
}

/// A change to the annotation alone.
pub fn annotation(secret: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { SECRET_NAME_ANNOTATION: secret } } })
}

/// A ServiceAccount of a namespace, with a Role of its own there and nothing else.
pub struct Person {
    /// As the API server names them.
    pub user: String,
    pub access: Access,
    name: String,
    namespace: String,
    client: Client,
    admin: Client,
}

/// The refusal of the server; none if it accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

/// Whether a change was made. Never the object: it may hold a key.
pub type Answer = Result<(), Refusal>;

impl Person {
    /// Makes an account with these rules, and waits until they are in force.
    pub async fn new(ns: &Namespace, name: &str, rules: &[Value]) -> Self {
        let admin = ns.client().clone();
        create::<ServiceAccount>(&admin, ns.name(), json!({ "metadata": { "name": name } })).await;
        let metadata = json!({ "name": name });
        create::<Role>(&admin, ns.name(), json!({ "metadata": metadata, "rules": rules })).await;
        let binding = json!({
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": ns.name() }],
        });
        create::<RoleBinding>(&admin, ns.name(), binding).await;
        let cluster = ns.cluster();
        let token = cluster.token_of(ns.name(), name).await;
        let access = cluster.admin_access().with_token(token);
        let person = Self {
            user: format!("system:serviceaccount:{}:{name}", ns.name()),
            client: access.client_without_retries().await,
            access,
            name: name.to_owned(),
            namespace: ns.name().to_owned(),
            admin,
        };
        for rule in rules {
            person.until_allowed(rule, true).await;
        }
        person
    }

    /// The same account at work in another namespace, where somebody has given it rights.
    pub async fn in_namespace(self, namespace: &str) -> Self {
        let there = Self { namespace: namespace.to_owned(), ..self };
        there.until_allowed(&edit_routes(), true).await;
        there.until_allowed(&create_custom_hosts(), true).await;
        there
    }

    /// Takes all rights away.
    pub async fn revoke(&self) {
        let roles: Api<Role> = Api::namespaced(self.admin.clone(), &self.namespace);
        let rules = roles.get(&self.name).await.expect("the Role is there").rules;
        let bindings: Api<RoleBinding> = Api::namespaced(self.admin.clone(), &self.namespace);
        let gone = bindings.delete(&self.name, &DeleteParams::default()).await;
        gone.expect("the binding is deleted");
        for rule in rules.unwrap_or_default() {
            self.until_allowed(&json!(rule), false).await;
        }
    }

    /// Whether they may do this, in all namespaces where none is given.
    pub async fn may(&self, attributes: Value) -> bool {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": { "user": self.user, "resourceAttributes": attributes },
        });
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .expect("a request");
        let answer: Value = self.admin.request(request).await.expect("the review is answered");
        answer["status"]["allowed"] == true
    }

    /// The API server notices a Role a moment after it has accepted it.
    async fn until_allowed(&self, rule: &Value, expected: bool) {
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "namespace": self.namespace,
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][0],
            "name": rule["resourceNames"][0].as_str().unwrap_or_default(),
        });
        eventually_equals(Duration::from_secs(30), "a Role in force", expected, async || {
            self.may(attributes.clone()).await
        })
        .await;
    }

    pub async fn create(&self, route: &RouteFixture) -> Answer {
        self.create_as(route, PostParams::default()).await
    }

    pub async fn try_to_create(&self, route: &RouteFixture) -> Answer {
        self.create_as(route, PostParams { dry_run: true, ..PostParams::default() }).await
    }

    async fn create_as(&self, route: &RouteFixture, params: PostParams) -> Answer {
        answer(self.routes().create(&params, &object(route.json())).await)
    }

    /// A merge patch, as `kubectl annotate` sends it.
    pub async fn patch(&self, name: &str, change: Value) -> Answer {
        let params = PatchParams::default();
        answer(self.routes().patch(name, &params, &Patch::Merge(change)).await)
    }

    pub async fn annotate(&self, name: &str, secret: Option<&str>) -> Answer {
        self.patch(name, annotation(secret)).await
    }

    /// A JSON patch.
    pub async fn edit(&self, name: &str, operations: Value) -> Answer {
        let operations = serde_json::from_value(operations).expect("a JSON patch");
        let patch = Patch::Json::<()>(operations);
        answer(self.routes().patch(name, &PatchParams::default(), &patch).await)
    }

    /// Reads the whole Route, changes it and puts it back.
    pub async fn replace(&self, name: &str, change: impl FnOnce(&mut Value)) -> Answer {
        let route = self.routes().get(name).await.expect("the Route can be read");
        let mut route = serde_json::to_value(route).expect("a Route is JSON");
        change(&mut route);
        answer(self.routes().replace(name, &PostParams::default(), &object(&route)).await)
    }

    /// A server-side apply, as GitOps tools send it.
    pub async fn apply(&self, name: &str, route: &RouteFixture) -> Answer {
        let params = PatchParams::apply(&self.name).force();
        answer(self.routes().patch(name, &params, &Patch::Apply(object(route.json()))).await)
    }

    pub async fn patch_status(&self, name: &str, change: Value) -> Answer {
        let params = PatchParams::default();
        answer(self.routes().patch_status(name, &params, &Patch::Merge(change)).await)
    }

    pub async fn delete(&self, name: &str) {
        let deleted = self.routes().delete(name, &DeleteParams::default()).await;
        deleted.expect("the Route is deleted");
    }

    /// Their client, for what is not said here.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn routes(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

async fn create<K>(client: &Client, namespace: &str, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of this kind");
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &object).await.expect("it is accepted");
}

fn object(route: &Value) -> DynamicObject {
    serde_json::from_value(route.clone()).expect("a Route is an object")
}

fn answer<T>(answer: kube::Result<T>) -> Answer {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(Refusal {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        }),
        Err(_) => panic!("the API server did not answer"),
    }
}
