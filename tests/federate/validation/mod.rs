//! Every rule of the SpireServer CRD has objects that keep it and objects that break it, and says
//! what to do. The sandbox judges as the real API server does.

use serde_json::{Value, json};

use crate::only::{Turn, minimal};

mod bounds;
mod changes;
mod endpoint;
mod judged;
mod manual;
mod peers;
mod server;

/// A rule for an object.
struct Rule {
    keep: Vec<Value>,
    broken: Vec<Value>,
    says: &'static str,
}

/// A rule about one field: values that it may have, and values that it may not.
fn rule(
    about: impl Fn(Value) -> Value,
    keep: impl IntoIterator<Item = Value>,
    broken: impl IntoIterator<Item = Value>,
    says: &'static str,
) -> Rule {
    Rule {
        keep: keep.into_iter().map(&about).collect(),
        broken: broken.into_iter().map(&about).collect(),
        says,
    }
}

async fn judge(turn: &Turn, rules: &[Rule]) {
    for rule in rules {
        assert!(!rule.keep.is_empty() && !rule.broken.is_empty(), "{}", rule.says);
        for object in &rule.keep {
            turn.would_create(object)
                .await
                .unwrap_or_else(|why| panic!("refused: {object}\n{why}"));
        }
        for object in &rule.broken {
            let why = turn
                .would_create(object)
                .await
                .map_or_else(|why| why, |_| panic!("accepted: {object}"));
            assert!(why.contains(rule.says), "{object}\n{why}\nshould say: {}", rule.says);
        }
    }
}

/// [`minimal`] with another value at a JSON pointer below its spec. Objects on the way are made.
fn spec(pointer: &'static str) -> impl Fn(Value) -> Value {
    move |value| with(minimal(), &format!("/spec{pointer}"), value)
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let place = pointer.split('/').skip(1).fold(&mut object, |place, name| &mut place[name]);
    *place = value;
    object
}

fn without(mut object: Value, pointer: &str) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    parent.remove(name).expect("it was there");
    object
}

/// With a bundle endpoint of the usual profile.
fn federated() -> Value {
    with(minimal(), "/spec/federation", json!({ "bundleEndpoint": { "profile": "https_spiffe" } }))
}

/// With a bundle endpoint of the profile https_web.
fn web(https_web: Value) -> Value {
    let endpoint = json!({ "profile": "https_web", "httpsWeb": https_web });
    with(minimal(), "/spec/federation", json!({ "bundleEndpoint": endpoint }))
}

fn acme() -> Value {
    json!({ "directoryUrl": "https://acme.example.com/directory", "domainName": "federation.a.example.com", "email": "admin@example.com" })
}

fn peer(trust_domain: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": format!("https://federation.{trust_domain}"),
        "bundleEndpointProfile": "https_spiffe",
        "endpointSpiffeId": format!("spiffe://{trust_domain}/spire/server"),
    })
}

fn with_peers(peers: impl IntoIterator<Item = Value>) -> Value {
    let peers: Vec<Value> = peers.into_iter().collect();
    with(federated(), "/spec/federation/federatesWith", json!(peers))
}
