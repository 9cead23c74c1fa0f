//! A bundle map: the bundles of many trust domains in one document, each under its own name.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{Bundle, BundleError, document::Document};
use crate::spiffe::id::{IdError, TrustDomain};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("not a bundle map: {0}")]
    Json(String),
    #[error("not a bundle map: it has no \"trust_domains\"")]
    NoTrustDomains,
    #[error("not a bundle map: {0}")]
    Name(#[from] IdError),
    #[error("not a bundle map: trust domain {0} is there twice")]
    Twice(TrustDomain),
    #[error("trust domain {trust_domain}: {error}")]
    Bundle { trust_domain: TrustDomain, error: BundleError },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BundleMap(BTreeMap<TrustDomain, Bundle>);

impl BundleMap {
    pub fn parse(document: &[u8]) -> Result<Self, MapError> {
        let document: MapDocument = serde_json::from_slice(document)
            .map_err(|error| MapError::Json(super::without_content(&error)))?;
        let mut bundles = BTreeMap::new();
        for (name, document) in document.trust_domains.ok_or(MapError::NoTrustDomains)?.0 {
            let trust_domain = TrustDomain::parse(&name)?;
            let bundle = Bundle::of(document)
                .map_err(|error| MapError::Bundle { trust_domain: trust_domain.clone(), error })?;
            if bundles.insert(trust_domain.clone(), bundle).is_some() {
                return Err(MapError::Twice(trust_domain));
            }
        }
        Ok(Self(bundles))
    }

    pub fn get(&self, trust_domain: &TrustDomain) -> Option<&Bundle> {
        self.0.get(trust_domain)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TrustDomain, &Bundle)> {
        self.0.iter()
    }
}

#[derive(Deserialize)]
struct MapDocument<'a> {
    #[serde(borrow)]
    trust_domains: Option<Entries<'a>>,
    /// Without it, serde would accept a list in place of an object.
    #[serde(flatten)]
    _others: IgnoredAny,
}

/// As in the text. serde's maps would keep only the last of two entries with the same name.
struct Entries<'a>(Vec<(String, Document<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bundles by trust domain")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries<'de>, M::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
