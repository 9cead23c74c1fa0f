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

/// Both clusters are of one trust domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both clusters are of trust domain {0}; one can't federate with itself")]
pub struct SameTrustDomain(pub String);

/// What one cluster offers another.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its trust domain.
    pub trust_domain: String,
    /// Where its bundle is.
    pub url: String,
    /// Who vouches for that endpoint.
    pub profile: Profile,
    /// Which SPIFFE ID the endpoint has, for `https_spiffe`.
    pub endpoint_id: Option<String>,
    /// The bundle.
    pub bundle: Bundle,
    /// The same as a document.
    pub document: String,
}

/// What stands in the cluster that is to trust another.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its SpireServer.
    pub server: SpireServer,
    /// Its ClusterFederatedTrustDomains.
    pub standing: Vec<FederatedTrustDomain>,
}

impl Facts {
    /// What importing the offer would do.
    pub fn plan(&self, offer: &Offer) -> Result<ImportPlan, SameTrustDomain> {
        match self.server.spec.trust_domain == offer.trust_domain {
            true => Err(SameTrustDomain(offer.trust_domain.clone())),
            false => Ok(ImportPlan::of(offer, &self.standing)),
        }
    }

    /// The bundle that an administrator brought of a trust domain before.
    pub(crate) fn brought(&self, trust_domain: &str) -> Option<Bundle> {
        import_plan::bundle(&import_plan::heeded(&self.standing, trust_domain)?.spec)
    }
}
