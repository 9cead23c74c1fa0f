//! A namespace of one test, and its objects.

use k8s_openapi::api::core::v1::{self as core, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::audit::Writes;
use crate::cluster::{Cluster, in_own_runtime, until_allowed};
use crate::pair::Pair;
use crate::suite;
use crate::test_server::TestServer;

/// A namespace with an administrator's clients. When dropped, its Events are written to the suite's
/// folder; the namespace stays, because no controller would finish its deletion.
pub struct Namespace {
    server: TestServer,
    client: Client,
    name: String,
}

/// The True condition in `.status.certificate` and its reason.
pub type CertificateState = (Option<String>, String);

/// The fields of an Event that a user sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEvent {
    pub reason: String,
    /// Normal or Warning.
    pub kind: String,
    pub note: String,
    /// How often it was seen: 1 without a series.
    pub count: i32,
    pub reporter: String,
}

impl Namespace {
    pub(crate) async fn create(server: TestServer, prefix: &str) -> Self {
        let client = server.admin().await;
        let name = format!("{prefix}-{}", suite::next_number());
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let namespace: core::Namespace = serde_json::from_value(namespace).expect("a namespace");
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .expect("the namespace is accepted");
        Self { server, client, name }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its API server.
    pub fn server(&self) -> &TestServer {
        &self.server
    }

    pub fn cluster(&self) -> &Cluster {
        match &self.server {
            TestServer::Real(cluster) => cluster,
            TestServer::Sandbox(_) => panic!("the sandbox has no roles and no audit log"),
        }
    }

    /// An administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its Routes, with all fields.
    pub fn routes(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
        Api::namespaced_with(self.client.clone(), &self.name, &ApiResource::from_gvk(&kind))
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// A Route as JSON.
    pub async fn route(&self, name: &str) -> Value {
        let route =
            self.routes().get(name).await.unwrap_or_else(|error| panic!("Route {name}: {error}"));
        serde_json::to_value(route).expect("a Route is JSON")
    }

    /// Certificate and key of a Route; empty if absent.
    pub async fn pair_in_route(&self, name: &str) -> (String, String) {
        let route = self.route(name).await;
        let text =
            |field: &str| route["spec"]["tls"][field].as_str().unwrap_or_default().to_owned();
        (text("certificate"), text("key"))
    }

    /// Whether a Route holds exactly this pair.
    pub async fn route_holds(&self, name: &str, pair: &Pair) -> bool {
        self.pair_in_route(name).await == (pair.certificate.clone(), pair.key.clone())
    }

    /// State and reason in `.status.certificate` of a Route. `None` if there is no such field, or
    /// more than one type is True.
    pub async fn certificate_condition(&self, name: &str) -> Option<CertificateState> {
        certificate_condition(&self.route(name).await)
    }

    /// Changes a Route with a merge patch, as its user.
    pub async fn patch_route(&self, name: &str, patch: Value) -> Value {
        let patched =
            self.routes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        serde_json::to_value(patched.expect("the patch is accepted")).expect("a Route is JSON")
    }

    /// Changes a Route's status with a merge patch, as a router.
    pub async fn patch_route_status(&self, name: &str, patch: Value) -> Value {
        let patched =
            self.routes().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        serde_json::to_value(patched.expect("the patch is accepted")).expect("a Route is JSON")
    }

    /// Writes a Route's whole status, as OpenShift's router does from a type that knows only `ingress`.
    pub async fn replace_route_status(&self, name: &str, status: Value) -> Value {
        let mut route = self.routes().get(name).await.expect("the Route exists");
        route.data["status"] = status;
        let replaced = self.routes().replace_status(name, &PostParams::default(), &route).await;
        serde_json::to_value(replaced.expect("the status is accepted")).expect("a Route is JSON")
    }

    /// Changes a Secret with a merge patch.
    pub async fn patch_secret(&self, name: &str, patch: Value) {
        let patched =
            self.secrets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("the patch is accepted");
    }

    pub async fn delete_secret(&self, name: &str) {
        self.secrets().delete(name, &DeleteParams::default()).await.expect("the Secret is deleted");
    }

    /// The Events about an object, oldest first.
    pub async fn events_of(&self, name: &str) -> Vec<SeenEvent> {
        let mut events = events_in(&self.client, &self.name).await.expect("Events can be listed");
        events.retain(|event| {
            event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name)
        });
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        events.into_iter().map(SeenEvent::from).collect()
    }

    /// Writes of our account to this namespace so far.
    pub fn writes(&self) -> Writes {
        self.cluster().audit().writes_by_account(&self.name)
    }

    /// Waits until our account has written nothing here for `silence`. Returns all its writes.
    pub async fn quiet(&self, silence: std::time::Duration) -> Writes {
        self.cluster().audit().wait_quiet(&self.name, silence).await
    }

    /// Like `quiet`, for the user's objects only, because Leases are renewed all the time.
    pub async fn quiet_objects(&self, silence: std::time::Duration) -> Writes {
        let (mut seen, mut since) = (self.writes().to_objects().len(), std::time::Instant::now());
        while since.elapsed() < silence {
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
            let now = self.writes().to_objects().len();
            if now != seen {
                (seen, since) = (now, std::time::Instant::now());
            }
        }
        self.writes().to_objects()
    }

    /// Lets our account use a Lease here, with the Role of deploy/base.
    pub async fn allow_leases(&self) {
        for kind in ["Role", "RoleBinding"] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
                "rbac.authorization.k8s.io",
                "v1",
                kind,
            ));
            let ours: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), "trustplane", &resource);
            let here: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &self.name, &resource);
            let deployed =
                ours.get("trustplane-inject-lease").await.expect("deploy/base is applied");
            let copy = DynamicObject::new("trustplane-inject-lease", &resource).data(deployed.data);
            here.create(&PostParams::default(), &copy).await.expect("the copy is accepted");
        }
        let create = json!({ "group": "coordination.k8s.io", "resource": "leases", "verb": "create", "namespace": self.name });
        until_allowed(&self.client, &create).await;
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // On another runtime, because the test's own may be ending and drop can't await.
        let dump = std::thread::spawn(move || {
            let events = in_own_runtime(async { events_in(&server.admin().await, &name).await });
            if let Ok(events) = events {
                let text = serde_json::to_string_pretty(&events).unwrap_or_default();
                suite::write_private(
                    &suite::subfolder("events").join(format!("{name}.json")),
                    &text,
                );
            }
        });
        let _ = dump.join();
    }
}

async fn events_in(client: &Client, namespace: &str) -> kube::Result<Vec<Event>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    Ok(events.list(&ListParams::default()).await?.items)
}

/// State and reason in `.status.certificate` of this Route.
pub fn certificate_condition(route: &Value) -> Option<CertificateState> {
    let conditions = route["status"]["certificate"].as_array()?;
    let text =
        |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let mut served = conditions.iter().filter(|condition| condition["status"] == "True");
    match (served.next(), served.next()) {
        (None, _) => Some((None, text(conditions.first()?, "reason"))),
        (Some(one), None) => Some((Some(text(one, "type")), text(one, "reason"))),
        (Some(_), Some(_)) => None,
    }
}

impl From<Event> for SeenEvent {
    fn from(event: Event) -> Self {
        Self {
            reason: event.reason.unwrap_or_default(),
            kind: event.type_.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
            count: event.series.map_or(1, |series| series.count),
            reporter: event.reporting_controller.unwrap_or_default(),
        }
    }
}
