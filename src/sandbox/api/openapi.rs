//! OpenAPI documents.

use http::request::Parts;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use crate::sandbox::{kinds, kinds::Kind, refusal::Refusal};

pub(super) fn serve(path: &[String], _parts: &Parts) -> Result<Answer, Refusal> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["v3", "api", version] => group("", version),
        ["v3", "apis", name, version] => group(name, version),
        _ => Err(Refusal::no_such_path()),
    }
}

fn group(group: &str, version: &str) -> Result<Answer, Refusal> {
    let of_group = |kind: &&Kind| kind.group == group && kind.version == version;
    let mut schemas = Map::new();
    for kind in kinds::all().iter().filter(of_group) {
        let mut schema = match &kind.crd {
            Some(crd) => crd.source.clone(),
            None => kinds::definitions().get(&kind.definition).cloned().unwrap_or_default(),
        };
        schema["x-kubernetes-group-version-kind"] =
            json!([{ "group": kind.group, "version": kind.version, "kind": kind.kind }]);
        schemas.insert(kind.definition.clone(), schema);
    }
    if schemas.is_empty() {
        return Err(Refusal::no_such_path());
    }
    let document: Value = json!({
        "openapi": "3.0.0",
        "info": { "title": "trustplane sandbox", "version": "v1.36.3" },
        "paths": {},
        "components": { "schemas": schemas },
    });
    Ok(Answer::json(document))
}
