//! The only writer of job inject.
//!
//! Every write is a merge patch that carries the uid and the resourceVersion of what it was
//! decided from, so a stale decision fails instead of winning, and a field that we do not know
//! survives. Certificate, key and marker go in one patch: no crash can part them.

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    api::route::{CertificateCondition, Route},
    inject::{
        cache::secret_reads::ReadPair,
        decide::{
            apply_error::ApplyError, facts::RouteFacts, marker::Marker, source::Source,
            write::Write,
        },
    },
    k8s::api_error,
    names::{FIELD_MANAGER, INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION},
};

#[derive(Clone)]
pub struct Writer {
    client: Client,
}

impl Writer {
    /// A writer through this client; its gate decides whether anything is sent.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Writes certificate, key and marker as decided. Answers the new Route.
    pub async fn write(
        &self,
        route: &RouteFacts,
        write: Write,
        pair: Option<&ReadPair>,
    ) -> Result<RouteFacts, ApplyError> {
        self.send(route, change(route, write, pair)?).await
    }

    async fn send(&self, route: &RouteFacts, change: Value) -> Result<RouteFacts, ApplyError> {
        let (api, params, patch) = (self.api(route), params(), patch(change, route));
        let written = api_error::with_timeout(api.patch(&route.at.name, &params, &patch)).await;
        let written =
            written.map_err(|cause| ApplyError::Pair { route: route.at.clone(), cause })?;
        Ok(RouteFacts::read(&written))
    }

    /// Lets go of a Route for good: in one patch with what the write takes out, both annotations go.
    pub async fn release(
        &self,
        route: &RouteFacts,
        write: Write,
    ) -> Result<RouteFacts, ApplyError> {
        let mut change = change(route, write, None)?;
        change["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = Value::Null;
        self.send(route, change).await
    }

    /// Writes `.status.certificate`. Answers the new Route.
    pub async fn write_status(
        &self,
        route: &RouteFacts,
        conditions: &[CertificateCondition],
    ) -> Result<RouteFacts, ApplyError> {
        self.send_status(route, json!(conditions)).await
    }

    /// Takes `.status.certificate` out: nobody will keep it true any more.
    pub async fn drop_status(&self, route: &RouteFacts) -> Result<RouteFacts, ApplyError> {
        self.send_status(route, Value::Null).await
    }

    async fn send_status(
        &self,
        route: &RouteFacts,
        certificate: Value,
    ) -> Result<RouteFacts, ApplyError> {
        let patch = patch(json!({ "status": { "certificate": certificate } }), route);
        let (api, params) = (self.api(route), params());
        let written =
            api_error::with_timeout(api.patch_status(&route.at.name, &params, &patch)).await;
        let written =
            written.map_err(|cause| ApplyError::Status { route: route.at.clone(), cause })?;
        Ok(RouteFacts::read(&written))
    }

    fn api(&self, route: &RouteFacts) -> Api<Route> {
        Api::namespaced(self.client.clone(), &route.at.namespace)
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The fields that a write changes.
fn change(route: &RouteFacts, write: Write, read: Option<&ReadPair>) -> Result<Value, ApplyError> {
    let planned = |fingerprint| {
        let read = read.filter(|read| read.pair.fingerprint() == fingerprint);
        read.ok_or_else(|| ApplyError::PairMissing { route: route.at.clone() })
    };
    Ok(match write {
        Write::Inject(fingerprint) => {
            let read = planned(fingerprint)?;
            let (certificate, key) = (read.pair.certificate(), read.pair.key().expose());
            with_tls(with_marker(route, read), json!({ "certificate": certificate, "key": key }))
        }
        Write::AddMarker(fingerprint) => with_marker(route, planned(fingerprint)?),
        Write::Clear => with_tls(without_marker(), json!({ "certificate": null, "key": null })),
        Write::ClearKey => with_tls(without_marker(), json!({ "key": null })),
        Write::DropMarker => without_marker(),
    })
}

fn with_marker(route: &RouteFacts, ReadPair { pair, uid, version }: &ReadPair) -> Value {
    let marker = Marker::of(&route.uid, pair.certificate(), pair.key().expose());
    let source = Source::text(uid, version, &marker);
    annotating(json!(marker.to_string()), json!(source))
}

fn without_marker() -> Value {
    annotating(Value::Null, Value::Null)
}

fn annotating(marker: Value, source: Value) -> Value {
    let annotations = json!({ INJECTED_ANNOTATION: marker, INJECTED_FROM_ANNOTATION: source });
    json!({ "metadata": { "annotations": annotations } })
}

fn with_tls(mut change: Value, tls: Value) -> Value {
    change["spec"] = json!({ "tls": tls });
    change
}

/// The change, with what it was decided from.
fn patch(mut change: Value, route: &RouteFacts) -> Patch<Value> {
    change["metadata"]["uid"] = json!(&*route.uid);
    change["metadata"]["resourceVersion"] = json!(route.version);
    Patch::Merge(change)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Request;
    use kube::client::Body;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::{
        inject::{
            decide::{condition, facts::tests::Draft, messages},
            fixtures::{failure, issued, read, respond},
        },
        k8s::object_ref::ObjectRef,
        tls,
    };

    const ROUTE: &str = "/apis/route.openshift.io/v1/namespaces/web/routes/shop";

    /// Method, path with query, content type, body.
    type Sent = (String, String, String, Value);

    /// A server that answers the same to everything, and what it was sent.
    fn server(code: u16, answer: Value) -> (Writer, Arc<Mutex<Vec<Sent>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let query = request.uri().query().unwrap_or_default().trim_start_matches('&');
                let query = query.to_owned();
                let kind = request.headers()["content-type"].to_str()?.to_owned();
                let (method, path, body) = read(request).await;
                let sent = (method.to_string(), format!("{path}?{query}"), kind, body);
                log.lock().unwrap().push(sent);
                Ok::<_, BoxError>(respond((code, answer)))
            }
        });
        (Writer::new(Client::new(service, "default")), sent)
    }

    fn draft() -> Draft {
        Draft::edge().annotated("shop-tls").holding("old certificate", "old key").marked()
    }

    fn pair() -> ReadPair {
        let (certificate, key) = issued("shop.example.com");
        let pair = tls::judge(certificate.as_bytes(), key.as_bytes()).unwrap();
        ReadPair { pair, uid: "s-1".into(), version: "7".into() }
    }

    fn marker_of(ReadPair { pair, .. }: &ReadPair) -> Marker {
        Marker::of("4711", pair.certificate(), pair.key().expose())
    }

    fn source_of(read: &ReadPair) -> String {
        format!("v1:s-1:7:{}:{}", tls::RULES, marker_of(read).digits())
    }

    /// Metadata with what was noted of this pair, or with nothing.
    fn with_marker(read: Option<&ReadPair>) -> Value {
        match read {
            Some(read) => metadata(json!(marker_of(read).to_string()), json!(source_of(read))),
            None => metadata(Value::Null, Value::Null),
        }
    }

    /// The one body that was sent, where path, query and content type are as they should be.
    async fn sent(write: Write, pair: Option<&ReadPair>) -> Value {
        let (writer, sent) = server(200, draft().version("42").0);
        let now_is = writer.write(&draft().facts(), write, pair).await.unwrap();
        assert_eq!(now_is, draft().version("42").facts(), "answers what the server has now");
        let mut sent = sent.lock().unwrap();
        assert_eq!(sent.len(), 1, "certificate, key and marker go in one patch");
        let (method, path, kind, body) = sent.pop().unwrap();
        assert_eq!((method.as_str(), kind.as_str()), ("PATCH", "application/merge-patch+json"));
        assert_eq!(path, format!("{ROUTE}?fieldManager=trustplane"));
        body
    }

    /// Compares without printing: the bodies hold keys.
    #[track_caller]
    fn assert_same(sent: &Value, expected: &Value) {
        assert!(sent == expected, "another body was sent");
    }

    fn metadata(marker: Value, source: Value) -> Value {
        let annotations =
            json!({ "trustplane.dev/injected": marker, "trustplane.dev/injected-from": source });
        json!({ "uid": "4711", "resourceVersion": "41", "annotations": annotations })
    }

    #[tokio::test]
    async fn an_injection_sends_certificate_key_and_note_with_what_it_was_decided_from() {
        let pair = pair();
        let body = sent(Write::Inject(pair.pair.fingerprint()), Some(&pair)).await;
        let tls =
            json!({ "certificate": pair.pair.certificate(), "key": pair.pair.key().expose() });
        let expected = json!({ "metadata": with_marker(Some(&pair)), "spec": { "tls": tls } });
        assert_same(&body, &expected);
    }

    #[tokio::test]
    async fn a_missing_note_is_sent_without_the_pair() {
        let pair = pair();
        let body = sent(Write::AddMarker(pair.pair.fingerprint()), Some(&pair)).await;
        assert_same(&body, &json!({ "metadata": with_marker(Some(&pair)) }));
    }

    #[tokio::test]
    async fn clearing_takes_certificate_key_and_note_out() {
        let tls = json!({ "certificate": null, "key": null });
        let expected = json!({ "metadata": with_marker(None), "spec": { "tls": tls } });
        assert_same(&sent(Write::Clear, None).await, &expected);
    }

    #[tokio::test]
    async fn clearing_a_left_over_key_does_not_name_the_certificate() {
        let expected = json!({ "metadata": with_marker(None), "spec": { "tls": { "key": null } } });
        assert_same(&sent(Write::ClearKey, None).await, &expected);
    }

    #[tokio::test]
    async fn dropping_the_note_does_not_name_spec_so_that_none_comes_into_being() {
        assert_same(
            &sent(Write::DropMarker, None).await,
            &json!({ "metadata": with_marker(None) }),
        );
    }

    #[tokio::test]
    async fn the_condition_goes_to_the_status_and_nowhere_else() {
        let (writer, sent) = server(200, draft().0);
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let said = condition::unless_published(&messages::custom(), &[], now).unwrap();
        writer.write_status(&draft().facts(), &said).await.unwrap();
        let (method, path, kind, body) = sent.lock().unwrap().pop().unwrap();
        assert_eq!((method.as_str(), kind.as_str()), ("PATCH", "application/merge-patch+json"));
        assert_eq!(path, format!("{ROUTE}/status?fieldManager=trustplane"));
        let condition = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "CertificateInRoute", "message": message,
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            })
        };
        let expected = json!({
            "metadata": { "uid": "4711", "resourceVersion": "41" },
            "status": { "certificate": [
                condition("Default", "False", ""),
                condition("Custom", "True", &messages::custom().message),
                condition("Managed", "False", ""),
            ] },
        });
        assert_eq!(body, expected);
    }

    #[tokio::test]
    async fn letting_go_takes_both_annotations_out_in_one_patch_with_what_is_ours() {
        let released = async |write| {
            let (writer, sent) = server(200, draft().0);
            writer.release(&draft().facts(), write).await.unwrap();
            let mut sent = sent.lock().unwrap();
            assert_eq!(sent.len(), 1);
            sent.pop().unwrap().3
        };
        let mut gone = with_marker(None);
        gone["annotations"]["route.openshift.io/tls-secret-name"] = Value::Null;
        assert_same(&released(Write::DropMarker).await, &json!({ "metadata": gone.clone() }));
        let tls = json!({ "certificate": null, "key": null });
        let expected = json!({ "metadata": gone, "spec": { "tls": tls } });
        assert_same(&released(Write::Clear).await, &expected);
    }

    #[tokio::test]
    async fn a_condition_that_nobody_keeps_is_taken_out() {
        let (writer, sent) = server(200, draft().0);
        writer.drop_status(&draft().facts()).await.unwrap();
        let (_, path, _, body) = sent.lock().unwrap().pop().unwrap();
        assert_eq!(path, format!("{ROUTE}/status?fieldManager=trustplane"));
        assert_eq!(body["status"], json!({ "certificate": null }));
    }

    #[tokio::test]
    async fn nothing_is_sent_when_the_pair_at_hand_is_not_the_planned_one() {
        let (planned, other) = (pair(), pair());
        let fingerprint = planned.pair.fingerprint();
        for write in [Write::Inject(fingerprint), Write::AddMarker(fingerprint)] {
            for at_hand in [None, Some(&other)] {
                let (writer, sent) = server(200, draft().0);
                let error = writer.write(&draft().facts(), write, at_hand).await.unwrap_err();
                assert_eq!(error, ApplyError::PairMissing { route: ObjectRef::new("web", "shop") });
                assert_eq!(error.category(), "pair-missing");
                assert!(sent.lock().unwrap().is_empty());
            }
        }
    }

    #[tokio::test]
    async fn a_conflict_is_told_apart_from_a_route_that_is_gone() {
        let refusal = |code, reason| {
            let (code, status) = failure(code, reason);
            server(code, status).0
        };
        let facts = draft().facts();
        let conflict =
            refusal(409, "Conflict").write(&facts, Write::Clear, None).await.unwrap_err();
        assert!(conflict.is_conflict() && !conflict.is_not_found());
        assert_eq!(
            conflict.to_string(),
            "Route web/shop: certificate and key could not be patched: the object changed in the meantime"
        );
        let gone = refusal(404, "NotFound").write_status(&facts, &[]).await.unwrap_err();
        assert!(gone.is_not_found() && !gone.is_conflict());
        assert_eq!(gone.category(), "not-found");
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_the_key_is_told_without_it() {
        let pair = pair();
        let status = json!({
            "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422,
            "message": format!("spec.tls.key: Invalid value: {:?}", pair.pair.key().expose()),
            "details": { "causes": [{ "field": "spec.tls.key", "message": pair.pair.key().expose() }] },
        });
        let write = Write::Inject(pair.pair.fingerprint());
        let error = server(422, status).0.write(&draft().facts(), write, Some(&pair)).await;
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        let leaks = pair.pair.key().expose().lines().any(|line| shown.contains(line));
        assert!(!leaks && shown.contains("spec.tls.key"), "the refusal is told with the key");
    }
}
