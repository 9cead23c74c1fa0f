//! The steps of the tour, in order.

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, Utc};
use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};

use super::{HOST, NAMESPACE, ROUTE, SECRET, expect::Expected};
use crate::{
    demo::{
        authority::{Authority, Issued},
        certificate_summary::CertificateSummary,
    },
    inject::decide::state::{Reason, State},
    k8s::api_error::{self, ApiError},
    names::SECRET_NAME_ANNOTATION,
};

pub struct Step {
    pub title: &'static str,
    pub commands: &'static [&'static str],
    pub act: Act,
    pub expected: Expected,
}

pub struct Pairs {
    first: Issued,
    renewed: Issued,
}

impl Pairs {
    /// Issues the pairs, from a CA that is not kept.
    pub fn new(now: DateTime<Utc>) -> Result<Self, rcgen::Error> {
        let authority = Authority::new("demo CA", now)?;
        Ok(Self { first: authority.issue(&[HOST], now)?, renewed: authority.issue(&[HOST], now)? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Creates the namespace and the Route.
    CreateRoute,
    /// Creates the Secret with the first pair, and annotates the Route.
    Annotate,
    /// Writes the renewed pair to the Secret.
    Renew,
    DeleteSecret,
    /// Creates the Secret again.
    CreateSecret,
    /// Writes a key to the Secret that does not belong to the certificate.
    WrongKey,
    /// Writes the right key again.
    RightKey,
    RemoveAnnotation,
}

pub fn all(pairs: &Pairs, default: &CertificateSummary) -> Vec<Step> {
    let step = |title, commands, act, certificate: &CertificateSummary, condition, event| {
        let expected = Expected { sha256: certificate.sha256.clone(), condition, event };
        Step { title, commands, act, expected }
    };
    let (first, renewed) =
        (CertificateSummary::of(&pairs.first.der), CertificateSummary::of(&pairs.renewed.der));
    let managed = (State::Managed, Reason::SecretInjected);
    vec![
        step(
            "A Route without a certificate is served with the default one",
            &["kubectl create namespace shop", "kubectl apply -f route.yaml"],
            Act::CreateRoute,
            default,
            (State::Default, Reason::NoCertificate),
            None,
        ),
        step(
            "Annotated, it is served with the certificate of the Secret",
            &[
                "kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key",
                "kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls",
            ],
            Act::Annotate,
            &first,
            managed,
            Some(Reason::CertificateInjected),
        ),
        step(
            "The Secret is renewed, and the new certificate is served",
            &[
                "kubectl -n shop create secret tls shop-tls --cert=new.crt --key=new.key --dry-run=client -o yaml | kubectl replace -f -",
            ],
            Act::Renew,
            &renewed,
            managed,
            Some(Reason::CertificateUpdated),
        ),
        step(
            "The Secret is deleted: after a grace period the default certificate is served",
            &["kubectl -n shop delete secret shop-tls"],
            Act::DeleteSecret,
            default,
            (State::Default, Reason::SecretNotFound),
            Some(Reason::SecretNotFound),
        ),
        step(
            "The Secret is back, and so is its certificate",
            &["kubectl -n shop create secret tls shop-tls --cert=new.crt --key=new.key"],
            Act::CreateSecret,
            &renewed,
            managed,
            Some(Reason::CertificateInjected),
        ),
        step(
            "A key that does not match the certificate is refused, with the reason",
            &[r#"kubectl -n shop patch secret shop-tls -p '{"data":{"tls.key":"..."}}'"#],
            Act::WrongKey,
            default,
            (State::Default, Reason::SecretInvalid),
            Some(Reason::SecretInvalid),
        ),
        step(
            "The right key is back, and so is the certificate",
            &[r#"kubectl -n shop patch secret shop-tls -p '{"data":{"tls.key":"..."}}'"#],
            Act::RightKey,
            &renewed,
            managed,
            Some(Reason::CertificateInjected),
        ),
        step(
            "The annotation is removed: the default certificate is served",
            &["kubectl -n shop annotate route shop route.openshift.io/tls-secret-name-"],
            Act::RemoveAnnotation,
            default,
            (State::Default, Reason::NoCertificate),
            Some(Reason::CertificateCleared),
        ),
    ]
}

impl Act {
    pub async fn carry_out(self, client: &Client, pairs: &Pairs) -> Result<(), ApiError> {
        let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let secret = format!("{secrets}/{SECRET}");
        let routes = format!("/apis/route.openshift.io/v1/namespaces/{NAMESPACE}/routes");
        let annotated = |value: Value| json!({ "metadata": { "annotations": { SECRET_NAME_ANNOTATION: value } } });
        let annotate =
            |value| send(client, Method::PATCH, format!("{routes}/{ROUTE}"), annotated(value));
        match self {
            Self::CreateRoute => {
                let namespaces = "/api/v1/namespaces".to_owned();
                send(client, Method::POST, namespaces, namespace()).await?;
                send(client, Method::POST, routes, route()).await
            }
            Self::Annotate => {
                send(client, Method::POST, secrets, tls_secret(&pairs.first)).await?;
                annotate(json!(SECRET)).await
            }
            Self::Renew => send(client, Method::PATCH, secret, data(&pairs.renewed)).await,
            Self::DeleteSecret => send(client, Method::DELETE, secret, Value::Null).await,
            Self::CreateSecret => {
                send(client, Method::POST, secrets, tls_secret(&pairs.renewed)).await
            }
            Self::WrongKey => send(client, Method::PATCH, secret, key(&pairs.first)).await,
            Self::RightKey => send(client, Method::PATCH, secret, key(&pairs.renewed)).await,
            Self::RemoveAnnotation => annotate(Value::Null).await,
        }
    }
}

fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })
}

fn route() -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": { "name": ROUTE },
        "spec": {
            "host": HOST,
            "to": { "kind": "Service", "name": "shop" },
            "tls": { "termination": "edge" },
        },
    })
}

fn tls_secret(pair: &Issued) -> Value {
    let mut secret = data(pair);
    secret["apiVersion"] = json!("v1");
    secret["kind"] = json!("Secret");
    secret["type"] = json!("kubernetes.io/tls");
    secret["metadata"] = json!({ "name": SECRET });
    secret
}

fn data(pair: &Issued) -> Value {
    let mut data = key(pair);
    data["data"]["tls.crt"] = json!(BASE64_STANDARD.encode(&pair.certificate));
    data
}

fn key(pair: &Issued) -> Value {
    json!({ "data": { "tls.key": BASE64_STANDARD.encode(pair.key.expose()) } })
}

/// Sends an object or a merge patch; `Value::Null` for no body.
pub(super) async fn send(
    client: &Client,
    method: Method,
    path: String,
    body: Value,
) -> Result<(), ApiError> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .body(body)
        .map_err(|error| ApiError::Unreachable { why: error.to_string() })?;
    api_error::with_timeout(client.request::<Value>(request)).await?;
    Ok(())
}
