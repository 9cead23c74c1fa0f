//! Other trust domains: whether their bundles are fetched, and whether SPIRE trusts unlisted ones.

use super::{ConditionValue, Findings};
use crate::{
    api::spire_server::{PeerStatus, SpireFetch},
    federate::decide::trust::Unlisted,
};

pub const PEERS: &str = "PeersReachable";
/// Also the reason of an Event about one peer.
pub const UNREACHABLE: &str = "PeersUnreachable";
/// We can fetch the bundle and the SPIRE server can't.
pub const SPIRE_CANNOT_FETCH: &str = "SpireCannotFetch";
pub const TRUST: &str = "TrustMatchesSpec";

/// SPIRE shows its own copies to nobody outside of its Pod.
const OBJECTS_ALONE: &str = "no ClusterFederatedTrustDomain is of a trust domain that is not listed. What the SPIRE server itself \
     has stored is not seen here: it keeps the bundle of a trust domain that was listed once, and gives it to entries that \
     federate with it, until somebody runs in the server's Pod: spire-server bundle delete -id spiffe://TRUST-DOMAIN \
     -mode dissociate";

/// A condition names at most this many.
const MOST_NAMED: usize = 10;

pub fn is_wrong(peer: &PeerStatus) -> bool {
    peer.last_error.is_some() || peer.spire_fetch == Some(SpireFetch::Failing)
}

/// Whether it was polled without a known problem.
pub fn is_well(peer: &PeerStatus) -> bool {
    peer.reachable && !is_wrong(peer)
}

/// For a column of kubectl.
pub fn summary(peers: &[PeerStatus]) -> String {
    let well = peers.iter().filter(|peer| is_well(peer)).count();
    format!("{well}/{}", peers.len())
}

/// Our own error comes first.
fn wrong(peer: &PeerStatus) -> Option<String> {
    let ours = peer.last_error.as_deref();
    let spire = || {
        let failing = peer.spire_fetch == Some(SpireFetch::Failing);
        failing.then(|| peer.spire_detail.as_deref().unwrap_or("SPIRE cannot fetch its bundle"))
    };
    Some(format!("{}: {}", peer.trust_domain, ours.or_else(spire)?))
}

/// None if there are no peers, or none was polled yet.
pub(super) fn peers(findings: &Findings) -> Option<ConditionValue> {
    let all = &findings.peers;
    // For a peer whose endpoint changed, only an earlier success is known.
    let asked = |it: &&PeerStatus| it.reachable || it.last_error.is_some();
    let asked = all.iter().filter(asked).count();
    let ever = all.iter().any(|it| it.last_success_time.is_some());
    if asked == 0 && !ever {
        return None;
    }
    let wrong: Vec<_> = all.iter().filter_map(wrong).collect();
    if !wrong.is_empty() {
        let unreachable = all.iter().any(|it| it.last_error.is_some());
        let reason = if unreachable { UNREACHABLE } else { SPIRE_CANNOT_FETCH };
        let message = format!("{} of {} peers: {}", wrong.len(), all.len(), wrong.join("\n"));
        return Some(ConditionValue::new(PEERS, "False", reason, message));
    }
    if asked < all.len() {
        let message = "some peers were not asked yet";
        return Some(ConditionValue::new(PEERS, "Unknown", "NotAllPeersAsked", message));
    }
    let unseen: Vec<_> =
        all.iter().filter(|it| it.spire_fetch != Some(SpireFetch::Ok)).map(unseen).collect();
    if unseen.is_empty() {
        return Some(ConditionValue::new(PEERS, "True", "AllPeersReachable", ""));
    }
    let message = format!(
        "trustplane fetches the bundle of every peer. Whether the SPIRE server does is not known:\n{}",
        unseen.join("\n")
    );
    Some(ConditionValue::new(PEERS, "Unknown", "SpireNotSeen", message))
}

fn unseen(peer: &PeerStatus) -> String {
    let why = peer.spire_detail.as_deref().unwrap_or("its metrics show no fetch yet");
    format!("{}: {why}", peer.trust_domain)
}

/// Whether SPIRE federates with trust domains that the SpireServer does not list.
pub(super) fn matches_spec(findings: &Findings) -> ConditionValue {
    let unlisted = &findings.unlisted;
    if unlisted.is_empty() {
        return ConditionValue::new(TRUST, "True", "OnlyListedTrustDomains", OBJECTS_ALONE);
    }
    let mut named: Vec<_> = unlisted.iter().take(MOST_NAMED).map(named).collect();
    if unlisted.len() > MOST_NAMED {
        named.push(format!("and {} more", unlisted.len() - MOST_NAMED));
    }
    let message = format!(
        "SPIRE goes on trusting what spec.federation.federatesWith does not list: {}. To end that trust, take the \
         trust domain out of federatesWith in every ClusterSPIFFEID and ClusterStaticEntry, delete the \
         ClusterFederatedTrustDomain, and run in the server's Pod: spire-server bundle delete -id \
         spiffe://TRUST-DOMAIN -mode dissociate. To keep it, list it",
        named.join(", ")
    );
    ConditionValue::new(TRUST, "False", "UnlistedTrustDomains", message)
}

fn named(unlisted: &Unlisted) -> String {
    let Unlisted { trust_domain, objects } = unlisted;
    format!("{trust_domain} (ClusterFederatedTrustDomain {})", objects.join(", "))
}
