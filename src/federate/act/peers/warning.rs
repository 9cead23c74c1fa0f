//! Oddities of a peer whose bundle is used all the same, as SPIRE does. Pure.

use chrono::{DateTime, Utc};

use crate::{
    api::spire_server::PeerStatus,
    spiffe::{bundle::Bundle, svid::SvidWarning},
};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerWarning {
    #[error(transparent)]
    Certificate(SvidWarning),
    #[error(
        "{count} of the {all} authorities for X.509 in its bundle are not yet valid, the last of them from {until}: workloads with certificates of those can't be verified before"
    )]
    NotYetValid { count: usize, all: usize, until: DateTime<Utc> },
    #[error(
        "the sequence of its bundle went back from {from} to {to}: an old one is served. Was its SPIRE server restored from a backup or set up again, or does more than one server answer there? SPIRE uses it all the same"
    )]
    SequenceWentBack { from: u64, to: u64 },
}

impl PeerWarning {
    /// The reason of the Event. It identifies the warning, because the peer chooses the numbers in its text.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Certificate(SvidWarning::ServerAuthAlone) => "PeerCertificateForServersAlone",
            Self::NotYetValid { .. } => "PeerAuthoritiesNotYetValid",
            Self::SequenceWentBack { .. } => "PeerSequenceWentBack",
        }
    }

    pub(super) fn of_authorities(bundle: &Bundle, now: DateTime<Utc>) -> Option<Self> {
        let early = bundle.x509.iter().map(|it| it.not_before).filter(|it| *it > now);
        let early: Vec<_> = early.collect();
        let until = early.iter().max().copied()?;
        Some(Self::NotYetValid { count: early.len(), all: bundle.x509.len(), until })
    }
}

/// The highest sequence number before it went back. It is reported until the number grows again. The status
/// decides, because an earlier process may have seen it.
pub(super) fn went_back_from(existing: &PeerStatus, sequence: Option<u64>) -> Option<u64> {
    let (before, now) = (existing.sequence?, sequence?);
    match now.cmp(&before) {
        std::cmp::Ordering::Less => Some(before.max(existing.sequence_went_back_from.unwrap_or(0))),
        std::cmp::Ordering::Equal => existing.sequence_went_back_from,
        std::cmp::Ordering::Greater => None,
    }
}
