//! Says what is served here, as kubectl asks for it before it creates a TokenReview. The documents hold
//! nothing about clusters, so everybody may read them.

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::get,
};
use http::header;
use prost::Message;
use serde_json::{Value, json};

use super::REVIEWS;

const GROUP: &str = "authentication.k8s.io";
const GROUP_PATH: &str = "/apis/authentication.k8s.io";
const VERSION_PATH: &str = "/apis/authentication.k8s.io/v1";
const SCHEMA_PATH: &str = "/openapi/v3/apis/authentication.k8s.io/v1";
/// The only form in which kubectl asks for the second version of OpenAPI.
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The beginning of gnostic's Document, with its numbers. kubectl validates objects of kinds that it finds
/// there; a kind without PATCH it looks for nowhere else, and an empty list is an answer.
#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let document = |of: fn() -> Value| get(move || async move { shown(&of()) });
    Router::new()
        .route("/api", document(versions))
        .route("/apis", document(groups))
        .route(GROUP_PATH, document(group))
        .route(VERSION_PATH, document(resources))
        .route("/openapi/v3", document(schemas))
        .route(SCHEMA_PATH, document(schema))
        .route("/openapi/v2", get(|| async { openapi_v2() }))
}

fn shown(document: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document.to_string()).into_response()
}

fn openapi_v2() -> Response {
    let info = Info { title: "trustplane review".to_owned(), version: "v1".to_owned() };
    let document = Document { swagger: "2.0".to_owned(), info: Some(info) };
    ([(header::CONTENT_TYPE, OPENAPI_V2)], document.encode_to_vec()).into_response()
}

/// Of the group without a name, of which nothing is served.
fn versions() -> Value {
    json!({ "kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": [] })
}

fn groups() -> Value {
    let mut group = group();
    if let Some(group) = group.as_object_mut() {
        group.retain(|name, _| name != "kind" && name != "apiVersion");
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

fn group() -> Value {
    let version = json!({ "groupVersion": format!("{GROUP}/v1"), "version": "v1" });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
        "resources": [{
            "name": "tokenreviews", "singularName": "tokenreview", "namespaced": false,
            "kind": "TokenReview", "verbs": ["create"],
        }],
    })
}

fn schemas() -> Value {
    json!({ "paths": { "apis/authentication.k8s.io/v1": { "serverRelativeURL": SCHEMA_PATH } } })
}

fn schema() -> Value {
    let kind = json!({ "group": GROUP, "kind": "TokenReview", "version": "v1" });
    let media = json!({ "application/json": { "schema": { "type": "object" } } });
    json!({
        "openapi": "3.0.0",
        "info": { "title": "trustplane review", "version": "v1" },
        "paths": { REVIEWS: { "post": {
            "operationId": "createAuthenticationV1TokenReview",
            "requestBody": { "content": media, "required": true },
            "responses": { "201": { "description": "Created", "content": media } },
            "x-kubernetes-action": "post",
            "x-kubernetes-group-version-kind": kind,
        } } },
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn document(path: &str) -> (String, Vec<u8>) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router::<()>().with_state(()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        (kind, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn kubectl_finds_the_kind_and_the_place_of_its_schema() {
        let json = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap();
        let (_, body) = document("/apis").await;
        assert_eq!(json(&body)["groups"][0]["name"], GROUP);
        let (_, body) = document(VERSION_PATH).await;
        assert_eq!(json(&body)["resources"][0]["verbs"], json!(["create"]));
        let (_, body) = document("/openapi/v3").await;
        let path = &json(&body)["paths"]["apis/authentication.k8s.io/v1"]["serverRelativeURL"];
        let (_, body) = document(path.as_str().unwrap()).await;
        assert!(json(&body)["paths"][REVIEWS]["post"].is_object());
        let (kind, body) = document("/openapi/v2").await;
        assert_eq!(kind, OPENAPI_V2);
        assert_eq!(Document::decode(&*body).unwrap().swagger, "2.0");
    }
}
