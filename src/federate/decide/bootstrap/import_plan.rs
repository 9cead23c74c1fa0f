//! The write that imports an offer. Pure.

use super::Offer;
use crate::{
    api::federated_trust_domain::{
        EndpointProfile, FederatedTrustDomain, FederatedTrustDomainSpec,
    },
    federate::decide::{digest, render::CONTROLLER_MANAGER, trust},
    spiffe::bundle::Bundle,
};

#[derive(Clone, Debug)]
pub enum ImportPlan {
    /// The cluster has that bundle already.
    Nothing,
    Create {
        name: String,
        wanted: FederatedTrustDomainSpec,
        /// Objects of the trust domain for another controller manager. They stay.
        others: Vec<FederatedTrustDomain>,
    },
    Change {
        existing: Box<FederatedTrustDomain>,
        wanted: FederatedTrustDomainSpec,
    },
}

impl ImportPlan {
    pub(crate) fn of(offer: &Offer, existing: &[FederatedTrustDomain]) -> Self {
        let wanted = spec(offer);
        let taken =
            |name: &str| existing.iter().any(|it| it.metadata.name.as_deref() == Some(name));
        let name = Some(object_name(&wanted.trust_domain))
            .filter(|name| !taken(name))
            .unwrap_or_else(|| digest_name(&wanted.trust_domain));
        match object_in_use(existing, &wanted.trust_domain) {
            None => {
                let of_it = |it: &&FederatedTrustDomain| is_of(it, &wanted.trust_domain);
                let others = existing.iter().filter(of_it).cloned().collect();
                Self::Create { name, wanted, others }
            }
            Some(existing) if is_same(&existing.spec, &wanted) => Self::Nothing,
            Some(existing) => Self::Change { existing: Box::new(existing.clone()), wanted },
        }
    }
}

/// The oldest object of a trust domain: the one that our controller manager uses.
pub(super) fn object_in_use<'a>(
    existing: &'a [FederatedTrustDomain],
    trust_domain: &str,
) -> Option<&'a FederatedTrustDomain> {
    let ours = existing.iter().filter(|it| is_of(it, trust_domain));
    ours.filter(|it| trust::is_ours(it)).min_by_key(|it| trust::seniority(it))
}

fn is_of(domain: &FederatedTrustDomain, trust_domain: &str) -> bool {
    trust::trust_domain(&domain.spec.trust_domain) == trust_domain
}

fn spec(offer: &Offer) -> FederatedTrustDomainSpec {
    FederatedTrustDomainSpec {
        trust_domain: offer.trust_domain.clone(),
        bundle_endpoint_url: marked(&offer.url, &offer.bundle),
        bundle_endpoint_profile: EndpointProfile {
            r#type: offer.profile,
            endpoint_spiffe_id: offer.endpoint_id.clone(),
        },
        trust_domain_bundle: Some(offer.document.clone()),
        class_name: Some(CONTROLLER_MANAGER.to_owned()),
    }
}

/// The address with the beginning of the bundle's fingerprint as its fragment.
///
/// The controller manager hands a bundle to the SPIRE server only if the address or the profile changed; it
/// does not compare bundles. No client sends a fragment, and SPIRE keeps it.
fn marked(url: &str, bundle: &Bundle) -> String {
    let digits = bundle.fingerprint().replace(':', "");
    format!("{url}#{}", &digits[..16])
}

/// Compares documents by their keys, because the order of fields does not matter. Both are for our
/// controller manager, so neither does the class.
fn is_same(existing: &FederatedTrustDomainSpec, wanted: &FederatedTrustDomainSpec) -> bool {
    let same_keys = match (bundle(existing), bundle(wanted)) {
        (Some(existing), Some(wanted)) => existing.same_keys(&wanted),
        _ => false,
    };
    let without_bundle = |spec: &FederatedTrustDomainSpec| FederatedTrustDomainSpec {
        trust_domain_bundle: None,
        class_name: None,
        ..spec.clone()
    };
    same_keys && without_bundle(existing) == without_bundle(wanted)
}

/// None if it can't be parsed.
pub(super) fn bundle(spec: &FederatedTrustDomainSpec) -> Option<Bundle> {
    Bundle::parse(spec.trust_domain_bundle.as_deref().unwrap_or_default().as_bytes()).ok()
}

/// A trust domain may contain `_`, begin with `-` or be too long for the name of an object.
pub(crate) fn object_name(trust_domain: &str) -> String {
    let is_name = |label: &str| {
        let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric)
            && bytes.iter().all(|&c| alphanumeric(c) || c == b'-')
    };
    if trust_domain.len() <= 253 && trust_domain.split('.').all(is_name) {
        return trust_domain.to_owned();
    }
    digest_name(trust_domain)
}

fn digest_name(trust_domain: &str) -> String {
    format!("td-{}", &digest::digest(trust_domain)[..16])
}
