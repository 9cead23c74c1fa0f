//! Whether a chain of certificates proves a SPIFFE ID.

use std::time::Duration;

use chrono::{DateTime, Utc};
use rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

use super::{
    bundle::{Authority, Bundle},
    certificate::{Certificate, Flaw, Summary},
    id::{IdError, SpiffeId, TrustDomain},
    key::{KeyError, PublicKey},
};
use crate::tls;

/// Why a chain does not prove an ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SvidError {
    #[error("there is no certificate")]
    Empty,
    #[error("the certificate is not a well-formed X.509 certificate")]
    Unreadable,
    #[error("the certificate contains no URI SAN: is a re-encrypting proxy in front of it?")]
    NoUri,
    #[error("the certificate contains {0} URI SANs, and an SVID contains exactly one")]
    ManyUris(usize),
    #[error("the URI SAN of the certificate is no SPIFFE ID: {0}")]
    NotSpiffe(#[from] IdError),
    #[error("the certificate is for the trust domain {0} itself, not for a workload in it")]
    NoPath(TrustDomain),
    #[error("the certificate is for {found}, not for {expected}")]
    OtherId { found: SpiffeId, expected: SpiffeId },
    #[error("the certificate is a CA's, and an SVID is not")]
    OfAuthority,
    #[error("the certificate may sign certificates or revocation lists (key usage)")]
    MaySign,
    #[error("the certificate has no critical key usage with digitalSignature")]
    KeyUsage,
    #[error("the certificate is not for TLS servers (extended key usage)")]
    ExtendedKeyUsage,
    /// The first certificate of the chain is 1.
    #[error("certificate {number} of the chain {flaw}")]
    Intermediate { number: usize, flaw: Flaw },
    #[error("the bundle of {0} has no CA certificate that is valid now")]
    NoAuthority(TrustDomain),
    #[error(
        "the certificate is signed by an authority of {0} whose own certificate is expired or not yet valid"
    )]
    AuthorityNotValid(TrustDomain),
    #[error("the certificate is signed by no authority of the bundle of {0}")]
    UnknownAuthority(TrustDomain),
    #[error(
        "the certificate is signed by an authority of {0} that can't vouch for it: the chain is longer than its path length allows, or it has a critical extension that is not known"
    )]
    LimitedAuthority(TrustDomain),
    #[error("the certificate, or one of its chain, is expired")]
    Expired,
    #[error("the certificate, or one of its chain, is not yet valid: do the clocks agree?")]
    NotYetValid,
    #[error("the certificate's chain is not valid: {0}")]
    Path(String),
}

/// What SPIFFE requires and SPIRE ignores, so that the certificate is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SvidWarning {
    #[error(
        "its certificate is for TLS servers alone. SPIRE accepts that, but SPIFFE asks for both sides of TLS (extended key usage: serverAuth and clientAuth), and other clients may refuse it"
    )]
    ServerAuthAlone,
}

/// Verifies that the first certificate of a chain is an X.509-SVID for exactly this ID. The warning says
/// why others may refuse it.
///
/// The bundle must be that of the ID's own trust domain.
pub fn verify(
    chain: &[CertificateDer<'_>],
    expected: &SpiffeId,
    bundle: &Bundle,
    now: DateTime<Utc>,
) -> Result<Option<SvidWarning>, SvidError> {
    let svid = PresentedSvid::read(chain)?;
    let found = svid.id()?;
    if found != expected {
        let (found, expected) = (found.clone(), expected.clone());
        return Err(SvidError::OtherId { found, expected });
    }
    svid.verify(bundle, now)
}

/// A chain that somebody presents, for an ID that is not known beforehand. Nothing of it is proved before
/// `verify`.
///
/// The first certificate is parsed once, so the ID, the key and what is recorded of it are of the same bytes.
pub struct PresentedSvid<'a> {
    chain: &'a [CertificateDer<'a>],
    certificate: Certificate<'a>,
    id: Result<SpiffeId, SvidError>,
}

impl<'a> PresentedSvid<'a> {
    /// Fails if the first certificate can't be read at all.
    pub fn read(chain: &'a [CertificateDer<'a>]) -> Result<Self, SvidError> {
        let leaf = chain.first().ok_or(SvidError::Empty)?;
        let certificate = Certificate::read(leaf).map_err(|_| SvidError::Unreadable)?;
        let id = id_of(&certificate);
        Ok(Self { chain, certificate, id })
    }

    pub fn id(&self) -> Result<&SpiffeId, SvidError> {
        self.id.as_ref().map_err(Clone::clone)
    }

    pub fn key(&self) -> Result<PublicKey, KeyError> {
        self.certificate.public_key()
    }

    /// Subject, issuer, serial number and names, for people.
    pub fn summary(&self) -> Summary {
        self.certificate.summary()
    }

    /// Whether the first certificate is valid now, apart from who signed it.
    pub fn check_time(&self, now: DateTime<Utc>) -> Result<(), SvidError> {
        match self.certificate.validity() {
            None => Err(SvidError::Unreadable),
            Some((start, _)) if now < start => Err(SvidError::NotYetValid),
            Some((_, end)) if now > end => Err(SvidError::Expired),
            Some(_) => Ok(()),
        }
    }

    /// Whether the first certificate has the form of an SVID, whoever signed it.
    pub fn check_form(&self) -> Result<Option<SvidWarning>, SvidError> {
        self.id.as_ref().map_err(Clone::clone)?;
        check_leaf(&self.certificate)
    }

    /// The first and the last second of the first certificate's validity.
    pub fn validity(&self) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        self.certificate.validity()
    }

    /// Verifies that it is an SVID of its trust domain, whose bundle this must be.
    pub fn verify(
        &self,
        bundle: &Bundle,
        now: DateTime<Utc>,
    ) -> Result<Option<SvidWarning>, SvidError> {
        let trust_domain = self.id.as_ref().map_err(Clone::clone)?.trust_domain();
        let warning = check_leaf(&self.certificate)?;
        let (leaf, intermediates) = self.chain.split_first().ok_or(SvidError::Empty)?;
        // Nearly everybody else whom this SVID is shown to reads it in Go.
        if !tls::is_read_by_go(leaf) {
            return Err(SvidError::Unreadable);
        }
        if self.certificate.has_unknown_critical() {
            return Err(SvidError::Path(
                "it has a critical extension that is not known".to_owned(),
            ));
        }
        for (number, intermediate) in (2..).zip(intermediates) {
            let flaw = match Certificate::read(intermediate) {
                Ok(_) if !tls::is_read_by_go(intermediate) => Some(Flaw::Unreadable),
                Ok(certificate) if certificate.has_unknown_critical() => Some(Flaw::Critical),
                Ok(certificate) => certificate.flaw_as_authority(),
                Err(flaw) => Some(flaw),
            };
            if let Some(flaw) = flaw {
                return Err(SvidError::Intermediate { number, flaw });
            }
        }
        check_path(leaf, intermediates, trust_domain, bundle, now)?;
        Ok(warning)
    }
}

fn id_of(certificate: &Certificate<'_>) -> Result<SpiffeId, SvidError> {
    let id = match certificate.uris()[..] {
        [] => return Err(SvidError::NoUri),
        [uri] => SpiffeId::parse(uri)?,
        ref many => return Err(SvidError::ManyUris(many.len())),
    };
    match id.path().is_empty() {
        true => Err(SvidError::NoPath(id.trust_domain().clone())),
        false => Ok(id),
    }
}

fn check_leaf(svid: &Certificate<'_>) -> Result<Option<SvidWarning>, SvidError> {
    if svid.is_authority() {
        return Err(SvidError::OfAuthority);
    }
    let usage = svid.critical_key_usage().ok_or(SvidError::KeyUsage)?;
    if usage.key_cert_sign() || usage.crl_sign() {
        return Err(SvidError::MaySign);
    }
    if !usage.digital_signature() {
        return Err(SvidError::KeyUsage);
    }
    match svid.extended_key_usage().map(|usage| (usage.server_auth, usage.client_auth)) {
        None | Some((true, true)) => Ok(None),
        Some((true, false)) => Ok(Some(SvidWarning::ServerAuthAlone)),
        Some((false, _)) => Err(SvidError::ExtendedKeyUsage),
    }
}

/// RFC 5280, from the SVID to an authority that is valid now.
fn check_path(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    trust_domain: &TrustDomain,
    bundle: &Bundle,
    now: DateTime<Utc>,
) -> Result<(), SvidError> {
    // rustls takes what it is told to trust without a look at its validity, its path length, and what else it
    // says of itself.
    let (valid, others): (Vec<_>, Vec<_>) =
        bundle.x509.iter().partition(|authority| authority.is_valid_at(now));
    let is_between = |it: &&CertificateDer<'_>| bundle.x509.iter().all(|root| root.der() != *it);
    let between = intermediates.iter().filter(is_between).count();
    let (usable, limited): (Vec<_>, Vec<_>) =
        valid.iter().copied().partition(|authority| authority.vouches_over(between));
    let leads_to = |authorities: &[&Authority]| path(leaf, intermediates, authorities, now);
    match leads_to(&usable) {
        Ok(()) => Ok(()),
        Err(_) if valid.is_empty() => Err(SvidError::NoAuthority(trust_domain.clone())),
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            Err(if leads_to(&limited).is_ok() {
                SvidError::LimitedAuthority(trust_domain.clone())
            } else if leads_to(&others).is_ok() {
                SvidError::AuthorityNotValid(trust_domain.clone())
            } else {
                SvidError::UnknownAuthority(trust_domain.clone())
            })
        }
        Err(error) => Err(in_words(error, trust_domain)),
    }
}

fn path(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    authorities: &[&Authority],
    now: DateTime<Utc>,
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    // Authorities that rustls can't use are left out.
    roots.add_parsable_certificates(authorities.iter().map(|authority| authority.der().clone()));
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        unix_time(now),
        algorithms,
    )
}

pub(crate) fn unix_time(now: DateTime<Utc>) -> UnixTime {
    let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn in_words(error: Error, trust_domain: &TrustDomain) -> SvidError {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => SvidError::Expired,
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => SvidError::NotYetValid,
        // The name is an authority's, the key that signed is not.
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            SvidError::UnknownAuthority(trust_domain.clone())
        }
        other => SvidError::Path(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
