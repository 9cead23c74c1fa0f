//! What is known of our own bundle endpoint.

use crate::bundle::fetch::FetchError;

#[derive(Clone, Debug, PartialEq)]
pub enum EndpointView {
    /// It can't be polled yet.
    Waiting(&'static str),
    NotAsked(String),
    Answered(String, Result<(), EndpointError>),
}

/// What a peer would see.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EndpointError {
    #[error("{0}")]
    Unusable(String),
    #[error(
        "what answers there does not prove to be the SPIRE server of {0} with an authority of ConfigMap spire-bundle. Does the router pass TLS through, and to this server?"
    )]
    Stranger(String),
    /// Another trust domain's bundle, or an old one.
    #[error(
        "the bundle there has none of the authorities that the SPIRE server published in ConfigMap spire-bundle. Does something else answer there?"
    )]
    Foreign,
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl EndpointError {
    /// Whether peers see the same. A Pod may be unable to reach its own cluster's public address, and peers
    /// may know a CA that is unknown here.
    pub fn is_conclusive(&self) -> bool {
        match self {
            Self::Fetch(FetchError::UnknownCa) | Self::Panicked => false,
            Self::Fetch(error) => error.reached(),
            Self::Unusable(_) | Self::Stranger(_) | Self::Foreign => true,
        }
    }
}
