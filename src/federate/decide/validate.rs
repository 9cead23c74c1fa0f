//! Validates a SpireServer. Pure.
//!
//! The CRD bounds enums and numbers. Values that would let an editor gain permissions, or keep the server
//! from starting, are also checked here, with the same messages: a cluster's CRD may be older than we are.

mod datastore;
mod duration;
mod labels;
mod pattern;
mod resources;
mod url;

use std::{collections::BTreeSet, fmt};

pub use self::url::{UrlError, https_url, is_host};
use crate::{
    api::spire_server::{Acme, Federation, Peer, Profile, SpireServerSpec},
    spiffe::id::{SpiffeId, TrustDomain},
};

/// Trust domains to federate with.
pub const MOST_PEERS: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As kubectl names it.
    pub field: String,
    /// With the remedy.
    pub why: String,
}

impl Problem {
    pub fn new(field: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { field: field.into(), why: why.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// All problems, in the order of the fields.
pub fn problems(spec: &SpireServerSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Err(why) = TrustDomain::parse(&spec.trust_domain) {
        problems.push(Problem::new("spec.trustDomain", why));
    }
    problems.extend(url::issuer_problem(&spec.jwt_issuer));
    problems.extend(duration::problems(spec));
    problems.extend(datastore::problems(&spec.datastore));
    if let Some(federation) = &spec.federation {
        problems.extend(endpoint(federation));
        problems.extend(peers(spec, federation));
    }
    problems.extend(labels::problems(spec));
    problems.extend(resources::problems(spec));
    problems
}

fn endpoint(federation: &Federation) -> Vec<Problem> {
    const FIELD: &str = "spec.federation.bundleEndpoint.httpsWeb";
    let endpoint = &federation.bundle_endpoint;
    let web = endpoint.https_web.as_ref();
    let mut problems = match (endpoint.profile, web.map(|web| (&web.acme, &web.serving_cert))) {
        (Profile::HttpsSpiffe, None)
        | (Profile::HttpsWeb, Some((Some(_), None) | (None, Some(_)))) => Vec::new(),
        (Profile::HttpsSpiffe, Some(_)) => {
            vec![Problem::new(FIELD, "it is for the profile https_web alone; remove it")]
        }
        (Profile::HttpsWeb, None) => {
            vec![Problem::new(FIELD, "it is needed for the profile https_web")]
        }
        (Profile::HttpsWeb, Some(_)) => {
            vec![Problem::new(FIELD, "exactly one of acme and servingCert must be set")]
        }
    };
    if let Some(acme) = web.and_then(|web| web.acme.as_ref()) {
        problems.extend(
            acme_problems(acme)
                .map(|it| Problem { field: format!("{FIELD}.acme.{}", it.field), ..it }),
        );
    }
    if let Some(host) = &federation.route_host
        && !is_host(host)
    {
        problems.push(Problem::new("spec.federation.routeHost", "it is not the name of a host"));
    }
    problems
}

fn acme_problems(acme: &Acme) -> impl Iterator<Item = Problem> {
    let directory = https_url(&acme.directory_url).err();
    let domain = (!is_host(&acme.domain_name)).then_some("it is not the name of a host");
    // Otherwise the authority issues no certificate, and the endpoint never answers.
    let terms = (acme.tos_accepted != "true")
        .then_some("the authority's terms are not accepted; read them, then set it to \"true\"");
    let directory = directory.map(|why| Problem::new("directoryUrl", why));
    let domain = domain.map(|why| Problem::new("domainName", why));
    let terms = terms.map(|why| Problem::new("tosAccepted", why));
    [directory, domain, terms].into_iter().flatten()
}

fn peers(spec: &SpireServerSpec, federation: &Federation) -> Vec<Problem> {
    let peers = &federation.federates_with;
    let mut problems = Vec::new();
    if peers.len() > MOST_PEERS {
        let why = format!("{} trust domains, where {MOST_PEERS} are the most", peers.len());
        problems.push(Problem::new("spec.federation.federatesWith", why));
    }
    let mut seen = BTreeSet::new();
    for (index, peer) in peers.iter().enumerate() {
        let field = |name: &str| format!("spec.federation.federatesWith[{index}].{name}");
        if peer.trust_domain == spec.trust_domain {
            let why = "a trust domain can't federate with itself";
            problems.push(Problem::new(field("trustDomain"), why));
        }
        if !seen.insert(&peer.trust_domain) {
            let why = format!("{} is listed twice", peer.trust_domain);
            problems.push(Problem::new(field("trustDomain"), why));
        }
        let wrong = peer_problems(peer);
        problems.extend(wrong.map(|it| Problem { field: field(&it.field), ..it }));
    }
    problems
}

fn peer_problems(peer: &Peer) -> impl Iterator<Item = Problem> {
    let trust_domain = TrustDomain::parse(&peer.trust_domain).err();
    let url = https_url(&peer.bundle_endpoint_url).err();
    let id = match (peer.bundle_endpoint_profile, peer.endpoint_spiffe_id.as_deref()) {
        (Profile::HttpsSpiffe, None | Some("")) => {
            Some("it is needed for the profile https_spiffe".to_owned())
        }
        (Profile::HttpsWeb, None | Some("")) => None,
        (Profile::HttpsWeb, Some(_)) => {
            Some("it is for the profile https_spiffe alone; remove it".to_owned())
        }
        (Profile::HttpsSpiffe, Some(id)) => id_problem(id),
    };
    let trust_domain = trust_domain.map(|why| Problem::new("trustDomain", why));
    let url = url.map(|why| Problem::new("bundleEndpointUrl", why));
    let id = id.map(|why| Problem::new("endpointSpiffeId", why));
    [trust_domain, url, id].into_iter().flatten()
}

/// The SPIRE server accepts an ID only in its normal form, and a server's ID has a path.
fn id_problem(text: &str) -> Option<String> {
    match SpiffeId::parse(text) {
        Err(why) => Some(why.to_string()),
        Ok(id) if id.path().is_empty() => Some("it names no server: it has no path".to_owned()),
        Ok(id) if id.to_string() != text => Some(format!("write it in lower case: {id}")),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests;
