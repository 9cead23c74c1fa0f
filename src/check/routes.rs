//! The Routes and the Secrets that they ask for, read once and counted. `count` is pure; nothing of
//! a certificate or key is kept but fingerprints and warnings.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use kube::{Client, Resource};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use super::found::Answer;
use crate::{
    api::{
        resource::resource,
        route::{GROUP, Route, VERSION},
        secret::{Secret, TLS_TYPE},
    },
    inject::{
        decide::{
            condition::PublishedCondition,
            facts::{RequestedSecret, RouteFacts, Tls, WriteAccess, wildcard},
            state::{Reason, State},
        },
        inventory::every,
    },
    k8s::{api_error::ApiError, decode::MaybeDecoded, object_ref::ObjectRef},
    tls::{self, Fingerprint, Warning},
};

/// Characters of a text that is not ours: it may be of any length.
const LONGEST: usize = 60;

/// The TLS Secrets, each with the fingerprint of its pair; none where it is no text.
pub type Secrets = HashMap<ObjectRef, Option<Fingerprint>>;

/// The Routes, counted. Only those that ask for a Secret and are ours to write are examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutesFound {
    pub all: usize,
    /// Those that ask for a Secret and are ours to write.
    pub annotated: usize,
    /// Of these, those with the certificate and key that their Secret has now.
    pub current: Answer<usize>,
    /// Those with a certificate and key that we injected, whatever the Secret has now.
    pub injected: usize,
    /// Those that ask, but belong to an Ingress.
    pub left_alone: usize,
    /// Those that would ask if their annotation were not misspelt, with its key.
    pub misspelt: Vec<(ObjectRef, String)>,
    /// Those that ask and do not have what they ask for, with the reason where it is known.
    pub failing: Vec<(ObjectRef, Option<String>)>,
    /// Those that name a TLS Secret that is not there, with its name.
    pub without_secret: Answer<Vec<(ObjectRef, String)>>,
    pub undecodable: Vec<ObjectRef>,
    /// From here on by their certificates. If one can't be read, its dates and hosts are unknown.
    pub unreadable: Vec<ObjectRef>,
    pub expired: Vec<ObjectRef>,
    pub expiring: Vec<ObjectRef>,
    pub not_yet_valid: Vec<ObjectRef>,
    pub wrong_host: Vec<ObjectRef>,
    /// Those that a router refuses, with the router and its reason.
    pub refused: Vec<(ObjectRef, String)>,
}

/// The injector's facts about a Route, and what clients and routers object to.
#[derive(Clone, Debug)]
pub struct RouteSeen {
    facts: RouteFacts,
    /// None where the certificate can't be read.
    warnings: Option<Vec<Warning>>,
    refusal: Option<String>,
}

/// Reads the Routes of these namespaces, or of all where none is named, and what they ask for.
pub async fn gather(
    client: &Client,
    namespaces: &[String],
    now: DateTime<Utc>,
) -> Answer<RoutesFound> {
    let (mut seen, mut undecodable) = (Vec::new(), Vec::new());
    every(client, namespaces, None, |route: MaybeDecoded<ListedRoute>| match &route {
        MaybeDecoded::Decoded(route) => seen.push(RouteSeen::of(route, now)),
        MaybeDecoded::Undecodable(meta) => undecodable.push(ObjectRef::of(meta)),
    })
    .await?;
    // If no Route names a Secret, none has to be read.
    let asks = seen.iter().any(|route| route.facts.deciding_secret().is_some());
    let secrets = if asks { secrets(client, namespaces).await } else { Ok(Secrets::new()) };
    Ok(RoutesFound::count(&seen, undecodable, secrets))
}

async fn secrets(client: &Client, namespaces: &[String]) -> Answer<Secrets> {
    let mut found = Secrets::new();
    let tls = format!("type={TLS_TYPE}");
    every(client, namespaces, Some(&tls), |secret: MaybeDecoded<Secret>| {
        let fingerprint = match &secret {
            MaybeDecoded::Decoded(secret) => fingerprint(secret),
            MaybeDecoded::Undecodable(_) => None,
        };
        found.insert(ObjectRef::of(secret.meta()), fingerprint);
    })
    .await?;
    Ok(found)
}

fn fingerprint(secret: &Secret) -> Option<Fingerprint> {
    let [certificate, key] = [&secret.data.certificate, &secret.data.key]
        .map(|bytes| std::str::from_utf8(bytes.expose()).ok());
    Some(Fingerprint::of(certificate?, key?))
}

impl RouteSeen {
    fn of(listed: &ListedRoute, now: DateTime<Utc>) -> Self {
        let ListedRoute { route, ingress } = listed;
        let facts = RouteFacts::read(route);
        let certificate = route.spec.tls.as_ref().and_then(|tls| tls.certificate.as_deref());
        let terminated = matches!(facts.tls, Tls::Terminated { .. });
        let certificate = certificate.filter(|text| terminated && !text.is_empty());
        let host = route.spec.host.as_deref().unwrap_or_default();
        let wildcard = wildcard(route.spec.wildcard_policy.as_deref());
        let warnings = match certificate.map(tls::describe) {
            None => Some(Vec::new()),
            Some(described) => described.map(|it| tls::warnings(&it, host, wildcard, now)),
        };
        let refusal = ingress.iter().find_map(Ingress::refusal);
        Self { facts, warnings, refusal }
    }

    fn is_injected(&self) -> bool {
        self.facts.holding().state() == State::Managed
    }

    /// Whether it holds the current pair of its Secret.
    fn is_current(&self, secrets: &Secrets) -> bool {
        let wanted = self.facts.deciding_secret().and_then(|it| *secrets.get(&it)?);
        wanted.is_some() && wanted == self.facts.holding().pair()
    }

    fn warns(&self, kind: fn(&Warning) -> bool) -> bool {
        self.warnings.iter().flatten().any(kind)
    }
}

impl RoutesFound {
    pub fn count(
        seen: &[RouteSeen],
        undecodable: Vec<ObjectRef>,
        secrets: Answer<Secrets>,
    ) -> Self {
        let of = |write_access| {
            seen.iter().filter(move |route| route.facts.write_access == write_access)
        };
        let annotated: Vec<_> =
            of(WriteAccess::Free).filter(|it| it.facts.is_annotated()).collect();
        let those = |wanted: &dyn Fn(&RouteSeen) -> bool| -> Vec<ObjectRef> {
            let found = annotated.iter().filter(|route| wanted(route));
            found.map(|route| route.facts.at.clone()).collect()
        };
        let warned = |kind: fn(&Warning) -> bool| those(&|route| route.warns(kind));
        let compared = secrets.as_ref().map_err(ApiError::clone);
        let holds = |route: &&&RouteSeen| match &compared {
            Ok(secrets) => route.is_current(secrets),
            // Without a comparison nothing is called wrong.
            Err(_) => route.is_injected(),
        };
        let fails = |route: &&&RouteSeen| {
            let injected = |it: &PublishedCondition| it.reason == Some(Reason::SecretInjected);
            !holds(route) || route.facts.conditions.first().is_some_and(|it| !injected(it))
        };
        let misspelt = |route: &RouteSeen| match &route.facts.requested {
            RequestedSecret::Misspelt(key) => Some((route.facts.at.clone(), shown(key))),
            _ => None,
        };
        let absent = |route: &&RouteSeen, secrets: &Secrets| {
            let secret = route.facts.deciding_secret().filter(|it| !secrets.contains_key(it))?;
            Some((route.facts.at.clone(), secret.name.to_string()))
        };
        Self {
            all: seen.len() + undecodable.len(),
            annotated: annotated.len(),
            current: compared.clone().map(|_| annotated.iter().filter(holds).count()),
            injected: of(WriteAccess::Free).filter(|route| route.is_injected()).count(),
            left_alone: of(WriteAccess::Ingress).filter(|it| it.facts.is_annotated()).count(),
            misspelt: of(WriteAccess::Free).filter_map(misspelt).collect(),
            failing: annotated
                .iter()
                .filter(fails)
                .map(|route| (route.facts.at.clone(), reason(&route.facts)))
                .collect(),
            without_secret: compared
                .map(|secrets| annotated.iter().filter_map(|it| absent(it, secrets)).collect()),
            undecodable,
            unreadable: those(&|route| route.warnings.is_none()),
            expired: warned(|it| matches!(it, Warning::Expired { .. })),
            expiring: warned(|it| matches!(it, Warning::Expiring { .. })),
            not_yet_valid: warned(|it| matches!(it, Warning::NotYetValid { .. })),
            wrong_host: warned(|it| matches!(it, Warning::HostNotCovered { .. })),
            refused: annotated
                .iter()
                .filter_map(|route| Some((route.facts.at.clone(), route.refusal.clone()?)))
                .collect(),
        }
    }
}

/// The reason in its condition; that all is well is not believed here.
fn reason(route: &RouteFacts) -> Option<String> {
    match route.conditions.first()?.reason? {
        Reason::SecretInjected => {
            let secret = route.secret()?;
            Some(format!("not the certificate and key of Secret {}", secret.name))
        }
        reason => Some(reason.as_str().to_owned()),
    }
}

/// A text that is not ours, escaped and cut.
fn shown(text: &str) -> String {
    text.escape_debug().take(LONGEST).collect()
}

/// A Route with what routers say about it.
#[derive(Clone, Debug)]
struct ListedRoute {
    route: Route,
    ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ingress {
    router_name: Option<String>,
    conditions: Vec<IngressCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IngressCondition {
    r#type: String,
    status: String,
    reason: Option<String>,
}

impl Ingress {
    /// Why this router does not serve the Route.
    fn refusal(&self) -> Option<String> {
        let refuses = |it: &&IngressCondition| it.r#type == "Admitted" && it.status == "False";
        let condition = self.conditions.iter().find(refuses)?;
        let escaped = |text: &Option<String>, otherwise: &str| {
            shown(text.as_deref().filter(|text| !text.is_empty()).unwrap_or(otherwise))
        };
        let reason = escaped(&condition.reason, "no reason");
        Some(format!("{reason}, router {}", escaped(&self.router_name, "without a name")))
    }
}

/// The controller has no use for `.status.ingress`, so its own type does not read it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Admission {
    status: AdmissionStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AdmissionStatus {
    ingress: Vec<Ingress>,
}

impl<'de> Deserialize<'de> for ListedRoute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        // The reason may quote what it could not decode, and nobody needs it.
        let unreadable = |_| D::Error::custom("not a Route");
        let route = serde_json::from_str(text).map_err(unreadable)?;
        let admission: Admission = serde_json::from_str(text).map_err(unreadable)?;
        Ok(Self { route, ingress: admission.status.ingress })
    }
}

resource!(ListedRoute, NamespaceResourceScope, GROUP, VERSION, "Route", "routes", of: route);

#[cfg(test)]
mod tests;
