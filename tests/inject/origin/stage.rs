//! A namespace on either API server, a controller at work in it, and what a user sees of a Route.

use std::time::Duration;

use serde_json::Value;
use testkit::{
    Controller, Launch, Namespace, Pair, RouteFixture, SecretFixture, SeenEvent, TestServer,
    eventually_equals, pair,
};

use crate::scene::{PATIENCE, annotate};

/// Short, so that the cases are: what a grace is good for is tested elsewhere.
const GRACE: &str = "200ms";
/// Long enough for a turn that is under way to come to its write.
const A_TURN: Duration = Duration::from_millis(200);

pub struct Stage {
    pub ns: Namespace,
    _controller: Controller,
}

/// The fields of a Route that a user sees.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    pair: Held,
    /// Type and reason.
    condition: String,
    /// Type and reason, oldest first, with how often where that is more than once.
    events: Vec<String>,
}

/// No keys: it is printed when a case fails.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    WhatIsExpected,
    SomethingElse,
}

impl Stage {
    /// A fresh namespace with a controller.
    pub async fn on(server: &TestServer) -> Self {
        Self::with(server.namespace("origin").await, &[]).await
    }

    /// A namespace with a controller that serves others too.
    pub async fn with(ns: Namespace, others: &[&Namespace]) -> Self {
        let mut launch = Launch::within(&ns).flags(&["--secret-missing-grace", GRACE]);
        for other in others {
            launch = launch.flags(&["--namespace", other.name()]);
        }
        let mut controller = launch.start();
        controller.ready().await;
        Self { ns, _controller: controller }
    }

    pub async fn annotate(&self, route: &str, secret: Option<&str>) {
        annotate(&self.ns, route, secret).await;
    }

    /// Waits until the Route holds this pair, or none, and says this in its condition and Events.
    pub async fn shows(
        &self,
        route: &str,
        pair: impl Into<Option<&Pair>>,
        condition: &str,
        events: &[&str],
    ) {
        shows(&self.ns, route, pair, condition, events).await;
    }

    /// Other fields of `spec.tls`.
    pub async fn tls_but_the_pair(&self, route: &str) -> Value {
        let mut tls = self.ns.route(route).await["spec"]["tls"].take();
        for held in ["certificate", "key"] {
            tls.as_object_mut().expect("the Route is secured").remove(held);
        }
        tls
    }

    /// Waits until the controller has seen all that happened to Routes and Secrets before.
    pub async fn is_caught_up(&self) {
        RouteFixture::edge("last").annotated("last-tls").create(&self.ns).await;
        self.shows("last", None, "Default SecretNotFound", &["Warning SecretNotFound"]).await;
        let last = pair::issued("last.example.com");
        // Its watch is apart from the Routes'.
        SecretFixture::tls("last-tls", &last).create(&self.ns).await;
        let events = ["Warning SecretNotFound", "Normal CertificateInjected"];
        self.shows("last", &last, "Managed SecretInjected", &events).await;
        tokio::time::sleep(A_TURN).await;
    }
}

/// As [`Stage::shows`], in any namespace.
pub async fn shows(
    ns: &Namespace,
    route: &str,
    pair: impl Into<Option<&Pair>>,
    condition: &str,
    events: &[&str],
) {
    let pair = pair.into();
    let expected = Seen {
        pair: if pair.is_some() { Held::WhatIsExpected } else { Held::Nothing },
        condition: condition.to_owned(),
        events: events.iter().map(|&event| event.to_owned()).collect(),
    };
    let look = async || Seen::of(ns, route, pair).await;
    eventually_equals(PATIENCE, &format!("Route {route}"), expected, look).await;
}

impl Seen {
    async fn of(ns: &Namespace, route: &str, expected: Option<&Pair>) -> Self {
        let (certificate, key) = ns.pair_in_route(route).await;
        let pair = match expected {
            _ if certificate.is_empty() && key.is_empty() => Held::Nothing,
            Some(pair) if certificate == pair.certificate && key == pair.key => {
                Held::WhatIsExpected
            }
            _ => Held::SomethingElse,
        };
        let condition = match ns.certificate_condition(route).await {
            Some((state, reason)) => format!("{} {reason}", state.as_deref().unwrap_or("none")),
            None => "no condition".to_owned(),
        };
        let events = ns.events_of(route).await.iter().map(event_text).collect();
        Self { pair, condition, events }
    }
}

fn event_text(event: &SeenEvent) -> String {
    let SeenEvent { kind, reason, count, .. } = event;
    if *count == 1 { format!("{kind} {reason}") } else { format!("{kind} {reason} x{count}") }
}

/// resourceVersion of an object.
pub fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().expect("objects have a version").to_owned()
}
