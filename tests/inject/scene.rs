//! A namespace with a controller at work in it, and the questions that most tests ask.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Cluster, Controller, Namespace, Pair, SeenEvent, Writes, eventually, eventually_equals,
};
use trustplane::names::{INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION};

/// Generous: the machine is shared. What is fast enough is for the benchmarks to say.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// After so long without a write, the controller is taken to be through.
pub const SILENCE: Duration = Duration::from_millis(500);

pub struct Scene {
    pub ns: Namespace,
    pub controller: Controller,
}

impl Scene {
    /// A fresh namespace and a controller for it that is ready.
    pub async fn new(prefix: &str) -> Self {
        Self::with_flags(prefix, &["--secret-missing-grace", "1s"]).await
    }

    /// As `new`, with these flags in place of a short grace.
    pub async fn with_flags(prefix: &str, flags: &[&str]) -> Self {
        let ns = Cluster::get().await.namespace(prefix).await;
        let controller = Controller::start(&ns, flags).await;
        Self { ns, controller }
    }

    /// A controller that comes upon what `prepare` left.
    pub async fn after(prefix: &str, prepare: impl AsyncFnOnce(&Namespace)) -> Self {
        let ns = Cluster::get().await.namespace(prefix).await;
        prepare(&ns).await;
        let controller = Controller::start(&ns, &["--secret-missing-grace", "1s"]).await;
        Self { ns, controller }
    }

    /// Waits until the Route's condition says this, then until the controller rests.
    pub async fn settles(&self, route: &str, state: &str, reason: &str) -> Writes {
        let state = (state != "none").then(|| state.to_owned());
        let expected = Some((state, reason.to_owned()));
        eventually_equals(PATIENCE, "the Route's condition", expected, async || {
            self.ns.certificate_condition(route).await
        })
        .await;
        self.ns.quiet(SILENCE).await
    }

    /// As `settles`, where replicas renew a Lease all the time.
    pub async fn settles_objects(&self, route: &str, state: &str, reason: &str) -> Writes {
        let expected = Some((Some(state.to_owned()), reason.to_owned()));
        eventually_equals(PATIENCE, "the Route's condition", expected, async || {
            self.ns.certificate_condition(route).await
        })
        .await;
        self.ns.quiet_objects(SILENCE).await
    }

    /// Waits until exactly this pair stands in the Route.
    pub async fn holds(&self, route: &str, pair: &Pair) {
        eventually(PATIENCE, "the pair in the Route", async || {
            if self.ns.route_holds(route, pair).await {
                Ok(())
            } else {
                Err("another pair, or none")
            }
        })
        .await;
    }

    /// Waits for an Event with this reason.
    pub async fn event(&self, route: &str, reason: &str) -> SeenEvent {
        eventually(PATIENCE, reason, async || {
            let events = self.ns.events_of(route).await;
            events.iter().find(|event| event.reason == reason).cloned().ok_or(events)
        })
        .await
    }

    /// The reasons of all Events about a Route, oldest first.
    pub async fn reasons(&self, route: &str) -> Vec<String> {
        self.ns.events_of(route).await.into_iter().map(|event| event.reason).collect()
    }

    /// As a user annotates it.
    pub async fn annotate(&self, route: &str, secret: Option<&str>) {
        annotate(&self.ns, route, secret).await;
    }

    /// Stops the controller and starts another.
    pub async fn restart(&mut self, flags: &[&str]) {
        let (code, _) = self.controller.terminate().await;
        assert_eq!(code, 0, "SIGTERM ends it well");
        self.controller = Controller::start(&self.ns, flags).await;
    }
}

pub async fn annotate(ns: &Namespace, route: &str, secret: Option<&str>) {
    ns.patch_route(route, json!({"metadata": {"annotations": {SECRET_NAME_ANNOTATION: secret}}}))
        .await;
}

/// The note that we left in a Route.
pub fn note(route: &Value) -> Option<&str> {
    route["metadata"]["annotations"][INJECTED_ANNOTATION].as_str()
}

/// A Route without the fields that we may write and those that the API server keeps itself: what
/// must be the same before and after.
pub fn untouchable(mut route: Value) -> Value {
    if let Some(tls) = route["spec"]["tls"].as_object_mut() {
        tls.remove("certificate");
        tls.remove("key");
    }
    if let Some(status) = route["status"].as_object_mut() {
        status.remove("certificate");
    }
    if route["status"].as_object().is_none_or(|status| status.is_empty()) {
        route["status"] = Value::Null;
    }
    let metadata = route["metadata"].as_object_mut().expect("a Route has metadata");
    for kept_by_the_server in ["resourceVersion", "generation", "managedFields"] {
        metadata.remove(kept_by_the_server);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(INJECTED_ANNOTATION);
        annotations.remove(INJECTED_FROM_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    route
}
