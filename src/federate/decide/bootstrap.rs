//! What importing the first bundle of another trust domain does to a cluster. Pure.

mod import_plan;
mod listing;

use crate::{
    api::{
        federated_trust_domain::FederatedTrustDomain,
        spire_server::{Profile, SpireServer},
    },
    spiffe::bundle::Bundle,
};

pub use import_plan::ImportPlan;
#[cfg(test)]
pub(crate) use import_plan::object_name;
pub use listing::{Difference, Listing};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both clusters are of trust domain {0}; one can't federate with itself")]
pub struct SameTrustDomain(pub String);

/// A bundle that one cluster offers to another.
#[derive(Clone, Debug)]
pub struct Offer {
    pub trust_domain: String,
    /// Of the bundle endpoint.
    pub url: String,
    pub profile: Profile,
    /// The endpoint's SPIFFE ID, for `https_spiffe`.
    pub endpoint_id: Option<String>,
    pub bundle: Bundle,
    /// The text that `bundle` was parsed from.
    pub document: String,
}

/// The state of the importing cluster.
#[derive(Clone, Debug)]
pub struct Facts {
    pub server: SpireServer,
    pub existing: Vec<FederatedTrustDomain>,
}

#[cfg(test)]
impl Offer {
    /// The offer of td-b.test by https_spiffe.
    pub(in crate::federate) fn of_td_b(
        authorities: &[&crate::spiffe::testing::Ca],
        sequence: serde_json::Value,
    ) -> Self {
        let mut document = crate::spiffe::testing::document(authorities);
        document["spiffe_sequence"] = sequence;
        let document = document.to_string();
        Self {
            trust_domain: "td-b.test".to_owned(),
            url: "https://b.example".to_owned(),
            profile: Profile::HttpsSpiffe,
            endpoint_id: Some("spiffe://td-b.test/spire/server".to_owned()),
            bundle: Bundle::parse(document.as_bytes()).unwrap(),
            document,
        }
    }
}

impl Facts {
    pub fn plan(&self, offer: &Offer) -> Result<ImportPlan, SameTrustDomain> {
        match self.server.spec.trust_domain == offer.trust_domain {
            true => Err(SameTrustDomain(offer.trust_domain.clone())),
            false => Ok(ImportPlan::of(offer, &self.existing)),
        }
    }

    /// The bundle of a trust domain that an administrator imported before.
    pub(crate) fn brought(&self, trust_domain: &str) -> Option<Bundle> {
        import_plan::bundle(&import_plan::object_in_use(&self.existing, trust_domain)?.spec)
    }
}
