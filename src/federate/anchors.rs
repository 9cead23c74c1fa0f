//! What administrators brought of other trust domains. Pure.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{peers::Anchors, render};
use crate::{api::federated_trust_domain::FederatedTrustDomain, spiffe::bundle::Bundle};

/// The bundles that can be read; one that can't is as good as none, and its peer says so.
pub fn anchors(domains: &BTreeMap<String, FederatedTrustDomain>) -> Anchors {
    let bundle = |domain: &FederatedTrustDomain| {
        // One of another class is not heeded by our controller manager either.
        let class = domain.spec.class_name.as_deref().filter(|class| !class.is_empty());
        let ours = class.is_none_or(|class| class == render::CONTROLLER_MANAGER);
        let document = domain.spec.trust_domain_bundle.as_deref().filter(|_| ours)?;
        Some((domain.spec.trust_domain.clone(), Arc::new(Bundle::parse(document.as_bytes()).ok()?)))
    };
    // Of several for a trust domain the controller manager takes the oldest, so that comes last.
    let mut domains: Vec<_> = domains.values().collect();
    domains.sort_by_key(|it| Reverse(it.metadata.creation_timestamp.clone()));
    domains.into_iter().filter_map(bundle).collect()
}
