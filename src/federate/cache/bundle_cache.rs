//! The authorities last fetched from peers, in a ConfigMap for the next process or leader. Without them a
//! peer would be verified by its bootstrap bundle, whose authorities may all have been replaced since.
//! SPIRE never reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::{
    api::spire_server::{Peer, Profile},
    federate::decide::render::PEERS,
    k8s::api_error::{self, ApiError},
    spiffe::bundle::Bundle,
};

/// The first line of an entry: the fingerprint of the bootstrap bundle. The authorities follow in PEM.
const BROUGHT: &str = "brought: ";
/// Of one entry. A ConfigMap holds 1 MiB, and there are at most 50 peers.
const MOST: usize = 16 * 1024;
/// The API server's limit.
const LONGEST_KEY: usize = 253;

#[derive(Clone, Debug)]
pub struct CachedBundle {
    /// The fingerprint of the bootstrap bundle at that time. If there is another one now, that one counts.
    pub brought: String,
    pub bundle: Arc<Bundle>,
}

/// By trust domain.
pub type BundleCache = BTreeMap<String, CachedBundle>;

/// Reads the ConfigMap if any peer needs it.
pub async fn load(
    client: &Client,
    namespace: &str,
    peers: &[Peer],
) -> Result<BundleCache, ApiError> {
    if peers.iter().all(|peer| peer.bundle_endpoint_profile != Profile::HttpsSpiffe) {
        return Ok(BundleCache::new());
    }
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = match api_error::with_timeout(api.get_opt(PEERS)).await {
        // Peers are polled all the same.
        Err(ApiError::Forbidden) => None,
        found => found?,
    };
    let data = found.and_then(|it| it.data).unwrap_or_default();
    // Damaged entries are ignored.
    Ok(data.into_iter().filter_map(|(name, text)| Some((name, read(&text)?))).collect())
}

pub fn data(cache: &BundleCache) -> BTreeMap<String, String> {
    let texts = cache.iter().map(|(name, kept)| (name.clone(), written(kept)));
    let fits = |(name, text): &(String, String)| is_key(name) && text.len() <= MOST;
    texts.filter(fits).collect()
}

/// ConfigMap keys allow all characters of a trust domain, but not in every order.
fn is_key(name: &str) -> bool {
    name.len() <= LONGEST_KEY && name != "." && !name.starts_with("..")
}

/// Whether both verify the same X.509-SVIDs.
pub fn same_authorities(one: &Bundle, other: &Bundle) -> bool {
    authorities(one) == authorities(other)
}

pub fn share_an_authority(one: &Bundle, other: &Bundle) -> bool {
    !authorities(one).is_disjoint(&authorities(other))
}

/// Sorted, because endpoints serve them in any order.
fn authorities(bundle: &Bundle) -> BTreeSet<&[u8]> {
    bundle.x509.iter().map(|authority| authority.der().as_ref()).collect()
}

fn read(text: &str) -> Option<CachedBundle> {
    let (brought, pem) = text.strip_prefix(BROUGHT)?.split_once('\n')?;
    Some(CachedBundle {
        brought: brought.to_owned(),
        bundle: Arc::new(Bundle::from_pem(pem).ok()?),
    })
}

fn written(kept: &CachedBundle) -> String {
    let authorities: String = authorities(&kept.bundle).into_iter().map(pem).collect();
    format!("{BROUGHT}{}\n{authorities}", kept.brought)
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = &*STANDARD.encode(der);
    while !rest.is_empty() {
        let (line, others) = rest.split_at(rest.len().min(64));
        text.extend([line, "\n"]);
        rest = others;
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiffe::testing::{self, Ca};

    fn kept(authorities: &[&Ca]) -> CachedBundle {
        let bundle = Arc::new(testing::bundle(authorities));
        CachedBundle { brought: "2c90:81e4".to_owned(), bundle }
    }

    #[test]
    fn what_was_kept_is_read_again_in_whatever_order_it_came() {
        let (a, b) = (Ca::new("a"), Ca::new("b"));
        let before = kept(&[&a, &b]);
        let after = read(&written(&before)).unwrap();
        assert_eq!(after.brought, before.brought);
        assert!(same_authorities(&after.bundle, &before.bundle));
        assert_eq!(written(&kept(&[&b, &a])), written(&before));
    }

    #[test]
    fn what_somebody_broke_is_as_good_as_nothing() {
        for text in ["", "brought: x", "brought: x\nnonsense", "-----BEGIN CERTIFICATE-----"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_trust_domain_that_is_no_key_of_a_config_map_keeps_no_other_from_being_kept() {
        let ca = Ca::new("a");
        let names = ["..", "..a", ".", "b.test"];
        let cached = names.map(|name| (name.to_owned(), kept(&[&ca])));
        let data = data(&BundleCache::from(cached));
        assert_eq!(data.keys().collect::<Vec<_>>(), ["b.test"]);
    }

    #[test]
    fn what_a_config_map_does_not_hold_is_left_out_and_takes_no_room_of_others() {
        let many: Vec<Ca> = (0..60).map(|number| Ca::new(&number.to_string())).collect();
        let cache = BundleCache::from([
            ("a.test".to_owned(), kept(&many.iter().collect::<Vec<_>>())),
            ("b.test".to_owned(), kept(&[&many[0]])),
            ("c".repeat(254), kept(&[&many[0]])),
        ]);
        assert_eq!(data(&cache).keys().collect::<Vec<_>>(), ["b.test"]);
    }
}
