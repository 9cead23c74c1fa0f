//! Why a peer's bundle was not fetched, and how much of that is reported.

use chrono::{DateTime, Utc};

use crate::bundle::fetch::FetchError;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    #[error("{0}")]
    Unusable(String),
    #[error(
        "there is no bundle of {trust_domain} to know its server by. Fetch one with: trustplane federation bootstrap FROM TO, where FROM is the kubeconfig's context of that cluster, and TO that of this one. Or have its administrators send you a file, and bring that with: trustplane federation import FILE --fingerprint FINGERPRINT"
    )]
    NoBootstrap { trust_domain: String },
    #[error(
        "endpointSpiffeId is of the trust domain {found}, not of {expected}, and there is no bundle of {found}. Is it a mistake?"
    )]
    Elsewhere { found: String, expected: String },
    #[error(
        "all authorities for X.509 in its bundle have ended, so none of its workloads can be verified"
    )]
    Ended,
    #[error(
        "no authority for X.509 in its bundle is valid yet, the first will be at {from}, so none of its workloads can be verified: do the clocks agree?"
    )]
    NotYetValid { from: DateTime<Utc> },
    #[error("its bundle has no authority for X.509, so none of its workloads can be verified")]
    Empty,
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    #[error("{}", with_next_step(.0))]
    Fetch(#[from] FetchError),
    /// Details would show people who may add a peer what listens in an internal network.
    #[error(
        "unreachable. The log of trustplane federate says why, and with --peer-error-detail=all this does"
    )]
    Unreachable(FetchError),
}

/// The error, and where a newer bundle comes from.
fn with_next_step(error: &FetchError) -> String {
    if *error == FetchError::UnknownCa {
        return format!("{error}; the SPIRE server needs them too");
    }
    match error.wants_new_bundle() {
        true => format!(
            "{error}: fetch the bundle again with trustplane federation bootstrap or import"
        ),
        false => error.to_string(),
    }
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

    /// Whether the endpoint accepted a connection, and whether it proved its identity, as far as that may
    /// be reported.
    pub(super) fn reached_and_verified(&self) -> (bool, bool) {
        match self {
            Self::Fetch(error) => (error.reached(), error.verified()),
            Self::Empty | Self::Ended | Self::NotYetValid { .. } => (true, true),
            _ => (false, false),
        }
    }

    /// With all details, for the log.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Unreachable(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// For which peers the exact error is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorDetail {
    /// Peers with a public address. Many can read the status of the SpireServer, and people who may add a
    /// peer could probe the cluster's network with it.
    #[default]
    Public,
    All,
}

impl ErrorDetail {
    pub(super) fn of(self, error: FetchError, internal: bool) -> PeerError {
        match self {
            Self::Public if internal => PeerError::Unreachable(error),
            _ => PeerError::Fetch(error),
        }
    }
}
