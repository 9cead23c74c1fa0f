//! The Route CRD accepts what OpenShift accepts and refuses what it refuses, with a message that
//! says what to do. Each rule has an object of either kind.

use serde_json::Value;
use testkit::{Namespace, RouteFixture};

mod spec;
mod status;
mod tls;

/// Fields of a Route by JSON pointer, on top of [`RouteFixture::insecure`].
type Fields = Vec<(&'static str, Value)>;

/// Creates the Route, and returns what the server made of it.
async fn accepts(ns: &Namespace, name: &str, fields: Fields) -> Value {
    let created = route(name, fields).try_create(ns).await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{name}: {error}")))
        .expect("a Route is JSON")
}

/// Tries to create the Route, which the server must refuse with this message.
async fn refuses(ns: &Namespace, name: &str, fields: Fields, message: &str) {
    match route(name, fields).try_create(ns).await {
        Ok(_) => panic!("{name} was accepted"),
        Err(error) => assert!(error.to_string().contains(message), "{name}: {error}"),
    }
}

fn route(name: &str, fields: Fields) -> RouteFixture {
    fields
        .into_iter()
        .fold(RouteFixture::insecure(name), |route, (pointer, value)| route.with(pointer, value))
}

fn tls(value: Value) -> Fields {
    vec![("/spec/tls", value)]
}
