//! Where the bundle of a federation comes from, and who vouches for that endpoint.

use std::{collections::BTreeMap, sync::Arc};

use super::Authority;
use crate::{
    api::spiffe_federation::SpiffeFederation,
    authority::decide::{
        eligibility,
        endpoint::{self, KnownBundles, Source},
        problem::Problem,
        summary::Summary,
        sync::TRUSTED,
    },
    k8s::api_error::ApiError,
    runtime::lock::lock,
    spiffe::{bundle::Bundle, id::TrustDomain},
};

impl Authority {
    pub(super) async fn source(
        &self,
        federation: &SpiffeFederation,
        trust_domain: &TrustDomain,
    ) -> Result<Result<Source, Problem>, ApiError> {
        let endpoint = endpoint::endpoint_trust_domain(&federation.spec.bundle_source);
        let voucher = match endpoint.filter(|it| it != trust_domain) {
            Some(other) => self.bundle_of(&other).await?.map(|bundle| (other, bundle)),
            None => None,
        };
        let known = lock(&self.federations);
        let known =
            KnownFederations { federations: &known, own: &self.options.trust_domain, voucher };
        Ok(endpoint::source(federation, trust_domain, &known))
    }

    /// The bundle of a trust domain, if it counts now.
    async fn bundle_of(&self, trust_domain: &TrustDomain) -> Result<Option<Arc<Bundle>>, ApiError> {
        let own = &self.options.trust_domain;
        if trust_domain == own {
            return Ok(self.own_bundle());
        }
        let name = {
            let known = lock(&self.federations);
            find(&known, trust_domain, own).map(|it| it.name().to_owned())
        };
        let Some(name) = name else { return Ok(None) };
        let found = self.writer.load_federation(&name).await?;
        Ok(found.filter(|it| is_of(it, trust_domain)).and_then(|it| trusted_bundle(&it)))
    }
}

fn is_of(federation: &SpiffeFederation, trust_domain: &TrustDomain) -> bool {
    federation.trust_domain().eq_ignore_ascii_case(trust_domain.as_str())
        && federation.metadata.deletion_timestamp.is_none()
}

fn trusted_bundle(federation: &SpiffeFederation) -> Option<Arc<Bundle>> {
    let is_trusted = federation.condition(TRUSTED).is_some_and(|it| it.status == "True");
    let document = federation.status.current_bundle.as_ref().filter(|_| is_trusted)?;
    Bundle::parse(document.as_bytes()).ok().map(Arc::new)
}

/// Those that are not being deleted.
pub(super) fn counting(
    known: &BTreeMap<String, Arc<Summary>>,
) -> impl Iterator<Item = &SpiffeFederation> {
    let all = known.values().map(|it| &it.outline);
    all.filter(|it| it.metadata.deletion_timestamp.is_none())
}

/// The federation that counts for a trust domain.
fn find<'a>(
    known: &'a BTreeMap<String, Arc<Summary>>,
    trust_domain: &TrustDomain,
    own: &TrustDomain,
) -> Option<&'a SpiffeFederation> {
    let counts = |it: &&SpiffeFederation| {
        eligibility::trust_domain(it, counting(known), own).is_ok_and(|it| it == *trust_domain)
    };
    counting(known).filter(|it| is_of(it, trust_domain)).find(counts)
}

/// Which federations there are, and the one bundle that is needed of them.
struct KnownFederations<'a> {
    federations: &'a BTreeMap<String, Arc<Summary>>,
    own: &'a TrustDomain,
    voucher: Option<(TrustDomain, Arc<Bundle>)>,
}

impl KnownBundles for KnownFederations<'_> {
    fn bundle(&self, trust_domain: &TrustDomain) -> Option<Arc<Bundle>> {
        let (of, bundle) = self.voucher.as_ref()?;
        (of == trust_domain).then(|| bundle.clone())
    }

    fn endpoint_of(&self, trust_domain: &TrustDomain) -> Option<TrustDomain> {
        let federation = find(self.federations, trust_domain, self.own)?;
        let endpoint = endpoint::endpoint_trust_domain(&federation.spec.bundle_source);
        endpoint.filter(|it| it != trust_domain)
    }
}
