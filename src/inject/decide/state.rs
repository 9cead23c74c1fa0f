//! The states of a Route's certificate and the reasons that conditions and Events carry. Pure.

use crate::tls::Warning;

/// Which certificate a Route holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// None: the router serves its default certificate.
    Default,
    /// One of the user's own.
    Custom,
    Managed,
}

impl State {
    /// In the order in which the conditions are written.
    pub const ALL: [Self; 3] = [Self::Default, Self::Custom, Self::Managed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Custom => "Custom",
            Self::Managed => "Managed",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident),+ $(,)?) => {
        /// Why, for machines: the reason of a condition or an Event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $reason),+ }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// As conditions and Events spell it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason)),+ }
            }
        }
    };
}

reasons! {
    RouteNotSecured,
    /// The router passes TLS through.
    PassthroughTermination,
    ExternalCertificate,
    /// The Route holds the Secret's pair.
    SecretInjected,
    /// The Secret turned unusable; its last good pair stays.
    SecretInvalidKeepingLast,
    SecretNotFound,
    /// The Secret is not `kubernetes.io/tls`.
    SecretWrongType,
    /// The router would refuse the pair.
    SecretInvalid,
    /// The Route's `caCertificate` makes the router refuse the pair.
    CACertificateMismatch,
    /// The annotation is no name of a Secret.
    InvalidSecretName,
    NoCertificate,
    /// The user put one in.
    CertificateInRoute,
    /// Event: the pair went in.
    CertificateInjected,
    /// Event: a newer pair went in.
    CertificateUpdated,
    /// Event: the pair went out.
    CertificateCleared,
    /// Something else keeps reverting us.
    CertificateContested,
    /// Event: the API server refuses our write.
    InjectionFailed,
    /// Event: an annotation key that is nearly the right one.
    AnnotationMisspelt,
    /// Event: the API server refuses our condition.
    StatusNotWritten,
    /// Event: the certificate ends soon.
    CertificateExpiring,
    /// Event: the certificate, or an intermediate one, has expired.
    CertificateExpired,
    CertificateNotYetValid,
    /// Event: the certificate is for other names.
    HostMismatch,
    ChainOutOfOrder,
    /// Event: the chain lacks an intermediate.
    ChainIncomplete,
}

/// The state of a Route's certificate, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// None where the router terminates no TLS.
    pub state: Option<State>,
    pub reason: Reason,
    pub message: String,
}

impl From<&Warning> for Reason {
    fn from(warning: &Warning) -> Self {
        match warning {
            Warning::Expired { .. } | Warning::IntermediateExpired { .. } => {
                Reason::CertificateExpired
            }
            Warning::Expiring { .. } => Reason::CertificateExpiring,
            Warning::NotYetValid { .. } => Reason::CertificateNotYetValid,
            Warning::HostNotCovered { .. } => Reason::HostMismatch,
            Warning::ChainOutOfOrder => Reason::ChainOutOfOrder,
            Warning::ChainIncomplete => Reason::ChainIncomplete,
        }
    }
}

/// However long a value is, a person needs to see its beginning only.
pub fn shortened(value: &str) -> &str {
    const LONGEST: usize = 63;
    let end = value.char_indices().nth(LONGEST).map_or(value.len(), |(at, _)| at);
    &value[..end]
}
