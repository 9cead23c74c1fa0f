//! Whether a SpireServer lists the trust domain whose bundle is imported. Pure.
//!
//! The SPIRE server trusts the trust domains of its SpireServer and of all ClusterFederatedTrustDomains. One
//! that only the latter name is not visible in the SpireServer.

use http::Uri;

use super::Offer;
use crate::api::spire_server::{Peer, SpireServer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    Listed,
    /// It lists the trust domain with other values in these fields.
    Differently(Vec<Difference>),
    Unlisted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// As kubectl names it.
    pub field: &'static str,
    pub listed: String,
    pub offered: String,
}

impl Listing {
    pub fn of(server: &SpireServer, offer: &Offer) -> Self {
        let peers = server.spec.peers();
        match peers.iter().find(|peer| peer.trust_domain == offer.trust_domain) {
            None => Self::Unlisted,
            Some(peer) => match differences(peer, offer) {
                none if none.is_empty() => Self::Listed,
                some => Self::Differently(some),
            },
        }
    }
}

fn differences(peer: &Peer, offer: &Offer) -> Vec<Difference> {
    let none = || "none".to_owned();
    let same_url = match (peer.bundle_endpoint_url.parse(), offer.url.parse()) {
        (Ok(listed), Ok(offered)) => place(&listed) == place(&offered),
        _ => peer.bundle_endpoint_url == offer.url,
    };
    let id = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
    let (listed_id, offered_id) = (id(&peer.endpoint_spiffe_id), id(&offer.endpoint_id));
    let all = [
        (!same_url).then(|| Difference {
            field: "bundleEndpointUrl",
            listed: peer.bundle_endpoint_url.clone(),
            offered: offer.url.clone(),
        }),
        (peer.bundle_endpoint_profile != offer.profile).then(|| Difference {
            field: "bundleEndpointProfile",
            listed: peer.bundle_endpoint_profile.as_str().to_owned(),
            offered: offer.profile.as_str().to_owned(),
        }),
        (listed_id != offered_id).then(|| Difference {
            field: "endpointSpiffeId",
            listed: listed_id.unwrap_or_else(none),
            offered: offered_id.unwrap_or_else(none),
        }),
    ];
    all.into_iter().flatten().collect()
}

/// The same for `https://B.example:443` and `https://b.example/`.
fn place(url: &Uri) -> (Option<String>, u16, Option<&str>) {
    let host = url.host().map(|host| host.trim_end_matches('.').to_ascii_lowercase());
    let path = url.path_and_query().map(|it| it.as_str());
    (host, url.port_u16().unwrap_or(443), path.filter(|path| *path != "/"))
}
