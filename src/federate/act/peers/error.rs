//! Why a peer's bundle was not fetched, and how much of that is told to whom.

use chrono::{DateTime, Utc};

use crate::bundle::fetch::FetchError;

/// Why a peer's bundle was not fetched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// What the SpireServer says of it can't work.
    #[error("{0}")]
    Unusable(String),
    /// There is nothing to know its server by.
    #[error(
        "there is no bundle of {trust_domain} to know its server by. Fetch one with: trustplane federation bootstrap FROM TO, where FROM is the kubeconfig's context of that cluster, and TO that of this one. Or have its administrators send you a file, and bring that with: trustplane federation import FILE --fingerprint FINGERPRINT"
    )]
    NoBootstrap {
        /// Of whose server.
        trust_domain: String,
    },
    /// The endpoint is to prove an identity of a trust domain that nobody knows, and not of its own.
    #[error(
        "endpointSpiffeId is of the trust domain {found}, not of {expected}, and there is no bundle of {found}. Is it a mistake?"
    )]
    Elsewhere {
        /// The trust domain in the identity.
        found: String,
        /// The peer's own.
        expected: String,
    },
    /// It offers nothing that is still good.
    #[error(
        "all authorities for X.509 in its bundle have ended, so none of its workloads can be verified"
    )]
    Ended,
    /// It offers nothing that is good already.
    #[error(
        "no authority for X.509 in its bundle is valid yet, the first will be at {from}, so none of its workloads can be verified: do the clocks agree?"
    )]
    NotYetValid {
        /// When the first of them will be.
        from: DateTime<Utc>,
    },
    /// It offers nothing to verify with.
    #[error("its bundle has no authority for X.509, so none of its workloads can be verified")]
    Empty,
    /// A fault of ours.
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    /// The endpoint was asked in vain.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The same, where saying more would tell what listens in a network that is not public to whoever may
    /// name a peer.
    #[error(
        "unreachable. The log of trustplane federate says why, and with --peer-error-detail=all this does"
    )]
    Unreachable(FetchError),
}

impl PeerError {
    /// Event deduplication key: the message, or only its category if the peer controls the text.
    pub fn topic(&self) -> String {
        use FetchError::{Bundle, Handshake, Redirected, Status, Svid};
        match self {
            Self::Fetch(Handshake(_) | Svid(_) | Bundle(_) | Redirected { .. } | Status(_))
            | Self::NotYetValid { .. } => {
                format!("what it says: {}", self.category())
            }
            ours => ours.to_string(),
        }
    }

    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "unusable",
            Self::NoBootstrap { .. } => "no-bootstrap",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Ended => "ended",
            Self::NotYetValid { .. } => "not-yet-valid",
            Self::Empty => "empty",
            Self::Panicked => "panic",
            Self::Fetch(error) => error.category(),
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// Whether the endpoint accepted a connection, and whether it proved who it is, as far as that may
    /// be said.
    pub(super) fn reached_and_verified(&self) -> (bool, bool) {
        match self {
            Self::Fetch(error) => (error.reached(), error.verified()),
            Self::Empty | Self::Ended | Self::NotYetValid { .. } => (true, true),
            _ => (false, false),
        }
    }

    /// All that is known, for the log.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Unreachable(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// Of which peers people are told what exactly went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDetail {
    /// Of those whose address is a public one. The status of the SpireServer is read by many, and who may
    /// name a peer could find out with it what listens in the cluster's network.
    #[default]
    Public,
    /// Of all.
    All,
}

impl ErrorDetail {
    /// What may be said of a fetch that failed.
    pub(super) fn of(self, error: FetchError, internal: bool) -> PeerError {
        match self {
            Self::Public if internal => PeerError::Unreachable(error),
            _ => PeerError::Fetch(error),
        }
    }
}
