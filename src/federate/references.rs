//! What a SpireServer refers to: the Secret with the Route's certificate.

use kube::{Api, Client};

use super::{render, validate::Problem};
use crate::{
    api::{
        secret::{Secret, TLS_TYPE},
        spire_server::Federation,
    },
    kit::call,
    tls,
};

const FIELD: &str = "spec.federation.bundleEndpoint.httpsWeb.servingCert.externalSecretRef";

/// What is wrong with it, from a read of this moment.
pub async fn problems(
    client: &Client,
    namespace: &str,
    federation: Option<&Federation>,
) -> Vec<Problem> {
    let serving_cert = federation.and_then(render::serving_cert);
    let name = serving_cert.and_then(|it| it.external_secret_ref.as_deref());
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Vec::new() };
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let problem = |why: String| vec![Problem::new(FIELD, why)];
    match call::bounded(api.get_opt(name)).await {
        Ok(Some(secret)) => judge(name, &secret).map_or_else(Vec::new, problem),
        Ok(None) => problem(format!("there is no Secret {name} in namespace {namespace}")),
        Err(error) => problem(format!("Secret {name} could not be read: {error}")),
    }
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
