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
    /// The private key in `tls.key`.
    Key,
    /// A certificate of a text; the first is number 1.
    Certificate {
        /// The text it stands in.
        field: Field,
        /// Its place, counted from 1.
        number: usize,
    },
}

impl Part {
    /// What to call its key.
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
    /// A BEGIN marker that is not a whole line of its own.
    BeginLine,
    /// An END marker that is not a whole line of its own.
    EndLine,
    /// An END line right before a BEGIN marker, in one line: two files joined without a line break.
    JoinedLines,
    /// A BEGIN line whose END line never comes.
    NoEnd,
    /// An END line without a BEGIN line.
    NoBegin,
    /// The END line names another kind of block than the BEGIN line.
    OtherEnd,
    /// What stands between the lines is not base64.
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

/// One reason why the router would not serve a pair, or HAProxy would not start with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The field is absent or has no bytes.
    #[error("{field} is missing or empty")]
    Missing {
        /// Which text.
        field: Field,
    },
    /// The bytes are not UTF-8, so they can't stand in a Route.
    #[error("{field} is not text; it must be PEM, not DER or another binary format")]
    NotText {
        /// Which text.
        field: Field,
    },
    /// More text than any pair needs.
    #[error("{field} is longer than {kib} KiB; keep only what the server needs in it")]
    TooLong {
        /// Which text.
        field: Field,
        /// The most that is read of it.
        kib: usize,
    },
    /// More certificates than clients accept.
    #[error(
        "tls.crt has more than {most} certificates or {kib} KiB of them, and clients that use OpenSSL refuse such a chain; keep the server's certificate and its intermediates"
    )]
    ChainTooLong {
        /// The most KiB of certificates.
        kib: usize,
        /// The most certificates.
        most: usize,
    },
    /// A PEM block that can't be read as one.
    #[error("{field} is damaged at line {line}: {damage}")]
    Damaged {
        /// Which text.
        field: Field,
        /// The line, counted from 1.
        line: usize,
        /// What is broken.
        damage: Damage,
    },
    /// A PEM block that has headers.
    #[error(
        "{field} has PEM headers at line {line}, which the router does not accept; export the block again without them"
    )]
    Headers {
        /// Which text.
        field: Field,
        /// The line, counted from 1.
        line: usize,
    },
    /// A private key that is protected by a passphrase.
    #[error(
        "the private key at line {line} of {field} is encrypted, and the router can't ask for its passphrase; store it unencrypted"
    )]
    EncryptedKey {
        /// Which text.
        field: Field,
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A PEM block of a kind that the router refuses.
    #[error("{field} has a block at line {line} that the router refuses: {label}")]
    ForeignBlock {
        /// Which text.
        field: Field,
        /// The line of its BEGIN, counted from 1.
        line: usize,
        /// The label if it is a well-known one, else a description.
        label: &'static str,
    },
    /// A private key outside of `tls.key`.
    #[error(
        "{field} has a private key at line {line}; keep it in tls.key only, because more people see certificates than keys"
    )]
    KeyOutsideItsField {
        /// Which text.
        field: Field,
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A certificate in `tls.key`.
    #[error(
        "tls.key has a certificate at line {line}, which the router refuses; move it to tls.crt, or remove it"
    )]
    CertificateInKey {
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A text without a single certificate.
    #[error("{field} has no certificate: there is no -----BEGIN CERTIFICATE----- line")]
    NoCertificate {
        /// Which text.
        field: Field,
    },
    /// `tls.key` without a private key.
    #[error(
        "tls.key has no private key: there is no -----BEGIN PRIVATE KEY----- line, nor one for an RSA or EC key"
    )]
    NoKey,
    /// More than one private key.
    #[error(
        "tls.key has {count} private keys; keep only the one that belongs to the first certificate of tls.crt"
    )]
    SeveralKeys {
        /// How many there are.
        count: usize,
    },
    /// A certificate that the router can't read.
    #[error("{part} can't be read: {why}")]
    UnreadableCertificate {
        /// Which certificate.
        part: Part,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A private key that can't be read.
    #[error("tls.key can't be read: {why}")]
    UnreadableKey {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A public key beside the certificate or the private key.
    #[error(
        "{field} has a public key at line {line}, which the router refuses; it is not needed, so remove it"
    )]
    PublicKey {
        /// Which text.
        field: Field,
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A public key block that the router can't read.
    #[error(
        "{field} has a public key at line {line} that can't be read; it is not needed, so remove it"
    )]
    UnreadablePublicKey {
        /// Which text.
        field: Field,
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A signature with a broken digest on a certificate that is not self-signed.
    #[error(
        "{part} is signed with {digest}, which the router refuses; have it reissued with SHA-256 or better"
    )]
    WeakSignature {
        /// Which certificate.
        part: Part,
        /// The digest.
        digest: &'static str,
    },
    /// An RSA key under 2048 bits.
    #[error("{} is an RSA key of {bits} bits; with fewer than 2048, HAProxy rejects its whole configuration", part.key())]
    SmallRsaKey {
        /// Whose key it is.
        part: Part,
        /// Its size.
        bits: usize,
    },
    /// An RSA key over 8192 bits.
    #[error("{} is an RSA key of {bits} bits; TLS clients refuse more than 8192", part.key())]
    LargeRsaKey {
        /// Whose key it is.
        part: Part,
        /// Its size.
        bits: usize,
    },
    /// An ECDSA key on a curve that the router or TLS clients don't know.
    #[error("{} is an ECDSA key on the curve {curve}; only P-256, P-384 and P-521 can be served", part.key())]
    Curve {
        /// Whose key it is.
        part: Part,
        /// The curve's name.
        curve: &'static str,
    },
    /// A key of another kind than RSA or ECDSA.
    #[error("{} is a key of type {kind}; the router serves RSA and ECDSA only", part.key())]
    KeyType {
        /// Whose key it is.
        part: Part,
        /// The kind.
        kind: &'static str,
    },
    /// The key belongs to a later certificate of the chain.
    #[error(
        "tls.key belongs to certificate {number} of tls.crt; put that certificate first, before those of its issuers"
    )]
    LeafNotFirst {
        /// The place of the certificate that the key belongs to, counted from 1.
        number: usize,
    },
    /// The key belongs to none of the certificates.
    #[error(
        "tls.key does not belong to the certificate in tls.crt; store a certificate and key that belong together"
    )]
    KeyMismatch,
    /// The Route's caCertificate did not issue the leaf, so the router would refuse the Route.
    #[error(
        "the Route's caCertificate did not issue the first certificate of tls.crt, so the router would refuse the Route: {why}; replace the Route's caCertificate or remove it"
    )]
    CaMismatch {
        /// Why the verification fails.
        why: &'static str,
    },
    /// More problems than anyone reads.
    #[error("{field} has {count} more problems")]
    More {
        /// Which text.
        field: Field,
        /// How many were left out.
        count: usize,
    },
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
