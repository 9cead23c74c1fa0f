//! SPIFFE's requirements on a certificate, apart from its signature.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use rustls::pki_types::CertificateDer;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{
        BasicConstraints, ExtendedKeyUsage, GeneralName, KeyUsage, ParsedExtension,
        SubjectAlternativeName,
    },
    oid_registry::OID_SIG_ED25519,
    prelude::FromDer,
    public_key::PublicKey as ParsedKey,
    time::ASN1Time,
};

use super::{
    id::SpiffeId,
    key::{KeyError, PublicKey},
};

/// Why a certificate is not an authority's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("is not a well-formed X.509 certificate")]
    Unreadable,
    #[error("is not a CA's (basic constraints)")]
    NotAuthority,
    #[error("may not sign certificates (key usage)")]
    MayNotSign,
    #[error("has the SPIFFE ID of a workload")]
    OfWorkload,
    #[error("has a critical extension that is not known")]
    Critical,
}

/// A certificate's public key. Numbers are big-endian.
pub(super) enum CertificateKey<'a> {
    Ec { x: &'a [u8], y: &'a [u8] },
    Rsa { n: &'a [u8], e: &'a [u8] },
    Ed25519(&'a [u8]),
    Other,
}

/// What identifies a certificate, for people and the audit log. Whoever made it chose the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub subject: String,
    pub issuer: String,
    /// In hexadecimal.
    pub serial: String,
    /// URI SANs.
    pub names: Vec<String>,
}

/// The tag of a URI in a SAN.
const URI_TAG: u32 = 6;

/// A certificate whose key and extensions could all be read, none of these twice.
pub(super) struct Certificate<'a>(X509Certificate<'a>);

impl<'a> Certificate<'a> {
    pub(super) fn read(der: &'a CertificateDer<'_>) -> Result<Self, Flaw> {
        let (rest, x509) = X509Certificate::from_der(der.as_ref()).map_err(|_| Flaw::Unreadable)?;
        let mut seen = HashSet::new();
        let well_formed = x509.extensions().iter().all(|extension| {
            let parsed = extension.parsed_extension();
            seen.insert(extension.oid.as_bytes())
                && !matches!(parsed, ParsedExtension::ParseError { .. } | ParsedExtension::Unparsed)
        });
        // Readers in Go refuse a certificate with a damaged key, and with it the whole bundle.
        match rest.is_empty() && well_formed && x509.public_key().parsed().is_ok() {
            true => Ok(Self(x509)),
            false => Err(Flaw::Unreadable),
        }
    }

    pub(super) fn key(&self) -> CertificateKey<'_> {
        let info = self.0.public_key();
        let bytes = &*info.subject_public_key.data;
        match info.parsed() {
            Ok(ParsedKey::EC(_)) => match bytes {
                // Uncompressed.
                [4, numbers @ ..] => {
                    let (x, y) = numbers.split_at(numbers.len() / 2);
                    CertificateKey::Ec { x, y }
                }
                _ => CertificateKey::Other,
            },
            Ok(ParsedKey::RSA(rsa)) => CertificateKey::Rsa { n: rsa.modulus, e: rsa.exponent },
            _ if info.algorithm.algorithm == OID_SIG_ED25519 => CertificateKey::Ed25519(bytes),
            _ => CertificateKey::Other,
        }
    }

    /// The key of an SVID. Authorities may have others.
    pub(super) fn public_key(&self) -> Result<PublicKey, KeyError> {
        PublicKey::read(self.0.public_key())
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            subject: self.0.subject().to_string(),
            issuer: self.0.issuer().to_string(),
            serial: hex::encode(self.0.raw_serial()),
            names: self.uris().into_iter().map(str::to_owned).collect(),
        }
    }

    /// The first and the last second of its validity.
    pub(super) fn validity(&self) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let time = |time: &ASN1Time| DateTime::from_timestamp(time.timestamp(), 0);
        let validity = self.0.validity();
        Some((time(&validity.not_before)?, time(&validity.not_after)?))
    }

    /// Its URI SANs. One that is not even text counts, too.
    pub(super) fn uris(&self) -> Vec<&'a str> {
        let names = self.extensions().find_map(|(_, extension)| match extension {
            ParsedExtension::SubjectAlternativeName(SubjectAlternativeName { general_names }) => {
                Some(general_names)
            }
            _ => None,
        });
        let uri = |name: &GeneralName<'a>| match name {
            GeneralName::URI(uri) => Some(*uri),
            GeneralName::Invalid(tag, _) if tag.0 == URI_TAG => Some(""),
            _ => None,
        };
        names.into_iter().flatten().filter_map(uri).collect()
    }

    /// How many certificates may be between this one, a CA's, and an SVID. None if any number.
    pub(super) fn longest_path(&self) -> Option<u32> {
        self.extensions().find_map(|(_, extension)| match extension {
            ParsedExtension::BasicConstraints(constraints) => constraints.path_len_constraint,
            _ => None,
        })
    }

    /// Whether it has a critical extension that is not looked at, or limits names of a kind that is not.
    pub(super) fn has_unknown_critical(&self) -> bool {
        self.extensions().filter(|(critical, _)| *critical).any(|(_, extension)| match extension {
            ParsedExtension::NameConstraints(limits) => {
                let subtrees = [&limits.permitted_subtrees, &limits.excluded_subtrees];
                let mut subtrees = subtrees.into_iter().flatten().flatten();
                !subtrees.all(|it| is_name_of_tls(&it.base))
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                !names.general_names.iter().any(is_name_of_tls)
            }
            // A policy that it has limits nothing.
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::CertificatePolicies(_) => false,
            _ => true,
        })
    }

    pub(super) fn is_authority(&self) -> bool {
        self.extensions().any(|(_, extension)| {
            matches!(
                extension,
                ParsedExtension::BasicConstraints(BasicConstraints { ca: true, .. })
            )
        })
    }

    /// None if there is no key usage, or it is not critical.
    pub(super) fn critical_key_usage(&self) -> Option<&KeyUsage> {
        self.key_usage().filter(|(critical, _)| *critical).map(|(_, usage)| usage)
    }

    pub(super) fn extended_key_usage(&self) -> Option<&ExtendedKeyUsage<'a>> {
        self.extensions().find_map(|(_, extension)| match extension {
            ParsedExtension::ExtendedKeyUsage(usage) => Some(usage),
            _ => None,
        })
    }

    /// Why it is no authority's of a trust domain. A CA that is silent about its key's usage may
    /// sign, as in RFC 5280; roots that were made by hand often are.
    pub(super) fn flaw_as_authority(&self) -> Option<Flaw> {
        let signs = self.key_usage().is_none_or(|(_, usage)| usage.key_cert_sign());
        let of_workload = |uri: &&str| SpiffeId::parse(uri).is_ok_and(|id| !id.path().is_empty());
        if !self.is_authority() {
            Some(Flaw::NotAuthority)
        } else if !signs {
            Some(Flaw::MayNotSign)
        } else if self.uris().iter().any(of_workload) {
            Some(Flaw::OfWorkload)
        } else {
            None
        }
    }

    fn key_usage(&self) -> Option<(bool, &KeyUsage)> {
        self.extensions().find_map(|(critical, extension)| match extension {
            ParsedExtension::KeyUsage(usage) => Some((critical, usage)),
            _ => None,
        })
    }

    fn extensions(&self) -> impl Iterator<Item = (bool, &ParsedExtension<'a>)> {
        self.0.extensions().iter().map(|it| (it.critical, it.parsed_extension()))
    }
}

fn is_name_of_tls(name: &GeneralName<'_>) -> bool {
    matches!(
        name,
        GeneralName::DNSName(_)
            | GeneralName::RFC822Name(_)
            | GeneralName::IPAddress(_)
            | GeneralName::URI(_)
    )
}
