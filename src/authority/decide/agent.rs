//! What an agent serves to workloads, and when it joins again.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::pki_types::CertificateDer;

use crate::{
    runtime::redact::Pkcs8Key,
    spiffe::{
        bundle::{Bundle, BundleError},
        id::{SpiffeId, TrustDomain},
        svid::{PresentedSvid, SvidError},
    },
};

/// Between two joins. It bounds what a server costs that signs with a CA which then leaves its bundle, or
/// whose CA ends so soon that halving what is left would never end.
pub const SHORTEST_PAUSE: TimeDelta = TimeDelta::seconds(1);
/// The part of an SVID's life by which its renewal is moved at most, so that agents that started together
/// do not renew together.
const JITTER: f64 = 0.1;

/// An SVID of our trust domain.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedSvid {
    pub id: SpiffeId,
    /// The SVID first, then its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: Pkcs8Key,
    /// Inclusive.
    pub not_after: DateTime<Utc>,
}

/// A bundle, and the document that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct TrustedBundle {
    pub bundle: Bundle,
    pub document: String,
}

/// All bundles that count at one moment. Ours is among them.
#[derive(Clone, Debug, PartialEq)]
pub struct TrustedBundles {
    own: TrustDomain,
    bundles: BTreeMap<TrustDomain, TrustedBundle>,
    /// Trust domains whose bundles can't be used, so that nobody of theirs is trusted.
    pub unusable: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundlesError {
    #[error("the server sent no bundle of its own trust domain {0}. Is --trust-domain right?")]
    NoOwn(TrustDomain),
    #[error("the server's bundle of its own trust domain {0} can't be used: {1}")]
    Own(TrustDomain, BundleError),
}

impl TrustedBundles {
    /// Reads what a server sent. The bundle of another trust domain that can't be read is left out: one
    /// trust domain's fault is not another's.
    pub fn read(
        own: &TrustDomain,
        received: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, BundlesError> {
        let (mut bundles, mut unusable) = (BTreeMap::new(), BTreeMap::new());
        for (name, document) in received {
            let trust_domain = match TrustDomain::parse(name) {
                Ok(trust_domain) => trust_domain,
                Err(error) => {
                    unusable.insert(name.clone(), error.to_string());
                    continue;
                }
            };
            match Bundle::parse(document) {
                Ok(bundle) => {
                    let document = String::from_utf8_lossy(document).into_owned();
                    bundles.insert(trust_domain, TrustedBundle { bundle, document });
                }
                Err(error) if trust_domain == *own => {
                    return Err(BundlesError::Own(trust_domain, error));
                }
                Err(error) => {
                    unusable.insert(name.clone(), error.to_string());
                }
            }
        }
        match bundles.contains_key(own) {
            true => Ok(Self { own: own.clone(), bundles, unusable }),
            false => Err(BundlesError::NoOwn(own.clone())),
        }
    }

    pub fn get(&self, trust_domain: &TrustDomain) -> Option<&Bundle> {
        self.bundles.get(trust_domain).map(|it| &it.bundle)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TrustDomain, &TrustedBundle)> {
        self.bundles.iter()
    }

    pub fn own(&self) -> (&TrustDomain, Option<&Bundle>) {
        (&self.own, self.get(&self.own))
    }

    /// Those of other trust domains.
    pub fn federated(&self) -> impl Iterator<Item = (&TrustDomain, &TrustedBundle)> {
        self.bundles.iter().filter(|(trust_domain, _)| **trust_domain != self.own)
    }
}

/// All that an agent serves at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub svid: Arc<IssuedSvid>,
    pub bundles: Arc<TrustedBundles>,
}

impl Snapshot {
    /// An agent that is cut off serves for this long, and no longer.
    pub fn is_served_at(&self, now: DateTime<Utc>) -> bool {
        now <= self.svid.not_after
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalCause {
    HalfLife,
    /// Nobody who has the newest bundle accepts the SVID any more.
    NotInBundle(SvidError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub at: DateTime<Utc>,
    pub cause: RenewalCause,
}

/// When to join again: half-way between the join and the end, moved by a `chance` of 0 to 1, or at once when
/// the SVID's CA has left the bundle.
pub fn renewal(
    snapshot: &Snapshot,
    joined_at: DateTime<Utc>,
    chance: f64,
    now: DateTime<Utc>,
) -> Renewal {
    let svid = &snapshot.svid;
    let (trust_domain, bundle) = snapshot.bundles.own();
    let verified = match bundle {
        Some(bundle) => PresentedSvid::read(&svid.chain).and_then(|it| it.verify(bundle, now)),
        None => Err(SvidError::NoAuthority(trust_domain.clone())),
    };
    let (at, cause) = match verified {
        Err(error) => (now, RenewalCause::NotInBundle(error)),
        Ok(_) => {
            // The server sets the beginning back, so it says nothing.
            let life = (svid.not_after - joined_at).as_seconds_f64();
            let part = 0.5 + JITTER * (chance.clamp(0.0, 1.0) * 2.0 - 1.0);
            let after = TimeDelta::milliseconds((life * part * 1000.0) as i64);
            (joined_at + after, RenewalCause::HalfLife)
        }
    };
    Renewal { at: at.max(joined_at + SHORTEST_PAUSE), cause }
}

#[cfg(test)]
mod tests;
