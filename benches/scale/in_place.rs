//! Checks that every Route holds the pair of its Secret: a successful patch may have been the wrong
//! one.

use std::collections::HashMap;

use anyhow::ensure;
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::Client;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    population::{NAMESPACES, Size, namespace, routes_path, secrets_path},
    requests::get,
};

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Route {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    tls: Tls,
}

#[derive(Deserialize)]
struct Tls {
    certificate: Option<String>,
    key: Option<String>,
}

#[derive(Deserialize)]
struct Secret {
    metadata: Metadata,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "tls.crt")]
    certificate: String,
    #[serde(rename = "tls.key")]
    key: String,
}

pub async fn everything_is_in_place(client: &Client, size: Size) -> anyhow::Result<()> {
    let mut right = 0;
    for namespace in (0..NAMESPACES).map(namespace) {
        let tls = format!("{}?fieldSelector=type=kubernetes.io/tls", secrets_path(&namespace));
        let secrets: Vec<Secret> = list(client, &tls).await?;
        let secrets: HashMap<String, Data> =
            secrets.into_iter().map(|secret| (secret.metadata.name, secret.data)).collect();
        let routes: Vec<Route> = list(client, &routes_path(&namespace)).await?;
        let holds = |route: &&Route| {
            let secret = secrets.get(&format!("{}-tls", route.metadata.name));
            secret.is_some_and(|secret| is_of(&route.spec.tls, secret))
        };
        right += routes.iter().filter(holds).count();
    }
    let all = size.routes;
    ensure!(right == all, "only {right} of {all} Routes hold the pair of their Secret");
    Ok(())
}

async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Vec<T>> {
    Ok(get::<List<T>>(client, path).await?.items)
}

fn is_of(tls: &Tls, secret: &Data) -> bool {
    let same = |text: &Option<String>, encoded: &str| {
        text.as_ref().is_some_and(|text| STANDARD.encode(text) == encoded)
    };
    same(&tls.certificate, &secret.certificate) && same(&tls.key, &secret.key)
}
