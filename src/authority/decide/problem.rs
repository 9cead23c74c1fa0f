//! Why a federation has no new bundle, or no bundle at all.

use crate::{
    bundle::fetch::FetchError,
    spiffe::{
        bundle::BundleError,
        id::{IdError, TrustDomain},
    },
};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error(
        "the trust domain is not valid: {0}. Delete this object, and create one with a valid spec.trustDomain"
    )]
    TrustDomain(IdError),
    #[error("this is our own trust domain, whose bundle comes from our own CA. Delete this object")]
    OwnTrustDomain,
    #[error(
        "SPIFFEFederation {of} is for the same trust domain and is older, so it counts. Delete one of the two"
    )]
    Duplicate { of: String },
    #[error("somebody deleted this object, and finalizers keep it. Trust has ended")]
    Deleting,
    #[error("spec.bundleSource must have exactly one source")]
    ManySources,
    #[error("the static bundle can't be used: {0}")]
    StaticBundle(BundleError),
    #[error(
        "spec.bundleSource.httpsSPIFFE.bundleBootstrap is missing: the first fetch is verified with it"
    )]
    NoBootstrap,
    #[error("spec.bundleSource.httpsSPIFFE.bundleBootstrap can't be used: {0}")]
    Bootstrap(BundleError),
    #[error(
        "the stored bundle can't be read any more ({0}). Change bundleBootstrap to start again"
    )]
    StoredBundle(BundleError),
    #[error("endpointSPIFFEID is not valid: {0}")]
    EndpointId(IdError),
    #[error("endpointSPIFFEID names a trust domain, not a server in it: it needs a path")]
    EndpointIdWithoutPath,
    #[error("bundleEndpointURL can't be read")]
    Url,
    #[error("caBundle holds no CA certificate in PEM that can be used")]
    CaBundle,
    #[error("a pin is not a SHA-256 in 64 hexadecimal digits")]
    Pin,
    #[error(
        "the endpoint is in the trust domain {0}, and there is no bundle of that yet. Create a SPIFFEFederation for it"
    )]
    EndpointUnknown(TrustDomain),
    #[error("the endpoints wait for each other in a circle: {}. Give one of them a source that needs no other", way(.0))]
    Circle(Vec<TrustDomain>),
    #[error(transparent)]
    Fetch(FetchError),
    /// Details would show people who may create a federation what listens in an internal network.
    #[error("unreachable. The log of trustplane authority says why")]
    Unreachable(FetchError),
    #[error(
        "the bundle has the sequence {found}, and {seen} was seen before: an old copy, or a server that was restored. If it is right, accept it with: trustplane spiffe accept {name} --fingerprint {fingerprint}"
    )]
    LowerSequence { found: u64, seen: u64, name: String, fingerprint: String },
    #[error(
        "the document has too many characters that the API server escapes, so it can't be stored"
    )]
    NotStorable,
    #[error(
        "there are more SPIFFEFederations than the audit log can follow, so this one is not fetched. Delete others"
    )]
    TooMany,
    #[error("every CA certificate in the bundle is expired or not yet valid: do the clocks agree?")]
    NoneValid,
}

fn way(domains: &[TrustDomain]) -> String {
    let names: Vec<_> = domains.iter().map(TrustDomain::as_str).collect();
    names.join(" -> ")
}

fn of_fetch(error: &FetchError) -> &'static str {
    match error {
        FetchError::Bundle(_) | FetchError::NotText | FetchError::TooLong => "InvalidBundle",
        // Where a redirect leads, the same is wrong, but a target without TLS can't prove anything.
        FetchError::Redirected { cause, .. } if !matches!(**cause, FetchError::Url(_)) => {
            of_fetch(cause)
        }
        error if error.reached() && !error.verified() => "EndpointNotVerified",
        _ => "FetchFailed",
    }
}

impl Problem {
    /// Of the condition `Synced`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TrustDomain(_) => "InvalidTrustDomain",
            Self::OwnTrustDomain => "OwnTrustDomain",
            Self::Duplicate { .. } => "DuplicateTrustDomain",
            Self::Deleting => "Deleting",
            Self::ManySources
            | Self::StaticBundle(_)
            | Self::NoBootstrap
            | Self::Bootstrap(_)
            | Self::StoredBundle(_)
            | Self::EndpointId(_)
            | Self::EndpointIdWithoutPath
            | Self::Url
            | Self::CaBundle
            | Self::Pin => "InvalidSource",
            Self::EndpointUnknown(_) | Self::Circle(_) => "EndpointNotTrusted",
            Self::Fetch(error) => of_fetch(error),
            Self::Unreachable(_) => "FetchFailed",
            Self::LowerSequence { .. } => "SequenceRefused",
            Self::NotStorable => "InvalidBundle",
            Self::TooMany => "TooManyFederations",
            Self::NoneValid => "NoValidAuthority",
        }
    }

    /// Whether the federation does not count at all, so that trust ends.
    pub fn ends_trust(&self) -> bool {
        matches!(
            self,
            Self::TrustDomain(_) | Self::OwnTrustDomain | Self::Duplicate { .. } | Self::Deleting
        )
    }

    /// Event deduplication key: the message, or only its reason if the peer controls the text.
    pub fn topic(&self) -> Option<String> {
        match self {
            Self::Fetch(_) | Self::LowerSequence { .. } => Some(self.reason().to_owned()),
            _ => None,
        }
    }

    /// With all details, for the log.
    pub fn detail(&self) -> String {
        match self {
            Self::Unreachable(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}
