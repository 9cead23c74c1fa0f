//! How the endpoint of a federation is verified.

use std::sync::Arc;

use http::Uri;

use crate::{
    api::spiffe_federation::{BundleSource, HttpsSpiffeSource, HttpsWebSource, SpiffeFederation},
    authority::decide::problem::Problem,
    spiffe::{
        bundle::Bundle,
        id::{SpiffeId, TrustDomain},
    },
};

/// Circles are looked for up to this many endpoints away.
const LONGEST_WAY: usize = 32;

/// Where the next bundle comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Static(String),
    Fetch { url: Uri, proof: Proof, follow_redirects: bool },
}

/// What an endpoint must prove.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// A certificate for its host by a CA of this PEM text, or of this machine; one of these keys if there
    /// are any.
    Web { ca_bundle: Option<String>, pins: Vec<[u8; 32]> },
    /// An SVID for this ID.
    Spiffe { id: SpiffeId, bundle: Arc<Bundle> },
}

/// The bundles that count, by trust domain; ours is among them.
pub trait KnownBundles {
    fn bundle(&self, trust_domain: &TrustDomain) -> Option<Arc<Bundle>>;
    /// The trust domain of the endpoint that the federation of this trust domain is fetched from, with
    /// https_spiffe.
    fn endpoint_of(&self, trust_domain: &TrustDomain) -> Option<TrustDomain>;
}

/// The trust domain whose bundle verifies the endpoint, with https_spiffe.
pub fn endpoint_trust_domain(source: &BundleSource) -> Option<TrustDomain> {
    let id = SpiffeId::parse(&source.https_spiffe.as_ref()?.endpoint_spiffe_id).ok()?;
    Some(id.trust_domain().clone())
}

pub fn source(
    federation: &SpiffeFederation,
    trust_domain: &TrustDomain,
    known: &impl KnownBundles,
) -> Result<Source, Problem> {
    match &federation.spec.bundle_source {
        BundleSource { fixed: Some(fixed), https_web: None, https_spiffe: None } => {
            Ok(Source::Static(fixed.bundle.clone()))
        }
        BundleSource { fixed: None, https_web: Some(web), https_spiffe: None } => by_web(web),
        BundleSource { fixed: None, https_web: None, https_spiffe: Some(spiffe) } => {
            by_spiffe(federation, spiffe, trust_domain, known)
        }
        // The CRD allows exactly one.
        _ => Err(Problem::ManySources),
    }
}

fn by_web(web: &HttpsWebSource) -> Result<Source, Problem> {
    let pin = |text: &String| {
        let bytes = hex::decode(text).ok().and_then(|it| <[u8; 32]>::try_from(it).ok());
        bytes.ok_or(Problem::Pin)
    };
    let pins = web.pins.iter().map(pin).collect::<Result<Vec<_>, _>>()?;
    let proof = Proof::Web { ca_bundle: web.ca_bundle.clone(), pins };
    let follow_redirects = web.follow_redirects.unwrap_or(true);
    Ok(Source::Fetch { url: url(&web.bundle_endpoint_url)?, proof, follow_redirects })
}

fn by_spiffe(
    federation: &SpiffeFederation,
    spiffe: &HttpsSpiffeSource,
    trust_domain: &TrustDomain,
    known: &impl KnownBundles,
) -> Result<Source, Problem> {
    let id = SpiffeId::parse(&spiffe.endpoint_spiffe_id).map_err(Problem::EndpointId)?;
    if id.path().is_empty() {
        return Err(Problem::EndpointIdWithoutPath);
    }
    let bundle = match id.trust_domain() == trust_domain {
        true => of_itself(federation, spiffe)?,
        false => of_another(id.trust_domain(), trust_domain, known)?,
    };
    let proof = Proof::Spiffe { id, bundle };
    let follow_redirects = spiffe.follow_redirects.unwrap_or(true);
    Ok(Source::Fetch { url: url(&spiffe.bundle_endpoint_url)?, proof, follow_redirects })
}

/// The bootstrap bundle first, then the latest that was fetched from this endpoint.
fn of_itself(
    federation: &SpiffeFederation,
    spiffe: &HttpsSpiffeSource,
) -> Result<Arc<Bundle>, Problem> {
    let status = &federation.status;
    let from = status.current_bundle_synced_from.as_ref().and_then(|it| it.https_spiffe.as_ref());
    let now = federation.spec.bundle_source.digested().https_spiffe;
    // An administrator who brings another bootstrap bundle, or names another server, means that one.
    let is_of_same = from.zip(now.as_ref()).is_some_and(|(from, now)| {
        from.bundle_bootstrap == now.bundle_bootstrap
            && from.endpoint_spiffe_id == now.endpoint_spiffe_id
    });
    if let Some(latest) = status.current_bundle.as_ref().filter(|_| is_of_same) {
        return Bundle::parse(latest.as_bytes()).map(Arc::new).map_err(Problem::StoredBundle);
    }
    let bootstrap = spiffe.bundle_bootstrap.as_ref().ok_or(Problem::NoBootstrap)?;
    Bundle::parse(bootstrap.as_bytes()).map(Arc::new).map_err(Problem::Bootstrap)
}

/// The endpoint lies in another trust domain, which must be trusted here already.
fn of_another(
    endpoint: &TrustDomain,
    trust_domain: &TrustDomain,
    known: &impl KnownBundles,
) -> Result<Arc<Bundle>, Problem> {
    if let Some(bundle) = known.bundle(endpoint) {
        return Ok(bundle);
    }
    let mut way = vec![trust_domain.clone(), endpoint.clone()];
    while let Some(next) = way.last().and_then(|last| known.endpoint_of(last)) {
        let is_circle = way.contains(&next);
        way.push(next);
        if is_circle {
            return Err(Problem::Circle(way));
        }
        if way.len() > LONGEST_WAY {
            break;
        }
    }
    Err(Problem::EndpointUnknown(endpoint.clone()))
}

fn url(text: &str) -> Result<Uri, Problem> {
    text.parse().map_err(|_| Problem::Url)
}

#[cfg(test)]
mod tests;
