//! What is known of our own bundle endpoint.

use crate::bundle::fetch::FetchError;

/// What is known of the endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum EndpointView {
    /// It can't be asked yet.
    Waiting(&'static str),
    /// It is about to be asked there.
    NotAsked(String),
    /// It was asked there.
    Answered(String, Result<(), EndpointError>),
}

/// What a peer would have met.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EndpointError {
    /// Its address can't be one, or what was published is no bundle.
    #[error("{0}")]
    Unusable(String),
    /// https_spiffe: somebody else's certificate.
    #[error(
        "what answers there does not prove to be the SPIRE server of {0} with an authority of ConfigMap spire-bundle. Does the router pass TLS through, and to this server?"
    )]
    Stranger(String),
    /// Another trust domain's bundle, or an old one.
    #[error(
        "the bundle there has none of the authorities that the SPIRE server published in ConfigMap spire-bundle. Does something else answer there?"
    )]
    Foreign,
    /// A fault of ours.
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    /// There is no bundle.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl EndpointError {
    /// Whether peers meet the same. A Pod may have no way to its own cluster's public address, and a CA
    /// that is unknown in here may be known to peers.
    pub fn is_conclusive(&self) -> bool {
        match self {
            Self::Fetch(FetchError::UnknownCa) | Self::Panicked => false,
            Self::Fetch(error) => error.reached(),
            Self::Unusable(_) | Self::Stranger(_) | Self::Foreign => true,
        }
    }
}
