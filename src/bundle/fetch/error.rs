//! Why there is no bundle, in the words of a peer's status.

use std::{io, time::Duration};

use rustls::{CertificateError, OtherError};

use super::trust::NotPinned;
use crate::spiffe::{bundle::BundleError, svid::SvidError};

/// As long as the longest DNS name.
const LONGEST_QUOTE: usize = 253;

/// Shortens a text that a peer chooses: a status has no room for all of it.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the URL is not an https:// one")]
    NotHttps,
    #[error("the URL holds a user (\"@\"), which is not allowed")]
    UserInfo,
    #[error("the URL's host is neither a DNS name nor an IP address")]
    Host,
    #[error("the URL can't be read")]
    Unreadable,
}

/// How far a fetch came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Began,
    Connected,
    Verified,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("no such host: {0}. Is its address right, and does this cluster's DNS know it?")]
    NoSuchHost(String),
    #[error("connection refused. Is its address right, and does anybody listen there?")]
    Refused,
    #[error("no connection: {0}")]
    NoConnection(io::ErrorKind),
    #[error("the proxy that HTTPS_PROXY names does not lead there; NO_PROXY makes exceptions")]
    Proxy,
    /// Only of a redirect.
    #[error("its address is a private one, and that of the endpoint is not")]
    PrivateTarget,
    #[error("it does not speak TLS. Is the port right?")]
    NotTls,
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    /// Only with https_spiffe.
    #[error(transparent)]
    Svid(SvidError),
    /// Only with https_web, like the next three.
    #[error(
        "the certificate is signed by no CA that is trusted here. SSL_CERT_FILE names a file with others"
    )]
    UnknownCa,
    #[error("the certificate is not for {0}")]
    OtherHost(String),
    #[error("the certificate's public key is none of the pinned ones")]
    NotPinned,
    #[error("the certificate is expired")]
    Expired,
    #[error("the certificate is not yet valid: do the clocks agree?")]
    NotYetValid,
    #[error("it answers HTTP {0}. Is that the address of a bundle endpoint?")]
    Status(u16),
    /// Or the answer is not HTTP.
    #[error("the connection broke before the answer was complete")]
    Broken,
    #[error("the answer is longer than 512 KiB")]
    TooLong,
    #[error("not a bundle document: it is not UTF-8")]
    NotText,
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("a redirect without a target that can be read")]
    NoLocation,
    #[error("more than 5 redirects")]
    ManyRedirects,
    #[error("it redirects to {to}, and redirects are switched off")]
    RedirectRefused {
        /// Without user and query.
        to: String,
    },
    #[error("redirected to {to}: {cause}")]
    Redirected {
        /// Without user and query.
        to: String,
        cause: Box<FetchError>,
    },
    #[error(
        "no answer within {} s. Does a firewall or a proxy stand in between?",
        after.as_secs_f64()
    )]
    TooSlow { after: Duration, stage: Stage },
}

impl FetchError {
    /// With a redirect, the host that sent it.
    pub fn reached(&self) -> bool {
        match self {
            Self::Url(_)
            | Self::NoSuchHost(_)
            | Self::Refused
            | Self::NoConnection(_)
            | Self::PrivateTarget
            | Self::Proxy => false,
            Self::TooSlow { stage, .. } => *stage != Stage::Began,
            _ => true,
        }
    }

    /// Whether the host proved its identity, so that only its answer is wrong. With a redirect, the
    /// host that it leads to.
    pub fn verified(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::Broken
            | Self::TooLong
            | Self::NotText
            | Self::Bundle(_)
            | Self::NoLocation
            | Self::RedirectRefused { .. }
            | Self::ManyRedirects => true,
            Self::Redirected { cause, .. } => cause.verified(),
            Self::TooSlow { stage, .. } => *stage == Stage::Verified,
            _ => false,
        }
    }

    /// Whether a newer bundle of the endpoint's trust domain may help.
    pub fn wants_new_bundle(&self) -> bool {
        match self {
            Self::Svid(
                SvidError::NoAuthority(_)
                | SvidError::AuthorityNotValid(_)
                | SvidError::UnknownAuthority(_),
            ) => true,
            Self::Redirected { cause, .. } => cause.wants_new_bundle(),
            _ => false,
        }
    }

    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::NoSuchHost(_) => "dns",
            Self::Refused | Self::NoConnection(_) | Self::PrivateTarget | Self::Proxy => "connect",
            Self::NotTls | Self::Handshake(_) => "tls",
            Self::Svid(_)
            | Self::UnknownCa
            | Self::OtherHost(_)
            | Self::NotPinned
            | Self::Expired
            | Self::NotYetValid => "certificate",
            Self::Status(_) | Self::Broken => "http",
            Self::TooLong | Self::NotText | Self::Bundle(_) => "document",
            Self::NoLocation
            | Self::ManyRedirects
            | Self::RedirectRefused { .. }
            | Self::Redirected { .. } => "redirect",
            Self::TooSlow { .. } => "timeout",
        }
    }

    pub(super) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            other => Self::NoConnection(other),
        }
    }

    pub(super) fn of_handshake(error: &io::Error, host: &str) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::InvalidCertificate(error)) => Self::of_certificate(error, host),
            Some(rustls::Error::InvalidMessage(_)) => Self::NotTls,
            Some(other) => Self::handshake(other),
            None => Self::Handshake(error.kind().to_string()),
        }
    }

    fn of_certificate(error: &CertificateError, host: &str) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownCa,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherHost(host.to_owned())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::Other(OtherError(error)) if error.is::<NotPinned>() => {
                Self::NotPinned
            }
            CertificateError::Other(OtherError(error)) => match error.downcast_ref::<SvidError>() {
                Some(SvidError::Path(why)) => Self::Svid(SvidError::Path(quoted(why))),
                Some(error) => Self::Svid(error.clone()),
                None => Self::handshake(error),
            },
            other => Self::handshake(other),
        }
    }

    /// rustls quotes as much of a certificate as there is.
    fn handshake(error: &impl ToString) -> Self {
        Self::Handshake(quoted(&error.to_string()))
    }
}
