//! OpenAPI documents, with which kubectl explains, validates and merges: version 3 by group,
//! version 2 as one.

use std::{collections::BTreeSet, sync::OnceLock};

use http::request::Parts;
use serde_json::{Map, Value, json};

use super::{answer::Answer, discovery::VERSION};
use crate::{
    api_error::ApiError,
    kinds::{self, Kind, Kinds, library_list},
    schema::List,
};

const V2: &str = "application/json";

pub(super) struct Documents {
    kinds: &'static Kinds,
    name: &'static str,
    /// Cached, because it is large and the same for every client.
    version_2: OnceLock<Value>,
}

impl Documents {
    pub fn new(kinds: &'static Kinds, name: &'static str) -> Self {
        Self { kinds, name, version_2: OnceLock::new() }
    }

    pub fn serve(&self, path: &[String], parts: &Parts) -> Result<Answer, ApiError> {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["v3"] => Ok(Answer::json(self.index())),
            ["v3", "api", version] => self.group("", version),
            ["v3", "apis", name, version] => self.group(name, version),
            ["v2"] => {
                super::accept::Format::of(&parts.headers)?;
                let document = self.version_2.get_or_init(|| self.build_version_2());
                Ok(Answer::typed(document.clone(), V2))
            }
            _ => Err(ApiError::nothing_there()),
        }
    }

    fn index(&self) -> Value {
        let mut paths = Map::new();
        for kind in self.kinds.with_path() {
            let path = group_path(kind);
            let url = format!("/openapi/v3/{path}?hash=sandbox");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
        json!({ "paths": paths })
    }

    fn group(&self, group: &str, version: &str) -> Result<Answer, ApiError> {
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        let of_group = |kind: &&Kind| kind.group == group && kind.version == version;
        for kind in self.kinds.with_path().filter(of_group) {
            paths.insert(object_path(kind), operations(kind));
            add_definitions(kind, &mut schemas);
        }
        if paths.is_empty() {
            return Err(ApiError::nothing_there());
        }
        Ok(Answer::json(json!({
            "openapi": "3.0.0",
            "info": { "title": self.name, "version": VERSION },
            "paths": paths,
            "components": { "schemas": schemas },
        })))
    }

    fn build_version_2(&self) -> Value {
        let mut definitions = Map::new();
        let mut paths = Map::new();
        for kind in self.kinds.with_path() {
            add_definitions(kind, &mut definitions);
            paths.insert(object_path(kind), operations(kind));
        }
        as_version_2(json!({
            "swagger": "2.0", "info": { "title": self.name, "version": VERSION },
            "paths": paths, "definitions": definitions,
        }))
    }
}

fn group_path(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn object_path(kind: &Kind) -> String {
    if kind.is_review() {
        return format!("/{}/{}", group_path(kind), kind.plural);
    }
    let namespaces = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{namespaces}{}/{{name}}", group_path(kind), kind.plural)
}

/// Verbs, and the parameters that kubectl checks for features.
fn operations(kind: &Kind) -> Value {
    let parameter =
        |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    let parameters: Vec<Value> =
        ["dryRun", "fieldManager", "fieldValidation"].map(parameter).to_vec();
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(kind),
            "parameters": parameters,
            "responses": { "200": { "description": "OK" } },
        })
    };
    if kind.is_review() {
        // For a kind without PATCH, kubectl looks for fieldValidation in a document in protobuf.
        return json!({ "post": operation("post"), "patch": operation("patch") });
    }
    json!({
        "get": operation("get"), "put": operation("put"), "patch": operation("patch"),
        "delete": operation("delete"),
    })
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

/// The kind's schema and all that it refers to.
fn add_definitions(kind: &Kind, schemas: &mut Map<String, Value>) {
    let schema = match &kind.crd {
        Some(crd) => {
            let mut schema = crd.source.clone();
            // These fields are the same in all kinds.
            let described = library_schema(&kinds::secret().definition);
            for field in ["apiVersion", "kind", "metadata"] {
                schema["properties"][field] = described["properties"][field].clone();
            }
            schema
        }
        None => library_schema(&kind.definition),
    };
    let mut wanted = references(&schema);
    let mut schema = schema;
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
    schemas.insert(kind.definition.clone(), schema);
    while let Some(name) = wanted.pop_first() {
        if !schemas.contains_key(&name) {
            let schema = library_schema(&name);
            wanted.extend(references(&schema));
            schemas.insert(name, schema);
        }
    }
}

/// A definition of the library, with how its lists are merged.
fn library_schema(name: &str) -> Value {
    let mut schema = kinds::definitions().get(name).cloned().unwrap_or_default();
    // k8s-openapi requires metadata, Kubernetes does not.
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "metadata");
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        match library_list(name, field) {
            List::Atomic => {}
            List::Set => property["x-kubernetes-patch-strategy"] = "merge".into(),
            List::Map(keys) => {
                property["x-kubernetes-patch-strategy"] = "merge".into();
                property["x-kubernetes-patch-merge-key"] = keys.concat().into();
            }
        }
    }
    schema
}

fn references(schema: &Value) -> BTreeSet<String> {
    match schema {
        Value::Object(map) => {
            let name =
                map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
            let own = name.map(str::to_owned);
            own.into_iter().chain(map.values().flat_map(references)).collect()
        }
        Value::Array(list) => list.iter().flat_map(references).collect(),
        _ => BTreeSet::new(),
    }
}

/// Rewrites references, which have no fields beside them.
fn as_version_2(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            let only = map.get_mut("allOf").and_then(Value::as_array_mut).and_then(Vec::pop);
            if let Some(Value::Object(reference)) = only {
                map.remove("allOf");
                map.extend(reference);
            }
            let entries = map.into_iter().map(|(name, value)| match value {
                Value::String(path) if name == "$ref" => {
                    (name, path.replace("#/components/schemas/", "#/definitions/").into())
                }
                other => (name, as_version_2(other)),
            });
            Value::Object(entries.collect())
        }
        Value::Array(list) => list.into_iter().map(as_version_2).collect(),
        other => other,
    }
}
