//! Operations of users, cert-manager, GitOps tools and routers on Routes and Secrets.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use trustplane::names::{INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION};

use crate::{
    faults::Watched,
    journal::Actor,
    pool::{Content, HOSTS, pool},
    world::World,
};

/// One of four Routes; the third is in another namespace than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteId(pub u8);

/// One of three Secrets in each namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SecretId(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Edge,
    Reencrypt,
    Passthrough,
    Plain,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Nothing,
    /// Restarts the first replica's process.
    Restart,
    CreateRoute(RouteId, Shape, Option<SecretId>),
    DeleteRoute(RouteId),
    RecreateRoute(RouteId, Option<SecretId>),
    /// From a backup: with its pair and its marker, but another uid.
    RestoreRoute(RouteId),
    Annotate(RouteId, Option<SecretId>),
    AnnotateBadly(RouteId),
    /// Removes both annotations, so that the pair is the user's own.
    Detach(RouteId),
    StripMarker(RouteId),
    ForgeMarker(RouteId),
    /// Writes a pair with its marker, as an earlier version with laxer rules may have done.
    FitMarker(RouteId, Content),
    /// The same, and the injected-from annotation still names the Secret's version.
    FitSource(RouteId, Content),
    SetPair(RouteId, Content),
    DropPair(RouteId),
    DropCertificate(RouteId),
    Terminate(RouteId, Shape),
    SetExternal(RouteId),
    DropExternal(RouteId),
    /// Sets the Route's own caCertificate: the CA that signed the pairs, or another.
    SetAuthority(RouteId, Option<Authority>),
    OwnByIngress(RouteId),
    Disown(RouteId),
    Label(RouteId),
    ChangeHost(RouteId),
    /// Deleted, but kept by a finalizer.
    DeleteSlowly(RouteId),
    FinishDeletion(RouteId),
    /// The GitOps tool applies its manifest.
    Reapply(RouteId),
    /// The same twice a second for a while.
    Fight(RouteId, Duration),
    /// The router writes its status and drops fields that it does not know.
    Admit(RouteId),
    PutSecret(RouteId, SecretId, Content),
    DeleteSecret(RouteId, SecretId),
    RecreateSecret(RouteId, SecretId, Content),
    LabelSecret(RouteId, SecretId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    Ours,
    Stranger,
}

impl RouteId {
    pub const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    pub fn namespace(self) -> &'static str {
        if self.0 == 2 { "ops" } else { "web" }
    }

    fn collection(self) -> String {
        format!("/apis/route.openshift.io/v1/namespaces/{}/routes", self.namespace())
    }

    fn name(self) -> String {
        format!("route-{}", self.0)
    }

    fn path(self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }

    fn manifest(self, shape: Shape, secret: Option<SecretId>) -> Value {
        let mut route = json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": { "name": self.name(), "namespace": self.namespace() },
            "spec": { "host": HOSTS[0], "to": { "kind": "Service", "name": "shop", "weight": 100 } },
        });
        if let Some(secret) = secret {
            route["metadata"]["annotations"] = json!({ SECRET_NAME_ANNOTATION: secret.name() });
        }
        if shape != Shape::Plain {
            route["spec"]["tls"] = shape.tls();
        }
        route
    }
}

impl Shape {
    fn tls(self) -> Value {
        match self {
            Self::Plain => Value::Null,
            Self::Edge => json!({
                "termination": "edge", "insecureEdgeTerminationPolicy": "Redirect",
            }),
            Self::Reencrypt => json!({
                "termination": "reencrypt", "destinationCACertificate": pool().stranger,
            }),
            Self::Passthrough => json!({ "termination": "passthrough" }),
        }
    }
}

impl SecretId {
    pub fn name(self) -> String {
        format!("tls-{}", self.0)
    }

    fn path(self, route: RouteId) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", route.namespace(), self.name())
    }

    fn manifest(self, route: RouteId, content: Content) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": content.kind(),
            "metadata": { "name": self.name(), "namespace": route.namespace() },
            "data": content.data(),
        })
    }
}

impl World {
    /// Sends the operation's requests as its usual actor, and ignores refusals.
    pub fn perform(self: &Arc<Self>, op: &Op) {
        use Actor::{CertManager, GitOps, Router, User};
        match *op {
            Op::Nothing => {}
            Op::Restart => self.crash(0),
            Op::CreateRoute(route, shape, secret) => {
                self.post(User, &route.collection(), route.manifest(shape, secret));
            }
            Op::DeleteRoute(route) => self.delete(User, &route.path()),
            Op::RecreateRoute(route, secret) => {
                self.delete(User, &route.path());
                self.post(User, &route.collection(), route.manifest(Shape::Edge, secret));
            }
            Op::RestoreRoute(route) => self.restore(route),
            Op::Annotate(route, secret) => {
                let name = secret.map(SecretId::name);
                self.annotate(route, json!({ SECRET_NAME_ANNOTATION: name }));
            }
            Op::AnnotateBadly(route) => {
                self.annotate(route, json!({ SECRET_NAME_ANNOTATION: "no/name" }));
            }
            Op::Detach(route) => self.annotate(
                route,
                json!({ SECRET_NAME_ANNOTATION: null, INJECTED_ANNOTATION: null }),
            ),
            Op::StripMarker(route) => self.annotate(route, json!({ INJECTED_ANNOTATION: null })),
            Op::ForgeMarker(route) => {
                let forged = format!("v1:{}:{}", "0".repeat(64), "f".repeat(64));
                self.annotate(route, json!({ INJECTED_ANNOTATION: forged }));
            }
            Op::FitMarker(route, content) => self.fit(route, content, false),
            Op::FitSource(route, content) => self.fit(route, content, true),
            Op::SetPair(route, content) => {
                let (certificate, key) = content.texts();
                self.tls(route, json!({ "certificate": certificate, "key": key }));
            }
            Op::DropPair(route) => self.tls(route, json!({ "certificate": null, "key": null })),
            Op::DropCertificate(route) => self.tls(route, json!({ "certificate": null })),
            Op::Terminate(route, shape) => self.terminate(route, shape),
            Op::SetExternal(route) => self
                .tls(route, json!({ "certificate": null, "externalCertificate": { "name": "x" } })),
            Op::DropExternal(route) => self.tls(route, json!({ "externalCertificate": null })),
            Op::SetAuthority(route, authority) => {
                let text = authority.map(|authority| match authority {
                    Authority::Ours => &pool().authority,
                    Authority::Stranger => &pool().stranger,
                });
                self.tls(route, json!({ "caCertificate": text }));
            }
            Op::OwnByIngress(route) => self.owned(route, true),
            Op::Disown(route) => self.owned(route, false),
            Op::Label(route) => self.label(&route.path()),
            Op::ChangeHost(route) => {
                let host = HOSTS[self.roll(HOSTS.len())];
                self.merge(User, &route.path(), json!({ "spec": { "host": host } }));
            }
            Op::DeleteSlowly(route) => {
                let finalizers = json!({ "metadata": { "finalizers": ["example.com/slow"] } });
                self.merge(User, &route.path(), finalizers);
                self.delete(User, &route.path());
            }
            Op::FinishDeletion(route) => {
                self.merge(User, &route.path(), json!({ "metadata": { "finalizers": null } }));
            }
            Op::Reapply(route) => self.reapply(GitOps, route),
            Op::Fight(route, lasts) => self.fight(route, lasts),
            Op::Admit(route) => self.admit(Router, route),
            Op::PutSecret(route, secret, content) => {
                self.put_secret(CertManager, route, secret, content)
            }
            Op::DeleteSecret(route, secret) => self.delete(User, &secret.path(route)),
            Op::RecreateSecret(route, secret, content) => {
                self.delete(CertManager, &secret.path(route));
                self.put_secret(CertManager, route, secret, content);
            }
            Op::LabelSecret(route, secret) => self.label(&secret.path(route)),
        }
    }

    fn post(&self, actor: Actor, path: &str, object: Value) {
        self.act(actor, Method::POST, path, &object);
    }

    fn merge(&self, actor: Actor, path: &str, patch: Value) {
        self.act(actor, Method::PATCH, path, &patch);
    }

    fn delete(&self, actor: Actor, path: &str) {
        self.act(actor, Method::DELETE, path, &Value::Null);
    }

    fn read(&self, path: &str) -> Option<Value> {
        let (code, object) = self.act(Actor::User, Method::GET, path, &Value::Null);
        (code == 200).then_some(object)
    }

    fn annotate(&self, route: RouteId, annotations: Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.merge(Actor::User, &route.path(), patch);
    }

    fn tls(&self, route: RouteId, tls: Value) {
        self.merge(Actor::User, &route.path(), json!({ "spec": { "tls": tls } }));
    }

    fn label(&self, path: &str) {
        let value = self.roll(1_000_000).to_string();
        self.merge(Actor::User, path, json!({ "metadata": { "labels": { "touched": value } } }));
    }

    /// Changes a label of an object that arrived damaged, so that the watch delivers it again.
    pub fn touch(&self, watched: Watched, object: &Value) {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let path = if watched == Watched::Secrets {
            format!("/api/v1/namespaces/{namespace}/secrets/{name}")
        } else {
            format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes/{name}")
        };
        self.label(&path);
    }

    fn fit(&self, route: RouteId, content: Content, keeps_source: bool) {
        let Some(current) = self.read(&route.path()) else { return };
        let (certificate, key) = content.texts();
        let marker = testkit::route_table::marker(
            current["metadata"]["uid"].as_str().unwrap_or_default(),
            certificate,
            key,
        );
        let source = current["metadata"]["annotations"][INJECTED_FROM_ANNOTATION].as_str();
        let source = source
            .filter(|_| keeps_source)
            .and_then(|source| Some(format!("{}:{}", source.rsplit_once(':')?.0, &marker[3..19])));
        let annotations = json!({ INJECTED_ANNOTATION: marker, INJECTED_FROM_ANNOTATION: source });
        let tls = json!({ "certificate": certificate, "key": key });
        let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "tls": tls } });
        self.merge(Actor::User, &route.path(), patch);
    }

    fn owned(&self, route: RouteId, owned: bool) {
        let owner = json!([{
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "shop",
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true,
        }]);
        let owners = if owned { owner } else { Value::Null };
        self.merge(
            Actor::User,
            &route.path(),
            json!({ "metadata": { "ownerReferences": owners } }),
        );
    }

    fn terminate(&self, route: RouteId, shape: Shape) {
        // A merge patch would keep fields that the new termination forbids.
        let Some(mut current) = self.read(&route.path()) else { return };
        current["spec"]["tls"] = shape.tls();
        if shape == Shape::Plain {
            current["spec"].as_object_mut().map(|spec| spec.remove("tls"));
        }
        self.act(Actor::User, Method::PUT, &route.path(), &current);
    }

    fn restore(&self, route: RouteId) {
        let Some(mut current) = self.read(&route.path()) else { return };
        if let Some(metadata) = current["metadata"].as_object_mut() {
            metadata
                .retain(|name, _| ["name", "namespace", "annotations"].contains(&name.as_str()));
        }
        self.delete(Actor::User, &route.path());
        self.post(Actor::User, &route.collection(), current);
    }

    /// Restores spec and annotations of its manifest, which has none of ours.
    fn reapply(&self, actor: Actor, route: RouteId) {
        let Some(mut current) = self.read(&route.path()) else { return };
        if let Some(tls) = current["spec"]["tls"].as_object_mut() {
            tls.remove("certificate");
            tls.remove("key");
        }
        if let Some(annotations) = current["metadata"]["annotations"].as_object_mut() {
            annotations.remove(INJECTED_ANNOTATION);
            annotations.remove(INJECTED_FROM_ANNOTATION);
        }
        self.act(actor, Method::PUT, &route.path(), &current);
    }

    fn fight(self: &Arc<Self>, route: RouteId, lasts: Duration) {
        let world = self.clone();
        let until = tokio::time::Instant::now() + lasts;
        self.background(async move {
            while tokio::time::Instant::now() < until {
                sleep(Duration::from_millis(500)).await;
                world.reapply(Actor::GitOps, route);
            }
        });
    }

    fn admit(&self, actor: Actor, route: RouteId) {
        let Some(mut current) = self.read(&route.path()) else { return };
        let number = self.roll(1_000_000);
        current["status"] = json!({ "ingress": [{
            "host": HOSTS[0], "routerName": format!("router-{number}"), "wildcardPolicy": "None",
        }] });
        self.act(actor, Method::PUT, &format!("{}/status", route.path()), &current);
    }

    fn put_secret(&self, actor: Actor, route: RouteId, secret: SecretId, content: Content) {
        let path = secret.path(route);
        match self.read(&path) {
            Some(current) if current["type"] == content.kind() => {
                self.merge(actor, &path, json!({ "data": content.data() }));
                return;
            }
            // A Secret's type is immutable.
            Some(_) => self.delete(actor, &path),
            None => {}
        }
        let collection = format!("/api/v1/namespaces/{}/secrets", route.namespace());
        self.post(actor, &collection, secret.manifest(route, content));
    }
}
