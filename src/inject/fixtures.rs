//! Pairs, Secrets and an API server's answers, for the tests of the injector.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use rcgen::CertificateParams;
use serde_json::{Value, json};

/// A certificate for this host and its key.
pub(crate) fn issued(host: &str) -> (String, String) {
    signed(&CertificateParams::new(vec![host.to_owned()]).unwrap())
}

pub(crate) fn signed(parameters: &CertificateParams) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The Secret `shop-tls`.
pub(crate) fn secret(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Value {
    json!({
        "metadata": {"name": "shop-tls", "namespace": "web", "resourceVersion": "1", "uid": "s"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)},
    })
}

/// Method, path and body.
pub(crate) async fn read(request: Request<Body>) -> (Method, String, Value) {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    (method, path, serde_json::from_slice(&body).unwrap_or_default())
}

pub(crate) fn respond((code, answer): (u16, Value)) -> Response<Body> {
    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
}

pub(crate) fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}))
}
