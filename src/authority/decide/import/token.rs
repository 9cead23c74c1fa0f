//! Teleport's `token`, version v2, with the join method spiffe.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use super::{LocalFault, Resource, is_object_name, line, read};
use crate::{
    api::{join_token::KIND, spiffe_federation::API_VERSION},
    spiffe::{id::SpiffeId, pattern::IdPattern},
};

/// As the API has them.
const MOST_RULES: usize = 64;
const LONGEST_BOT_NAME: usize = 255;

#[derive(Debug, Deserialize)]
struct Metadata {
    name: Spanned<String>,
    #[serde(default)]
    expires: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    roles: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    bot_name: Option<Spanned<String>>,
    join_method: Spanned<String>,
    #[serde(default)]
    spiffe: Option<SpiffeRules>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpiffeRules {
    allow: Spanned<Vec<Rule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    spiffe_id: Spanned<String>,
}

/// The JoinToken, or every fault of the document.
pub(super) fn object(document: &str) -> Result<Value, Vec<LocalFault>> {
    let resource = read(document).map_err(|fault| vec![fault])?;
    let Resource::<Metadata, Spanned<Spec>> { metadata, spec, .. } = resource;
    // Other fields of a token of another method mean nothing here.
    if spec.value.join_method.value != "spiffe" {
        let found = &spec.value.join_method;
        let what = format!("join_method is {}; only spiffe can be imported", found.value);
        return Err(vec![(line(found), what)]);
    }
    let mut faults = Vec::new();
    let mut made = json!({ "joinMethod": "spiffe" });
    check_name(&metadata.name, &mut faults);
    made["roles"] = roles(&spec, &mut faults);
    if let Some(name) = &spec.value.bot_name {
        check_bot_name(name, &mut faults);
        made["botName"] = name.value.as_str().into();
    }
    made["spiffe"] = json!({ "allow": allow(&spec, &mut faults) });
    if let Some(text) = &metadata.expires {
        match DateTime::parse_from_rfc3339(&text.value) {
            Ok(at) => made["expires"] = json!(at.with_timezone(&Utc)),
            Err(_) => {
                faults.push((
                    line(text),
                    "expires is no time such as 2030-06-15T12:00:00Z".to_owned(),
                ));
            }
        }
    }
    let metadata = json!({ "name": metadata.name.value });
    match faults.is_empty() {
        true => Ok(json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": made,
        })),
        false => Err(faults),
    }
}

/// Clients name the token, so it can't be given another name in silence.
fn check_name(name: &Spanned<String>, faults: &mut Vec<LocalFault>) {
    if !is_object_name(&name.value) {
        let what = "metadata.name can't be the name of an object in Kubernetes: choose one of lower-case \
                    letters, digits, dashes and dots, and give it to the clients";
        faults.push((line(name), what.to_owned()));
    }
}

fn roles(spec: &Spanned<Spec>, faults: &mut Vec<LocalFault>) -> Value {
    let Spec { roles, bot_name, .. } = &spec.value;
    let mut known = Vec::new();
    for role in &roles.value {
        let what = match role.value.as_str() {
            "Bot" | "Agent" if known.contains(&role.value.as_str()) => "is there twice",
            "Bot" | "Agent" => {
                known.push(&role.value);
                continue;
            }
            _ => "is not known: a JoinToken has the roles Bot and Agent",
        };
        faults.push((line(role), format!("role {} {what}", role.value)));
    }
    if roles.value.is_empty() {
        faults.push((line(roles), "roles is empty: a JoinToken has Bot, Agent or both".to_owned()));
    }
    match (known.contains(&"Bot"), bot_name) {
        (true, None) => faults.push((line(roles), "role Bot needs bot_name".to_owned())),
        (false, Some(name)) => faults.push((line(name), "bot_name is for role Bot".to_owned())),
        _ => {}
    }
    json!(known)
}

fn check_bot_name(name: &Spanned<String>, faults: &mut Vec<LocalFault>) {
    let is_segment = !name.value.contains('/')
        && name.value.len() <= LONGEST_BOT_NAME
        && SpiffeId::parse(&format!("spiffe://td.test/bot/{}", name.value)).is_ok();
    if !is_segment {
        let what = "bot_name is no segment of a SPIFFE ID: write letters, digits, dots, dashes and \
                    underscores, 255 at most";
        faults.push((line(name), what.to_owned()));
    }
}

fn allow(spec: &Spanned<Spec>, faults: &mut Vec<LocalFault>) -> Value {
    let Some(SpiffeRules { allow }) = &spec.value.spiffe else {
        faults.push((line(spec), "spiffe.allow is missing: it says who may join".to_owned()));
        return Value::Null;
    };
    if allow.value.is_empty() || allow.value.len() > MOST_RULES {
        let what =
            format!("spiffe.allow has {} rules: 1 to {MOST_RULES} can be", allow.value.len());
        faults.push((line(allow), what));
    }
    let mut patterns: Vec<String> = Vec::new();
    for Rule { spiffe_id } in &allow.value {
        match IdPattern::parse(&spiffe_id.value).map(|it| it.to_string()) {
            Ok(pattern) if patterns.contains(&pattern) => {
                faults.push((line(spiffe_id), format!("{pattern} is there twice")));
            }
            Ok(pattern) => patterns.push(pattern),
            Err(error) => faults.push((line(spiffe_id), format!("spiffe_id: {error}"))),
        }
    }
    patterns.into_iter().map(|pattern| json!({ "spiffeID": pattern })).collect()
}
