//! `trustplane spiffe status`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use kube::{Api, Client, api::ListParams};
use serde_json::json;

use super::{NamespaceArgs, Published, client, lag, published};
use crate::{
    api::{
        join_token::{JoinToken, Role},
        spiffe_federation::SpiffeFederation,
    },
    authority::decide::{
        ca::{AuthorityState, Phase},
        sync::{SYNCED, TRUSTED},
    },
    cli::{
        Exit,
        output::{Output, print},
        relative::relative,
    },
    k8s::api_error::{self, ApiError},
    runtime::{controller::Unable, printable::printable},
    spiffe::bundle::Bundle,
};

/// Shows our own CAs, every trust domain that we federate with, and the tokens to join with.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  For people, and for scripts:
    trustplane spiffe status
    trustplane spiffe status -o json

Exit codes: 0 all is well, 1 something is not as it should be, 2 the cluster could not be
read.")]
pub(super) struct Status {
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,

    #[command(flatten)]
    place: NamespaceArgs,
}

impl Status {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = client().await?;
        let namespace = &self.place.namespace;
        let found = published(&client, namespace).await.map_err(Unable)?;
        let asked = lag::requests(&client, namespace).await;
        let api: Api<SpiffeFederation> = Api::all(client.clone());
        let listed = api_error::with_timeout(api.list(&ListParams::default())).await;
        let federations =
            listed.context("SPIFFEFederations could not be listed").map_err(Unable)?.items;
        let tokens = tokens(client).await.map_err(Unable)?;
        let now = Utc::now();
        let lags = found.as_ref().map(|it| lag::lags(it, &asked, now)).unwrap_or_default();
        match self.output {
            Output::Json => print(&document(found.as_ref(), &lags, &federations, &tokens))?,
            Output::Text => {
                let mut text = text(found.as_ref(), &lags, &federations, now, namespace);
                text.push_str(&token_lines(&tokens, now));
                print(&text)?;
            }
        }
        let is_well = |it: &SpiffeFederation| is_true(it, SYNCED) && is_true(it, TRUSTED);
        match found.is_some() && lags.is_empty() && federations.iter().all(is_well) {
            true => Ok(()),
            false => bail!(Exit::Reported),
        }
    }
}

/// None where the API is not installed: federating does not need it.
async fn tokens(client: Client) -> anyhow::Result<Vec<JoinToken>> {
    let api: Api<JoinToken> = Api::all(client);
    match api_error::with_timeout(api.list(&ListParams::default())).await {
        Err(ApiError::NotFound) => Ok(Vec::new()),
        listed => Ok(listed.context("JoinTokens could not be listed")?.items),
    }
}

fn is_true(federation: &SpiffeFederation, about: &str) -> bool {
    federation.condition(about).is_some_and(|it| it.status == "True")
}

fn document(
    found: Option<&Published>,
    lags: &[String],
    federations: &[SpiffeFederation],
    tokens: &[JoinToken],
) -> String {
    let one = |it: &SpiffeFederation| {
        json!({
            "name": it.name(),
            "trustDomain": it.trust_domain(),
            "source": it.spec.bundle_source.summary(),
            "sequence": it.status.sequence,
            "fingerprint": it.status.fingerprint,
            "refusedFingerprint": it.status.refused_fingerprint,
            "syncedAt": it.status.current_bundle_synced_at,
            "nextSyncAt": it.status.next_sync_at,
            "conditions": it.status.conditions,
        })
    };
    let token = |it: &JoinToken| {
        json!({
            "name": it.name(),
            "roles": it.spec.roles,
            "botName": it.spec.bot_name,
            "uses": it.status.uses,
            "maxUses": it.spec.max_uses,
            "expires": it.spec.expires,
        })
    };
    let all: Vec<_> = federations.iter().map(one).collect();
    let tokens: Vec<_> = tokens.iter().map(token).collect();
    let mut own = json!(found.map(|it| &it.state));
    if let Some(fingerprint) = found.and_then(fingerprint) {
        own["fingerprint"] = fingerprint.into();
    }
    let document = json!({ "authority": own, "lags": lags, "federations": all, "tokens": tokens });
    crate::runtime::printable::json(&format!("{document:#}")) + "\n"
}

fn text(
    found: Option<&Published>,
    lags: &[String],
    federations: &[SpiffeFederation],
    now: DateTime<Utc>,
    namespace: &str,
) -> String {
    let mut text = match found {
        Some(found) => {
            let keys = fingerprint(found).map(|it| format!("  keys    {it}\n"));
            own_lines(&found.state, now) + &keys.unwrap_or_default()
        }
        None => format!(
            "There is no authority in namespace {namespace}. Start one: trustplane authority --trust-domain NAME\n"
        ),
    };
    for lag in lags {
        let _ = writeln!(text, "  LAGS: {lag}");
    }
    if federations.is_empty() {
        text.push_str(
            "\nNo federation: kubectl apply a SPIFFEFederation to trust another trust domain.\n",
        );
    }
    for federation in federations {
        let _ = write!(text, "\n{}", lines(federation, now));
    }
    text
}

/// Of our own bundle, which a partner shows before it is accepted there.
fn fingerprint(found: &Published) -> Option<String> {
    let bundle = Bundle::parse(found.document.as_deref()?.as_bytes()).ok()?;
    Some(bundle.fingerprint())
}

/// Our own trust domain.
pub(super) fn own_lines(state: &AuthorityState, now: DateTime<Utc>) -> String {
    let mut text = format!(
        "{}  our own, sequence {}, refresh hint {} s\n",
        printable(&state.trust_domain),
        state.sequence,
        state.refresh_hint
    );
    for ca in &state.cas {
        let next = match ca.phase {
            Phase::Prepared => format!("may sign {}", relative(ca.usable_at, now)),
            Phase::Active => format!("expires {}", relative(ca.not_after, now)),
            Phase::Retiring => format!("gone {}", relative(ca.over_at(), now)),
        };
        let _ = writeln!(text, "  CA {}  {:<8}  {next}", printable(&ca.id), ca.phase.name());
    }
    text
}

pub(super) fn lines(federation: &SpiffeFederation, now: DateTime<Utc>) -> String {
    let status = &federation.status;
    let trusted = match federation.condition(TRUSTED) {
        Some(it) if it.status == "True" => "trusted",
        Some(_) => "NOT trusted",
        None => "not looked at yet",
    };
    let sequence =
        status.sequence.as_deref().map(|it| format!(", sequence {it}")).unwrap_or_default();
    let mut text = format!("{}  {trusted}{sequence}\n", federation.trust_domain());
    let _ = writeln!(text, "  from    {}", printable(&federation.spec.bundle_source.summary()));
    if let Some(at) = status.current_bundle_synced_at {
        let next = status
            .next_sync_at
            .map(|it| format!(", next {}", relative(it, now)))
            .unwrap_or_default();
        let _ = writeln!(text, "  synced  {}{next}", relative(at, now));
    }
    if let Some(fingerprint) = &status.fingerprint {
        let _ = writeln!(text, "  keys    {fingerprint}");
    }
    for condition in status.conditions.iter().filter(|it| it.status != "True") {
        let _ = writeln!(
            text,
            "  {}: {}: {}",
            condition.r#type,
            condition.reason,
            printable(&condition.message)
        );
    }
    text
}

/// The tokens to join with, a line each; nothing where there are none.
fn token_lines(tokens: &[JoinToken], now: DateTime<Utc>) -> String {
    if tokens.is_empty() {
        return String::new();
    }
    let mut text = "\nTokens to join with\n".to_owned();
    for token in tokens {
        let JoinToken { spec, status, .. } = token;
        let role = |role: &Role| match (role, &spec.bot_name) {
            (Role::Bot, Some(name)) => format!("Bot {}", printable(name)),
            (role, _) => format!("{role:?}"),
        };
        let roles: Vec<_> = spec.roles.iter().map(role).collect();
        let most = spec.max_uses.map(|most| format!(" of {most}")).unwrap_or_default();
        let end = match spec.expires {
            Some(at) if at <= now => format!("EXPIRED {}", relative(at, now)),
            Some(at) => format!("expires {}", relative(at, now)),
            None => "never expires".to_owned(),
        };
        let (name, roles) = (printable(token.name()), roles.join(", "));
        let _ = writeln!(text, "  {name}  {roles}  used {}{most}, {end}", status.uses);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shown_with_their_roles_uses_and_end() {
        let token = |name: &str, spec: serde_json::Value, uses: u64| {
            let mut spec = spec;
            spec["joinMethod"] = json!("spiffe");
            spec["spiffe"] = json!({ "allow": [{ "spiffeID": "spiffe://td.test/*" }] });
            let status = json!({ "uses": uses });
            let object = json!({ "metadata": { "name": name }, "spec": spec, "status": status });
            serde_json::from_value::<JoinToken>(object).unwrap()
        };
        let both = json!({ "roles": ["Bot", "Agent"], "botName": "deploy", "maxUses": 3 });
        let (soon, past) = ("2030-06-15T12:05:00Z", "2030-06-15T10:00:00Z");
        let tokens = [
            token("ci", both, 2),
            token("nodes", json!({ "roles": ["Agent"], "expires": soon }), 0),
            token("old", json!({ "roles": ["Agent"], "expires": past }), 7),
        ];
        let now = "2030-06-15T12:00:00Z".parse().unwrap();
        let expected = "
Tokens to join with
  ci  Bot deploy, Agent  used 2 of 3, never expires
  nodes  Agent  used 0, expires in 5m
  old  Agent  used 7, EXPIRED 2h ago
";
        assert_eq!(token_lines(&tokens, now), expected);
        assert_eq!(token_lines(&[], now), "");
        let document: serde_json::Value =
            serde_json::from_str(&document(None, &[], &[], &tokens)).unwrap();
        assert_eq!(document["authority"], serde_json::Value::Null);
        assert_eq!(document["tokens"][0]["uses"], 2);
        assert_eq!(document["tokens"][1]["expires"], soon);
    }
}
