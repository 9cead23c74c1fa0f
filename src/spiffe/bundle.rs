//! A trust domain's bundle: the authorities and keys that its SVIDs are verified with.
//!
//! Bundles of different trust domains must never be mixed, so nothing here joins two.

mod document;
mod jwk;
mod map;
pub mod write;

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    time::Duration,
};

use chrono::{DateTime, Utc};
use rustls::pki_types::{
    CertificateDer,
    pem::{PemObject as _, SectionKind},
};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{
    certificate::{Certificate, Flaw},
    chain,
};
use crate::tls;
use document::Document;
use jwk::Jwk;

pub use jwk::{JwkFlaw, JwtKey};
pub use map::{BundleMap, MapError};

/// Longer hints are cut, so that adding one to a time can't overflow.
const LONGEST_HINT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Numbers of keys and certificates begin with 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("not a bundle document: {0}")]
    Json(String),
    #[error("not a bundle document: it has no \"keys\"")]
    NoKeys,
    #[error("not a bundle document: it has \"{0}\" twice, and it is unclear which counts")]
    Twice(&'static str),
    /// A name differs from a known one only in case.
    #[error(
        "not a bundle document: a member's name differs from a known one in upper and lower case alone, so that \
         SPIRE reads something else in it"
    )]
    Ambiguous,
    #[error("not a bundle document: \"spiffe_sequence\" is not a whole number of 64 bits")]
    Sequence,
    #[error("not a bundle document: \"spiffe_refresh_hint\" is not a whole number of seconds")]
    RefreshHint,
    #[error("not a bundle document: key {number} {flaw}")]
    Key { number: usize, flaw: JwkFlaw },
    #[error("not a list of CA certificates: it is damaged PEM")]
    Pem,
    #[error("not a list of CA certificates: block {0} is no certificate")]
    OtherBlock(usize),
    #[error("not a list of CA certificates: there is no certificate in it")]
    NoCertificate,
    #[error("not a list of CA certificates: certificate {number} {flaw}")]
    Certificate { number: usize, flaw: Flaw },
}

/// The authorities and keys of one trust domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    pub x509: Vec<Authority>,
    /// For JWT-SVIDs only.
    pub jwt: Vec<JwtKey>,
    /// Grows with every change.
    pub sequence: Option<u64>,
    /// How often to fetch the bundle again; at most a year.
    pub refresh_hint: Option<Duration>,
}

/// A CA certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    der: CertificateDer<'static>,
    /// Inclusive.
    pub not_before: DateTime<Utc>,
    /// Inclusive.
    pub not_after: DateTime<Utc>,
    longest_path: Option<u32>,
    has_unknown_critical: bool,
}

impl Bundle {
    /// Reads a SPIFFE bundle document, which is a JWK set.
    ///
    /// Keys of an unknown type or use are skipped, as the standard requires. A key that is
    /// known and broken is an error: it would be missed otherwise.
    pub fn parse(document: &[u8]) -> Result<Self, BundleError> {
        let text = str::from_utf8(document)
            .map_err(|_| BundleError::Json("it is not UTF-8".to_owned()))?;
        let document = serde_json::from_str(text)
            .map_err(|error| BundleError::Json(without_content(&error)))?;
        if document::is_too_deep(text) {
            return Err(BundleError::Json("it is nested too deeply".to_owned()));
        }
        Self::of(document)
    }

    fn of(document: Document<'_>) -> Result<Self, BundleError> {
        if document.is_ambiguous {
            return Err(BundleError::Ambiguous);
        }
        if let Some(name) = document.twice {
            return Err(BundleError::Twice(name));
        }
        let number = |text: Option<&RawValue>, error: BundleError| {
            text.map(|text| serde_json::from_str::<u64>(text.get()).map_err(|_| error)).transpose()
        };
        let sequence = number(document.sequence, BundleError::Sequence)?;
        let hint = number(document.refresh_hint, BundleError::RefreshHint)?;
        // Readers written in Go have a signed number for it, and fail on a greater one.
        if hint.is_some_and(|seconds| i64::try_from(seconds).is_err()) {
            return Err(BundleError::RefreshHint);
        }
        let refresh_hint = hint.map(|seconds| Duration::from_secs(seconds).min(LONGEST_HINT));
        let mut bundle = Self { x509: Vec::new(), jwt: Vec::new(), sequence, refresh_hint };
        for (number, key) in (1..).zip(document.keys.ok_or(BundleError::NoKeys)?) {
            let key =
                document::key(key).map_err(|error| BundleError::Json(without_content(&error)))?;
            if jwk::is_ambiguous(&key) {
                return Err(BundleError::Ambiguous);
            }
            match Jwk::read(&key).map_err(|flaw| BundleError::Key { number, flaw })? {
                Jwk::X509(authority) => bundle.x509.push(authority),
                Jwk::Jwt(key) => bundle.jwt.push(key),
                Jwk::PassedOver => {}
            }
        }
        Ok(bundle)
    }

    /// Reads CA certificates in PEM, as in the ConfigMap `spire-bundle`.
    pub fn from_pem(text: &str) -> Result<Self, BundleError> {
        let mut x509 = Vec::new();
        let blocks = <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes());
        for (number, block) in (1..).zip(blocks) {
            let (kind, der) = block.map_err(|_| BundleError::Pem)?;
            if kind != SectionKind::Certificate {
                return Err(BundleError::OtherBlock(number));
            }
            let authority = Authority::read(der);
            x509.push(authority.map_err(|flaw| BundleError::Certificate { number, flaw })?);
        }
        match x509.is_empty() {
            true => Err(BundleError::NoCertificate),
            false => Ok(Self { x509, jwt: Vec::new(), sequence: None, refresh_hint: None }),
        }
    }

    /// Reads CA certificates in DER, one after the other, as a Workload API has them. Clients of it are told
    /// of no sequence.
    pub fn from_der(certificates: &[u8]) -> Result<Self, BundleError> {
        let split = chain::split(certificates).ok_or(BundleError::NoCertificate)?;
        let authority = |(number, der): (usize, CertificateDer<'_>)| {
            let authority = Authority::read(der.into_owned());
            authority.map_err(|flaw| BundleError::Certificate { number, flaw })
        };
        let x509 = (1..).zip(split).map(authority).collect::<Result<_, _>>()?;
        Ok(Self { x509, jwt: Vec::new(), sequence: None, refresh_hint: None })
    }

    pub fn earliest_expiry(&self) -> Option<DateTime<Utc>> {
        self.x509.iter().map(|authority| authority.not_after).min()
    }

    pub fn latest_expiry(&self) -> Option<DateTime<Utc>> {
        self.x509.iter().map(|authority| authority.not_after).max()
    }

    /// Identifies the keys, for people to compare: a SHA-256 over authorities and JWT keys in any
    /// order. Sequence and hint do not matter.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let (authorities, keys) = self.keys();
        let mut counted = |part: &[u8]| {
            // With the lengths, no two sets of keys are the same sequence of bytes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        counted(&(authorities.len() as u64).to_be_bytes());
        authorities.into_iter().for_each(&mut counted);
        for key in keys {
            counted(key.kid.as_bytes());
            key.key().parts().into_iter().for_each(&mut counted);
        }
        in_groups(&hash.finalize())
    }

    /// Whether the same authorities and JWT keys are in both, whatever their order.
    pub fn same_keys(&self, other: &Self) -> bool {
        self.keys() == other.keys()
    }

    fn keys(&self) -> (BTreeSet<&[u8]>, BTreeSet<&JwtKey>) {
        (
            self.x509.iter().map(|authority| authority.der.as_ref()).collect(),
            self.jwt.iter().collect(),
        )
    }
}

impl Authority {
    fn read(der: impl Into<CertificateDer<'static>>) -> Result<Self, Flaw> {
        let der = der.into();
        let certificate = Certificate::read(&der)?;
        // SPIRE refuses a whole bundle for one certificate that Go can't read.
        if !tls::is_read_by_go(&der) {
            return Err(Flaw::Unreadable);
        }
        if let Some(flaw) = certificate.flaw_as_authority() {
            return Err(flaw);
        }
        let (not_before, not_after) = certificate.validity().ok_or(Flaw::Unreadable)?;
        let longest_path = certificate.longest_path();
        let has_unknown_critical = certificate.has_unknown_critical();
        Ok(Self { der, not_before, not_after, longest_path, has_unknown_critical })
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Identifies the certificate: the first 20 digits of its SHA-256.
    pub fn key_id(&self) -> String {
        hex::encode(&Sha256::digest(&self.der)[..10])
    }

    /// Whether it may vouch for an SVID with so many certificates between.
    pub(super) fn vouches_over(&self, between: usize) -> bool {
        let is_short_enough = self.longest_path.is_none_or(|longest| between <= longest as usize);
        is_short_enough && !self.has_unknown_critical
    }

    pub fn is_valid_at(&self, now: DateTime<Utc>) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = hex::encode(&Sha256::digest(&self.der)[..6]);
        write!(f, "Authority({digest}, {} to {})", self.not_before, self.not_after)
    }
}

/// Says where a document is wrong, without quoting it.
fn without_content(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("its members are not of the right kind (line {line}, column {column})")
        }
        _ => format!("it is not JSON (line {line}, column {column})"),
    }
}

/// Hexadecimal digits in groups of four.
pub(crate) fn in_groups(digest: &[u8]) -> String {
    let mut text = String::new();
    for (index, pair) in digest.chunks(2).enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{separator}{}", hex::encode(pair));
    }
    text
}

#[cfg(test)]
mod tests;
