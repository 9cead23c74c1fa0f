//! What is odd about a peer whose bundle is used all the same, as SPIRE does. Pure.

use chrono::{DateTime, Utc};

use crate::{
    api::spire_server::PeerStatus,
    spiffe::{bundle::Bundle, svid::SvidWarning},
};

/// Something that its administrators should look at.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerWarning {
    /// Its endpoint's certificate is not what SPIFFE asks for.
    #[error(transparent)]
    Certificate(SvidWarning),
    /// Not all of its authorities are good already.
    #[error(
        "{count} of the {all} authorities for X.509 in its bundle are not yet valid, the last of them from {until}: workloads with certificates of those can't be verified before"
    )]
    NotYetValid {
        /// How many.
        count: usize,
        /// Of so many.
        all: usize,
        /// When all of them will be.
        until: DateTime<Utc>,
    },
    /// The bundle has a lower number than the one before it.
    #[error(
        "the sequence of its bundle went back from {from} to {to}: an old one is served. Was its SPIRE server restored from a backup or set up again, or does more than one server answer there? SPIRE uses it all the same"
    )]
    SequenceWentBack {
        /// The number before.
        from: u64,
        /// The number now.
        to: u64,
    },
}

impl PeerWarning {
    /// Why an Event tells of it. Its texts hold numbers that the peer chooses, so this, and not they, tells
    /// one warning from another.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Certificate(SvidWarning::ServerAuthAlone) => "PeerCertificateForServersAlone",
            Self::NotYetValid { .. } => "PeerAuthoritiesNotYetValid",
            Self::SequenceWentBack { .. } => "PeerSequenceWentBack",
        }
    }

    /// Where some of a bundle's authorities are not yet valid.
    pub(super) fn of_authorities(bundle: &Bundle, now: DateTime<Utc>) -> Option<Self> {
        let early = bundle.x509.iter().map(|it| it.not_before).filter(|it| *it > now);
        let early: Vec<_> = early.collect();
        let until = early.iter().max().copied()?;
        Some(Self::NotYetValid { count: early.len(), all: bundle.x509.len(), until })
    }
}

/// The highest number that a bundle had before it went back to this one. It is told until the next bundle
/// with a higher number than now: from then on the peer goes forward again. An earlier process may have
/// seen it, so what stands in the status decides.
pub(super) fn went_back_from(standing: &PeerStatus, sequence: Option<u64>) -> Option<u64> {
    let (before, now) = (standing.sequence?, sequence?);
    match now.cmp(&before) {
        std::cmp::Ordering::Less => Some(before.max(standing.sequence_went_back_from.unwrap_or(0))),
        std::cmp::Ordering::Equal => standing.sequence_went_back_from,
        std::cmp::Ordering::Greater => None,
    }
}
