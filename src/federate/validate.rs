//! What the API server can't check about a SpireServer. Pure.
//!
//! Enums, bounds, patterns and what depends on another field are rules of the CRD. A URL, a SPIFFE
//! ID and the content of a Secret are looked at here, and everything that is wrong is told at once.

use std::{collections::BTreeSet, fmt};

use http::Uri;

use crate::{
    api::spire_server::{Acme, Federation, Peer, Profile, SpireServerSpec},
    spiffe::id::{SpiffeId, TrustDomain},
};

/// So many trust domains may be federated with.
pub const MOST_PEERS: usize = 50;

/// Something in a SpireServer that can't work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as kubectl names it.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub why: String,
}

impl Problem {
    /// In words.
    pub fn new(field: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { field: field.into(), why: why.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// Everything that is wrong with it, in the order of its fields.
pub fn problems(spec: &SpireServerSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Err(why) = TrustDomain::parse(&spec.trust_domain) {
        problems.push(Problem::new("spec.trustDomain", why));
    }
    if let Some(federation) = &spec.federation {
        problems.extend(endpoint(federation));
        problems.extend(peers(spec, federation));
    }
    problems
}

fn endpoint(federation: &Federation) -> Vec<Problem> {
    const FIELD: &str = "spec.federation.bundleEndpoint.httpsWeb";
    let endpoint = &federation.bundle_endpoint;
    let web = endpoint.https_web.as_ref();
    let mut problems = match (endpoint.profile, web.map(|web| (&web.acme, &web.serving_cert))) {
        (Profile::HttpsSpiffe, _)
        | (Profile::HttpsWeb, Some((Some(_), None) | (None, Some(_)))) => Vec::new(),
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
    // Without it the authority gives no certificate, and the endpoint never answers.
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
        (_, None | Some("")) => None,
        (_, Some(id)) => id_problem(id),
    };
    let trust_domain = trust_domain.map(|why| Problem::new("trustDomain", why));
    let url = url.map(|why| Problem::new("bundleEndpointUrl", why));
    let id = id.map(|why| Problem::new("endpointSpiffeId", why));
    [trust_domain, url, id].into_iter().flatten()
}

/// The SPIRE server takes an ID only as it would write it itself, and no server's has no path.
fn id_problem(text: &str) -> Option<String> {
    match SpiffeId::parse(text) {
        Err(why) => Some(why.to_string()),
        Ok(id) if id.path().is_empty() => Some("it names no server: it has no path".to_owned()),
        Ok(id) if id.to_string() != text => Some(format!("write it in lower case: {id}")),
        Ok(_) => None,
    }
}

/// Why a text can't be the address of a bundle endpoint or an ACME directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is no URL at all.
    #[error("it is not a URL")]
    NotAUrl,
    /// Another scheme.
    #[error("it must begin with https://")]
    NotHttps,
    /// `https://name@host`.
    #[error("it must not carry a user name or password")]
    UserInfo,
    /// `https:///path`, or characters that no host has.
    #[error("it names no host")]
    NoHost,
    /// `https://host:99999`.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// `https://host#part`.
    #[error("it must not have a fragment (#...)")]
    Fragment,
}

/// Checks the address of a bundle endpoint.
pub fn https_url(text: &str) -> Result<Uri, UrlError> {
    if !text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Err(UrlError::NotHttps);
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    let authority = text[8..].split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    let (host, port) = host_and_port(authority);
    if port.is_some_and(|port| !is_port(port)) {
        return Err(UrlError::Port);
    }
    let is_address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = is_address.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok());
    if !is_address && !is_host(host) {
        return Err(UrlError::NoHost);
    }
    // Go, which the SPIRE server is written in, refuses what is not escaped as it should be.
    let mut escapes = text.split('%').skip(1).map(|rest| rest.as_bytes());
    if escapes.any(|rest| rest.len() < 2 || !rest[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Err(UrlError::NotAUrl);
    }
    text.parse().map_err(|_| UrlError::NotAUrl)
}

fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_port(text: &str) -> bool {
    // Rust takes a sign, too.
    text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// A DNS name, or an IPv4 address, which looks like one.
pub fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    !text.is_empty() && text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests;
