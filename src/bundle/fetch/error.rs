//! Why there is no bundle, in words that stand in a peer's status.

use std::{io, time::Duration};

use rustls::{CertificateError, OtherError};

use crate::spiffe::{bundle::BundleError, svid::SvidError};

/// As many characters as a DNS name can have, and enough of anything else that a peer says.
const LONGEST_QUOTE: usize = 253;

/// What is quoted of a text that a peer has a say in: a status is no place for all of it.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Why a URL is no endpoint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not https.
    #[error("the URL is not an https:// one")]
    NotHttps,
    /// A user, and maybe a password.
    #[error("the URL holds a user (\"@\"), which is not allowed")]
    UserInfo,
    /// The host is neither a name nor an address.
    #[error("the URL's host is neither a DNS name nor an IP address")]
    Host,
    /// Not a URL that can be asked for.
    #[error("the URL can't be read")]
    Unreadable,
}

/// How far a fetch came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No connection.
    Began,
    /// The host accepted a TCP connection.
    Connected,
    /// The host proved who it is.
    Verified,
}

/// Why there is no bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL is no endpoint's.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The host's name leads nowhere.
    #[error("no such host: {0}. Is its address right, and does this cluster's DNS know it?")]
    NoSuchHost(String),
    /// Nobody listens.
    #[error("connection refused. Is its address right, and does anybody listen there?")]
    Refused,
    /// The host can't be connected to for another reason.
    #[error("no connection: {0}")]
    NoConnection(io::ErrorKind),
    /// The proxy that `HTTPS_PROXY` names does not lead there.
    #[error("the proxy that HTTPS_PROXY names does not lead there; NO_PROXY makes exceptions")]
    Proxy,
    /// What listens is no TLS server.
    #[error("it does not speak TLS. Is the port right?")]
    NotTls,
    /// TLS failed for another reason.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    /// https_spiffe: the certificate does not prove the ID.
    #[error(transparent)]
    Svid(SvidError),
    /// https_web: nobody vouches for the certificate.
    #[error(
        "the certificate is signed by no CA that is trusted here. SSL_CERT_FILE names a file with others; the SPIRE server needs them too"
    )]
    UnknownCa,
    /// https_web: the certificate is another host's.
    #[error("the certificate is not for {0}")]
    OtherHost(String),
    /// https_web: the certificate is out of date.
    #[error("the certificate is expired")]
    Expired,
    /// https_web: the certificate is too new.
    #[error("the certificate is not yet valid: do the clocks agree?")]
    NotYetValid,
    /// Neither a bundle nor a redirect.
    #[error("it answers HTTP {0}. Is that the address of a bundle endpoint?")]
    Status(u16),
    /// The connection ended within the answer, or it is no HTTP.
    #[error("the connection broke before the answer was complete")]
    Broken,
    /// Too much is said.
    #[error("the answer is longer than 512 KiB")]
    TooLong,
    /// The answer is no text.
    #[error("not a bundle document: it is not UTF-8")]
    NotText,
    /// The answer is no bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A redirect to nowhere.
    #[error("a redirect without a target that can be read")]
    NoLocation,
    /// A redirect too many.
    #[error("more than 5 redirects")]
    ManyRedirects,
    /// It went wrong where a redirect leads.
    #[error("redirected to {to}: {cause}")]
    Redirected {
        /// Where, without user and query.
        to: String,
        /// What went wrong there.
        cause: Box<FetchError>,
    },
    /// No time left.
    #[error(
        "no answer within {} s. Does a firewall or a proxy stand in between?",
        after.as_secs_f64()
    )]
    TooSlow {
        /// How much there was.
        after: Duration,
        /// How far it came.
        stage: Stage,
    },
}

impl FetchError {
    /// Whether the host accepted a TCP connection; of a redirect, the host that sent it.
    pub fn reached(&self) -> bool {
        match self {
            Self::Url(_)
            | Self::NoSuchHost(_)
            | Self::Refused
            | Self::NoConnection(_)
            | Self::Proxy => false,
            Self::TooSlow { stage, .. } => *stage != Stage::Began,
            _ => true,
        }
    }

    /// Whether the host proved who it is, and only what it said was no good. Of a redirect, the
    /// host that it leads to must have done so.
    pub fn verified(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::Broken
            | Self::TooLong
            | Self::NotText
            | Self::Bundle(_)
            | Self::NoLocation
            | Self::ManyRedirects => true,
            Self::Redirected { cause, .. } => cause.verified(),
            Self::TooSlow { stage, .. } => *stage == Stage::Verified,
            _ => false,
        }
    }

    /// A metric's label.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::NoSuchHost(_) => "dns",
            Self::Refused | Self::NoConnection(_) | Self::Proxy => "connect",
            Self::NotTls | Self::Handshake(_) => "tls",
            Self::Svid(_)
            | Self::UnknownCa
            | Self::OtherHost(_)
            | Self::Expired
            | Self::NotYetValid => "certificate",
            Self::Status(_) | Self::Broken => "http",
            Self::TooLong | Self::NotText | Self::Bundle(_) => "document",
            Self::NoLocation | Self::ManyRedirects | Self::Redirected { .. } => "redirect",
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
            CertificateError::Other(OtherError(error)) => match error.downcast_ref::<SvidError>() {
                Some(SvidError::Path(why)) => Self::Svid(SvidError::Path(quoted(why))),
                Some(error) => Self::Svid(error.clone()),
                None => Self::handshake(error),
            },
            other => Self::handshake(other),
        }
    }

    /// rustls lists what it finds in a certificate, however much that is.
    fn handshake(error: &impl ToString) -> Self {
        Self::Handshake(quoted(&error.to_string()))
    }
}
