//! Whether the API server keeps `.status.certificate`, read from its OpenAPI document.
//!
//! OpenShift's own Route API has a fixed type and drops the field; a Route CRD keeps it if its
//! schema has it. Trying it out would cost a write that changes nothing, for ever.

use http::Request;
use kube::Client;
use serde_json::Value;

use crate::{
    api::route::{GROUP, VERSION},
    k8s::api_error::{self, ApiError},
};

/// Whether the server stores our condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusField {
    Kept,
    /// It would drop it.
    Dropped,
}

/// Asks the API server.
pub async fn status_field(client: &Client) -> Result<StatusField, ApiError> {
    let request = Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"))
        .body(Vec::new())
        .map_err(|error| ApiError::Unreachable { why: error.to_string() })?;
    let document: Value = api_error::with_timeout(client.request(request)).await?;
    Ok(read(&document))
}

fn read(document: &Value) -> StatusField {
    let schemas = &document["components"]["schemas"];
    let kept = schemas
        .as_object()
        .into_iter()
        .flat_map(|schemas| schemas.values())
        .filter(|schema| is_route(schema))
        .any(|route| keeps_certificate(resolve(&route["properties"]["status"], schemas)));
    if kept { StatusField::Kept } else { StatusField::Dropped }
}

fn is_route(schema: &Value) -> bool {
    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
    kinds.into_iter().flatten().any(|kind| kind["group"] == GROUP && kind["kind"] == "Route")
}

fn keeps_certificate(status: &Value) -> bool {
    status["properties"].get("certificate").is_some()
        || status["x-kubernetes-preserve-unknown-fields"] == true
}

/// Aggregated servers publish the status as a reference, alone or in an `allOf`.
fn resolve<'a>(schema: &'a Value, schemas: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    match reference.and_then(|reference| reference.rsplit('/').next()) {
        Some(name) => &schemas[name],
        None => schema,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(status: Value) -> Value {
        let kind = json!([{"group": GROUP, "version": VERSION, "kind": "Route"}]);
        json!({"components": {"schemas": {
            "Route": {"x-kubernetes-group-version-kind": kind, "properties": {"status": status}},
            "RouteStatus": {"properties": {"ingress": {}}},
            "OurStatus": {"properties": {"ingress": {}, "certificate": {}}},
        }}})
    }

    #[test]
    fn a_crd_whose_schema_has_the_field_keeps_it() {
        let status = json!({"properties": {"certificate": {"type": "array"}}});
        assert_eq!(read(&document(status)), StatusField::Kept);
        let open = json!({"x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(read(&document(open)), StatusField::Kept);
    }

    #[test]
    fn openshifts_own_type_drops_it() {
        let reference = json!({"$ref": "#/components/schemas/RouteStatus"});
        assert_eq!(read(&document(reference.clone())), StatusField::Dropped);
        assert_eq!(read(&document(json!({"allOf": [reference]}))), StatusField::Dropped);
        assert_eq!(read(&json!({})), StatusField::Dropped);
    }

    #[test]
    fn a_reference_is_followed() {
        let reference = json!({"allOf": [{"$ref": "#/components/schemas/OurStatus"}]});
        assert_eq!(read(&document(reference)), StatusField::Kept);
    }
}
