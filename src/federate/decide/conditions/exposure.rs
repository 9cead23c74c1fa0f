//! How other clusters reach the bundle endpoint: its Route, and what answers there.

use serde_json::Value;

use super::{ApplyResult, ConditionValue, Findings, Operation, no_namespace, taken};
use crate::{
    api::spire_server::{Condition, SpireServer},
    federate::decide::{
        endpoint_view::EndpointView,
        render::{self, Component},
    },
    runtime::printable::printable,
};

pub const ROUTE: &str = "RouteAvailable";
pub const ENDPOINT: &str = "EndpointReachable";

/// None without federation: there is no Route.
pub(super) fn route(server: &SpireServer, findings: &Findings) -> Option<ConditionValue> {
    let federation = server.spec.federation.as_ref()?;
    let about = |status, reason, message: &str| ConditionValue::new(ROUTE, status, reason, message);
    if !federation.manages_route() {
        let message = "managedRoute is \"false\": whoever set it exposes the bundle endpoint, and we do not look";
        return Some(about("Unknown", "ManagedRouteDisabled", message));
    }
    if findings.host.is_none() {
        let message = "nobody knows the domain for the Route's host, and this is no OpenShift that could tell. Set spec.federation.routeHost, or start trustplane federate with --apps-domain";
        return Some(about("False", "FederationRouteHostUnknown", message));
    }
    Some(match findings.outcome(Component::Route)? {
        ApplyResult::Created => admission(&Value::Null, "FederationRouteCreated"),
        ApplyResult::Updated(_, live) => admission(live, "FederationRouteUpdated"),
        ApplyResult::InPlace(live) | ApplyResult::OutOfStep(_, live) => {
            admission(live, existing_reason(server))
        }
        ApplyResult::Taken(owner) => {
            about("False", "FederationRouteTaken", &taken(Component::Route, owner))
        }
        ApplyResult::NoNamespace(namespace) => {
            about("False", "NoNamespace", &no_namespace(Component::Route, namespace))
        }
        ApplyResult::Failed(doing, error) => {
            let reason = match doing {
                Operation::Read => "FederationRouteRetrievalFailed",
                Operation::Create => "FederationRouteCreationFailed",
                Operation::Update => "FederationRouteUpdateFailed",
            };
            about("False", reason, &format!("Route {}: {error}", render::ROUTE))
        }
    })
}

/// A reason of an earlier write is kept: changing it would be another write.
fn existing_reason(server: &SpireServer) -> &'static str {
    match existing_condition(server, ROUTE).map(|it| &*it.reason) {
        Some("FederationRouteCreated") => "FederationRouteCreated",
        Some("FederationRouteUpdated") => "FederationRouteUpdated",
        _ => "RouteAvailable",
    }
}

fn existing_condition<'a>(server: &'a SpireServer, about: &str) -> Option<&'a Condition> {
    server.status.conditions.iter().find(|it| it.r#type == about)
}

/// From the status that routers write.
fn admission(route: &Value, reason: &'static str) -> ConditionValue {
    if is_admitted(route) {
        return ConditionValue::new(ROUTE, "True", reason, "");
    }
    let ingress = ingress(route);
    let refusals: Vec<_> = ingress.iter().filter_map(refusal).collect();
    if !refusals.is_empty() && refusals.len() == ingress.len() {
        let message = refusals.join("; ");
        return ConditionValue::new(ROUTE, "False", "FederationRouteNotAdmitted", message);
    }
    let message = "no router has admitted it yet. Where that lasts: does a router run, and does it serve Routes of this namespace?";
    ConditionValue::new(ROUTE, "Unknown", reason, message)
}

/// Whether any router serves the Route by its current host.
pub fn is_admitted(route: &Value) -> bool {
    let host = &route["spec"]["host"];
    ingress(route).iter().any(|it| {
        let current = it["host"].is_null() || it["host"] == *host;
        current && condition(it).is_some_and(|it| it["status"] == "True")
    })
}

fn ingress(route: &Value) -> &[Value] {
    let ingress = route.pointer("/status/ingress").and_then(Value::as_array);
    ingress.map(Vec::as_slice).unwrap_or_default()
}

fn condition(ingress: &Value) -> Option<&Value> {
    ingress["conditions"].as_array()?.iter().find(|it| it["type"] == "Admitted")
}

fn refusal(ingress: &Value) -> Option<String> {
    let refused = condition(ingress).filter(|it| it["status"] == "False")?;
    Some(format!(
        "router {} does not serve it: {}",
        printable(ingress["routerName"].as_str().unwrap_or("(without a name)")),
        printable(refused["message"].as_str().unwrap_or("it does not say why")),
    ))
}

/// Whether the status reports this address.
fn is_reported(server: &SpireServer, url: &str) -> bool {
    let reported = server.status.federation.as_ref().and_then(|it| it.endpoint_url.as_deref());
    reported == Some(url)
}

/// What a peer would see at our endpoint.
pub(super) fn endpoint(server: &SpireServer, findings: &Findings) -> Option<ConditionValue> {
    let about =
        |status, reason, message: &str| ConditionValue::new(ENDPOINT, status, reason, message);
    Some(match findings.endpoint.as_ref()? {
        EndpointView::Waiting(why) => about("Unknown", "EndpointNotAsked", why),
        // The finding of an earlier process is kept until this one has polled.
        EndpointView::NotAsked(url) => {
            match existing_condition(server, ENDPOINT).filter(|_| is_reported(server, url)) {
                Some(it) if it.status == "True" => about("True", "EndpointServesBundle", ""),
                Some(it) if it.status == "False" => about("False", "EndpointFails", &it.message),
                Some(it) if it.reason == "EndpointNotReached" => {
                    about("Unknown", "EndpointNotReached", &it.message)
                }
                _ => about("Unknown", "EndpointNotAsked", "it was not asked yet"),
            }
        }
        EndpointView::Answered(_, Ok(())) => about("True", "EndpointServesBundle", ""),
        EndpointView::Answered(url, Err(error)) if error.is_conclusive() => {
            about("False", "EndpointFails", &format!("{url}: {error}"))
        }
        EndpointView::Answered(url, Err(error)) => {
            let message = format!(
                "{url} cannot be judged from inside this cluster: {error}. Peers may reach it all the same: ask it from outside with curl"
            );
            about("Unknown", "EndpointNotReached", &message)
        }
    })
}
