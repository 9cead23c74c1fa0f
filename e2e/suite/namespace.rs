//! A namespace of one case: what its user does there, and what is seen afterwards.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::{Pair, RouteFixture, SecretFixture, eventually};
use trustplane::k8s::api_error::{self, ApiError};
use trustplane::names::{INJECT_REPORTER, SECRET_NAME_ANNOTATION};

use super::observation::{Expected, Observations, Seen, is_admitted};
use super::world::World;

/// Generous: the machine is shared. Times are for the table to tell.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for a turn that is under way to come to its write.
const A_TURN: Duration = Duration::from_millis(300);

pub struct CaseNamespace {
    pub world: Arc<World>,
    pub name: String,
    pub sights: Observations,
}

impl CaseNamespace {
    /// A fresh namespace.
    pub async fn new(world: Arc<World>, sights: Observations) -> Self {
        let name = world.make_namespace().await.expect("the namespace is accepted");
        Self { world, name, sights }
    }

    /// A host that no other case has.
    pub fn host(&self, label: &str) -> String {
        let ours = self.name.trim_start_matches("trustplane-e2e-");
        format!("{label}.{ours}.{}", self.world.domain)
    }

    /// Its Routes, with every field that the server has.
    pub fn routes(&self) -> Api<DynamicObject> {
        self.routes_as(self.world.client.clone())
    }

    /// Its Routes, as somebody else sees them.
    pub fn routes_as(&self, client: Client) -> Api<DynamicObject> {
        self.objects(client, "route.openshift.io", "v1", "Route")
    }

    /// Any objects of it.
    pub fn objects(
        &self,
        client: Client,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(client, &self.name, &ApiResource::from_gvk(&kind))
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// An edge Route to be created, with a host of this place.
    pub fn edge(&self, name: &str) -> RouteFixture {
        RouteFixture::edge(name).host(&self.host(name))
    }

    /// Creates any object, and returns what the server made of it.
    pub async fn create(&self, api: &Api<DynamicObject>, object: Value) -> DynamicObject {
        let object = serde_json::from_value(object).expect("an object");
        api_error::with_timeout(api.create(&PostParams::default(), &object))
            .await
            .expect("it is accepted")
    }

    /// Creates a Route.
    pub async fn route(&self, route: &RouteFixture) -> DynamicObject {
        self.create(&self.routes(), route.json().clone()).await
    }

    /// Creates a Secret.
    pub async fn secret(&self, secret: SecretFixture) -> Secret {
        let (secrets, secret) = (self.secrets(), secret.secret());
        let created =
            api_error::with_timeout(secrets.create(&PostParams::default(), &secret)).await;
        created.expect("the Secret is accepted")
    }

    /// Creates a TLS Secret.
    pub async fn tls(&self, name: &str, pair: &Pair) -> Secret {
        self.secret(SecretFixture::tls(name, pair)).await
    }

    /// Puts another pair into a TLS Secret.
    pub async fn renew(&self, name: &str, pair: &Pair) {
        self.try_renew(name, pair).await.expect("the Secret is accepted");
    }

    /// Puts another pair into a TLS Secret, if the API server can be reached.
    pub async fn try_renew(&self, name: &str, pair: &Pair) -> Result<(), ApiError> {
        let (secrets, secret) = (self.secrets(), SecretFixture::tls(name, pair).secret());
        api_error::with_timeout(secrets.replace(name, &PostParams::default(), &secret))
            .await
            .map(drop)
    }

    pub async fn delete_secret(&self, name: &str) {
        let secrets = self.secrets();
        let deleted = api_error::with_timeout(secrets.delete(name, &DeleteParams::default())).await;
        deleted.expect("the Secret is deleted");
    }

    /// Changes a Route with a merge patch.
    pub async fn patch_route(&self, name: &str, patch: Value) -> DynamicObject {
        let (routes, patch) = (self.routes(), Patch::Merge(patch));
        let patched =
            api_error::with_timeout(routes.patch(name, &PatchParams::default(), &patch)).await;
        patched.expect("the patch is accepted")
    }

    /// Sets or removes the annotation.
    pub async fn annotate(&self, route: &str, secret: Option<&str>) {
        self.patch_route(route, annotation(secret)).await;
    }

    /// A Route as JSON.
    pub async fn look_up(&self, route: &str) -> Value {
        let route =
            api_error::with_timeout(self.routes().get(route)).await.expect("the Route is there");
        serde_json::to_value(route).expect("a Route is JSON")
    }

    /// resourceVersion of a Route.
    pub async fn version(&self, route: &str) -> String {
        let version = &self.look_up(route).await["metadata"]["resourceVersion"];
        version.as_str().expect("objects have a version").to_owned()
    }

    /// Puts a label on a Secret.
    pub async fn label_secret(&self, name: &str, label: &str, value: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
        let secrets = self.secrets();
        let patched =
            api_error::with_timeout(secrets.patch(name, &PatchParams::default(), &patch)).await;
        patched.expect("the label is accepted");
    }

    /// Waits until a router has looked at a Route. Returns whether it admits it.
    pub async fn is_admitted(&self, route: &str) -> bool {
        eventually(PATIENCE, &format!("a router's verdict on Route {route}"), async || {
            let route = self.look_up(route).await;
            let judged = route["status"]["ingress"][0]["conditions"].is_array();
            if judged { Ok(is_admitted(&route)) } else { Err("none") }
        })
        .await
    }

    /// Events of the injector about a Route, oldest first.
    pub async fn events_of(&self, route: &str) -> Vec<Event> {
        let mut events = self.events().await;
        events.retain(|event| {
            event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(route)
        });
        events
    }

    /// Events of the injector in this namespace, oldest first.
    pub async fn events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.world.client.clone(), &self.name);
        let listed = api_error::with_timeout(api.list(&ListParams::default())).await;
        let mut events = listed.expect("Events are listed").items;
        events.retain(|event| event.reporting_controller.as_deref() == Some(INJECT_REPORTER));
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        events
    }

    /// Waits until a client of the Route's host is served this, and the Route is admitted and says
    /// this in its condition and its Events.
    pub async fn shows<'a>(
        &self,
        route: &str,
        expected: impl Into<Expected<'a>>,
        condition: &str,
        events: &[&str],
    ) {
        self.shows_at(route, &self.host(route), expected, condition, events).await;
    }

    /// As [`CaseNamespace::shows`], for a client who asks for another host.
    pub async fn shows_at<'a>(
        &self,
        route: &str,
        host: &str,
        expected: impl Into<Expected<'a>>,
        condition: &str,
        events: &[&str],
    ) {
        let expected = expected.into();
        let wanted = Seen::wanted(self, &expected, condition, events);
        let what = format!("Route {route} of {}, host {host}: {wanted:#?}", self.name);
        let sight = eventually(PATIENCE, &what, async || {
            let (seen, sight) = Seen::of(self, route, host, &expected).await;
            if seen == wanted { Ok(sight) } else { Err(seen) }
        })
        .await;
        self.sights.add(sight);
    }

    /// Waits until the injector has seen all that happened to Routes and Secrets here before.
    pub async fn is_caught_up(&self, pair: &Pair) {
        let last = RouteFixture::edge("last").host(&self.host("last")).annotated("last-tls");
        self.route(&last).await;
        self.injector_says("last", "SecretNotFound").await;
        // Its watch is apart from the Routes'.
        self.tls("last-tls", pair).await;
        self.injector_says("last", "CertificateInjected").await;
        tokio::time::sleep(A_TURN).await;
    }

    async fn injector_says(&self, route: &str, reason: &str) {
        eventually(PATIENCE, &format!("Event {reason} of Route {route}"), async || {
            let events = self.events_of(route).await;
            let said = events.iter().any(|event| event.reason.as_deref() == Some(reason));
            if said { Ok(()) } else { Err(format!("{} other Events", events.len())) }
        })
        .await;
    }
}

/// A merge patch of the annotation.
pub fn annotation(secret: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { SECRET_NAME_ANNOTATION: secret } } })
}

/// resourceVersion of an object.
pub fn version(route: &DynamicObject) -> String {
    route.metadata.resource_version.clone().expect("objects have a version")
}
