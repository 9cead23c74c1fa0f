//! What a SpireServer refers to: the Secret with the Route's certificate.

use kube::{Api, Client};

use crate::{
    api::{
        secret::{Secret, TLS_TYPE},
        spire_server::Federation,
    },
    federate::decide::{conditions::UnreadSecret, render, validate::Problem},
    k8s::api_error,
    tls,
};

const FIELD: &str = "spec.federation.bundleEndpoint.httpsWeb.servingCert.externalSecretRef";

/// Judges a fresh read of it.
pub async fn problems(
    client: &Client,
    namespace: &str,
    federation: Option<&Federation>,
) -> Result<Vec<Problem>, UnreadSecret> {
    let serving_cert = federation.and_then(render::serving_cert);
    let name = serving_cert.and_then(|it| it.external_secret_ref.as_deref());
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(Vec::new()) };
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = api_error::with_timeout(api.get_opt(name)).await;
    let why = match secret.map_err(|error| UnreadSecret { name: name.to_owned(), error })? {
        Some(secret) => judge(name, &secret),
        None => Some(format!("there is no Secret {name} in namespace {namespace}")),
    };
    Ok(why.into_iter().map(|why| Problem::new(FIELD, why)).collect())
}

fn judge(name: &str, secret: &Secret) -> Option<String> {
    if secret.kind != TLS_TYPE {
        return Some(format!("Secret {name} is of type {}, not {TLS_TYPE}", secret.kind));
    }
    let pair = tls::judge(secret.data.certificate.expose(), secret.data.key.expose());
    let problems = pair.err()?;
    let listed: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Some(format!("Secret {name}: {}", listed.join("; ")))
}
