//! Discovery of kinds: group by group, or all at once.

use http::request::Parts;
use serde_json::{Value, json};

use super::{accept::Format, answer::Answer};
use crate::{
    api_error::ApiError,
    kinds::{self, Kind, Kinds},
};

pub(super) const VERSION: &str = "v1.36.3";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATHS: [&str; 10] = [
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/version",
];

/// `/version`.
pub(super) fn version(name: &str) -> Value {
    let build = name.replace(' ', "-");
    json!({
        "major": "1", "minor": "36", "gitVersion": format!("{VERSION}+{build}"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

pub(super) fn serve(
    kinds: &'static Kinds,
    path: &[String],
    parts: &Parts,
) -> Result<Answer, ApiError> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let all_at_once = Format::of(&parts.headers)? == Format::Discovery;
    match words.as_slice() {
        [] => Ok(Answer::json(json!({ "paths": PATHS }))),
        ["api"] if all_at_once => Ok(aggregated(kinds, &[("", "v1")])),
        ["apis"] if all_at_once => Ok(aggregated(kinds, &named_groups(kinds))),
        ["api"] => Ok(Answer::json(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        }))),
        ["apis"] => {
            let groups: Vec<Value> = named_groups(kinds).into_iter().map(group).collect();
            let list = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
            Ok(Answer::json(list))
        }
        ["api", "v1"] => Ok(Answer::json(resources(kinds, "", "v1"))),
        ["apis", name] => {
            let found = named_groups(kinds).into_iter().find(|(group, _)| group == name);
            let mut found = group(found.ok_or_else(ApiError::nothing_there)?);
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            Ok(Answer::json(found))
        }
        ["apis", name, version] if named_groups(kinds).contains(&(name, version)) => {
            Ok(Answer::json(resources(kinds, name, version)))
        }
        _ => Err(ApiError::nothing_there()),
    }
}

fn named_groups(kinds: &'static Kinds) -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = kinds.with_path().map(|kind| (kind.group, kind.version)).collect();
    groups.retain(|(group, _)| !group.is_empty());
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn group((name, version): (&str, &str)) -> Value {
    let version = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

fn of_group(
    kinds: &'static Kinds,
    group: &str,
    version: &str,
) -> impl Iterator<Item = &'static Kind> {
    kinds.with_path().filter(move |kind| kind.group == group && kind.version == version)
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.is_review() {
        return vec!["create"];
    }
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    all.into_iter().filter(|verb| kind.namespaced || *verb != "deletecollection").collect()
}

struct Subresource {
    name: &'static str,
    /// What is sent to it, and comes back.
    kind: &'static Kind,
    verbs: &'static [&'static str],
}

fn subresources(kind: &'static Kind) -> impl Iterator<Item = Subresource> {
    let status = Subresource { name: "status", kind, verbs: &["get", "patch", "update"] };
    let finalize = Subresource { name: "finalize", kind, verbs: &["update"] };
    let token = Subresource { name: "token", kind: kinds::token_request(), verbs: &["create"] };
    let all = [
        (kind == kinds::namespace(), finalize),
        (kind.status, status),
        (kind == kinds::service_account(), token),
    ];
    all.into_iter().filter_map(|(has_it, subresource)| has_it.then_some(subresource))
}

fn resources(kinds: &'static Kinds, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for kind in of_group(kinds, group, version) {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for Subresource { name, kind: sent, verbs } in subresources(kind) {
            let mut resource = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": sent.kind, "verbs": verbs,
            });
            if sent != kind {
                resource["group"] = sent.group.into();
                resource["version"] = sent.version.into();
            }
            resources.push(resource);
        }
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": resources,
    })
}

fn aggregated(kinds: &'static Kinds, groups: &[(&str, &str)]) -> Answer {
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, version)| {
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            let resources: Vec<Value> =
                of_group(kinds, group, version).map(aggregated_kind).collect();
            let version =
                json!({ "version": version, "resources": resources, "freshness": "Current" });
            json!({ "metadata": metadata, "versions": [version] })
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    });
    Answer::typed(list, AGGREGATED)
}

fn aggregated_kind(kind: &'static Kind) -> Value {
    let response_kind =
        |kind: &Kind| json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response_kind(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let below: Vec<Value> = subresources(kind)
        .map(|Subresource { name, kind, verbs }| {
            json!({ "subresource": name, "responseKind": response_kind(kind), "verbs": verbs })
        })
        .collect();
    if !below.is_empty() {
        resource["subresources"] = below.into();
    }
    resource
}
