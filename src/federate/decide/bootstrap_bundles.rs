//! The first bundles of other trust domains, imported by administrators as
//! ClusterFederatedTrustDomains. Pure.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use crate::{
    api::federated_trust_domain::{FederatedTrustDomain, FederatedTrustDomainSpec},
    federate::decide::trust,
    spiffe::bundle::Bundle,
};

pub type BootstrapBundles = BTreeMap<String, Arc<Bundle>>;

/// An unreadable bundle is left out, and its peer's error says so.
pub fn bootstrap_bundles(domains: &BTreeMap<String, FederatedTrustDomain>) -> BootstrapBundles {
    let mut domains: Vec<_> = domains.values().filter(|it| trust::is_ours(it)).collect();
    // The last of several for a trust domain stays in the map.
    domains.sort_by_key(|it| Reverse(trust::seniority(it)));
    let named = |it: &FederatedTrustDomain| trust::trust_domain(&it.spec.trust_domain).to_owned();
    let oldest: BTreeMap<_, _> = domains.into_iter().map(|it| (named(it), &it.spec)).collect();
    let bundle = |(name, spec): (String, &FederatedTrustDomainSpec)| {
        let document = spec.trust_domain_bundle.as_deref()?;
        Some((name, Arc::new(Bundle::parse(document.as_bytes()).ok()?)))
    };
    oldest.into_iter().filter_map(bundle).collect()
}
