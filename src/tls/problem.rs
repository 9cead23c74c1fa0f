//! What is wrong with a pair, in words for the team that made it.
//!
//! No variant holds text from the input except names of known PEM labels, algorithms and curves:
//! whatever a damaged `tls.key` contains, none of it can reach an Event or a log through here.

use std::fmt;

use thiserror::Error;

/// Which text a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `tls.crt` of the Secret.
    Certificate,
    /// `tls.key` of the Secret.
    Key,
    /// `spec.tls.caCertificate` of the Route.
    CaCertificate,
    /// `spec.tls.destinationCACertificate` of the Route.
    DestinationCaCertificate,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "tls.crt",
            Self::Key => "tls.key",
            Self::CaCertificate => "the Route's caCertificate",
            Self::DestinationCaCertificate => "the Route's destinationCACertificate",
        })
    }
}

/// The owner of a public key: the private key, or a certificate by its place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Key,
    /// The first is number 1.
    Certificate {
        field: Field,
        number: usize,
    },
}

impl Part {
    fn key(self) -> String {
        match self {
            Self::Key => self.to_string(),
            Self::Certificate { .. } => format!("the key of {self}"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("tls.key"),
            Self::Certificate { field, number } => write!(f, "certificate {number} of {field}"),
        }
    }
}

/// How a PEM block is broken. The router would skip such a block without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    BeginLine,
    EndLine,
    /// Two files were joined without a line break.
    JoinedLines,
    NoEnd,
    NoBegin,
    OtherEnd,
    NotBase64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeginLine => "the BEGIN marker must be a line of its own, without spaces or other bytes before it and with five dashes at both ends",
            Self::EndLine => "the END marker must be a line of its own, without spaces before it and with five dashes at both ends",
            Self::JoinedLines => "an END and a BEGIN marker share one line; put a line break between them",
            Self::NoEnd => "the block has no END line, so the text was cut off",
            Self::NoBegin => "an END line has no BEGIN line before it",
            Self::OtherEnd => "the END line names another kind of block than the BEGIN line",
            Self::NotBase64 => "the block's content is not base64",
        })
    }
}

/// One reason why the router would not serve a pair, or HAProxy would not start with it. Lines and
/// places count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("{field} is missing or empty")]
    Missing { field: Field },
    /// The bytes are not UTF-8, so they can't stand in a Route.
    #[error("{field} is not text; it must be PEM, not DER or another binary format")]
    NotText { field: Field },
    #[error("{field} is longer than {kib} KiB; keep only what the server needs in it")]
    TooLong { field: Field, kib: usize },
    #[error(
        "tls.crt has more than {most} certificates or {kib} KiB of them, and clients that use OpenSSL refuse such a chain; keep the server's certificate and its intermediates"
    )]
    ChainTooLong { kib: usize, most: usize },
    #[error("{field} is damaged at line {line}: {damage}")]
    Damaged { field: Field, line: usize, damage: Damage },
    #[error(
        "{field} has PEM headers at line {line}, which the router does not accept; export the block again without them"
    )]
    Headers { field: Field, line: usize },
    #[error(
        "the private key at line {line} of {field} is encrypted, and the router can't ask for its passphrase; store it unencrypted"
    )]
    EncryptedKey { field: Field, line: usize },
    #[error("{field} has a block at line {line} that the router refuses: {label}")]
    ForeignBlock { field: Field, line: usize, label: &'static str },
    #[error(
        "{field} has a private key at line {line}; keep it in tls.key only, because more people see certificates than keys"
    )]
    KeyOutsideItsField { field: Field, line: usize },
    #[error(
        "tls.key has a certificate at line {line}, which the router refuses; move it to tls.crt, or remove it"
    )]
    CertificateInKey { line: usize },
    #[error("{field} has no certificate: there is no -----BEGIN CERTIFICATE----- line")]
    NoCertificate { field: Field },
    #[error(
        "tls.key has no private key: there is no -----BEGIN PRIVATE KEY----- line, nor one for an RSA or EC key"
    )]
    NoKey,
    #[error(
        "tls.key has {count} private keys; keep only the one that belongs to the first certificate of tls.crt"
    )]
    SeveralKeys { count: usize },
    #[error("{part} can't be read: {why}")]
    UnreadableCertificate { part: Part, why: &'static str },
    #[error("tls.key can't be read: {why}")]
    UnreadableKey { why: &'static str },
    #[error(
        "{field} has a public key at line {line}, which the router refuses; it is not needed, so remove it"
    )]
    PublicKey { field: Field, line: usize },
    #[error(
        "{field} has a public key at line {line} that can't be read; it is not needed, so remove it"
    )]
    UnreadablePublicKey { field: Field, line: usize },
    #[error(
        "{part} is signed with {digest}, which the router refuses; have it reissued with SHA-256 or better"
    )]
    WeakSignature { part: Part, digest: &'static str },
    #[error("{} is an RSA key of {bits} bits; with fewer than 2048, HAProxy rejects its whole configuration", part.key())]
    SmallRsaKey { part: Part, bits: usize },
    #[error("{} is an RSA key of {bits} bits; TLS clients refuse more than 8192", part.key())]
    LargeRsaKey { part: Part, bits: usize },
    #[error("{} is an ECDSA key on the curve {curve}; only P-256, P-384 and P-521 can be served", part.key())]
    Curve { part: Part, curve: &'static str },
    #[error("{} is a key of type {kind}; the router serves RSA and ECDSA only", part.key())]
    KeyType { part: Part, kind: &'static str },
    #[error(
        "tls.key belongs to certificate {number} of tls.crt; put that certificate first, before those of its issuers"
    )]
    LeafNotFirst { number: usize },
    #[error(
        "tls.key does not belong to the certificate in tls.crt; store a certificate and key that belong together"
    )]
    KeyMismatch,
    #[error(
        "the Route's caCertificate did not issue the first certificate of tls.crt, so the router would refuse the Route: {why}; replace the Route's caCertificate or remove it"
    )]
    CaMismatch { why: &'static str },
    #[error("{field} has {count} more problems")]
    More { field: Field, count: usize },
}

/// Problems of one text. What a user can act on is kept; a megabyte of garbage is only counted.
pub(super) struct Findings {
    field: Field,
    found: Vec<Problem>,
    left_out: usize,
}

impl Findings {
    /// Enough to show every problem of a real chain, little enough for a status message.
    const MOST: usize = 20;

    pub(super) fn new(field: Field) -> Self {
        Self { field, found: Vec::new(), left_out: 0 }
    }

    pub(super) fn add(&mut self, problem: Problem) {
        if self.found.len() < Self::MOST {
            self.found.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        if self.left_out > 0 {
            self.found.push(Problem::More { field: self.field, count: self.left_out });
        }
        self.found
    }
}
