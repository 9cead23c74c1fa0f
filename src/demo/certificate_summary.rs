//! A certificate as a TLS client sees it. Pure.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};
use x509_parser::{certificate::X509Certificate, prelude::FromDer, x509::X509Name};

use crate::runtime::printable::printable;

/// The fields of a certificate that are shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateSummary {
    pub subject: String,
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the DER, in hexadecimal digits, as `openssl x509 -fingerprint -sha256` prints it.
    pub sha256: String,
}

impl CertificateSummary {
    /// Reads a certificate. One that can't be read still has a digest.
    pub fn of(der: &[u8]) -> Self {
        let sha256 = hex::encode(Sha256::digest(der));
        match X509Certificate::from_der(der) {
            Ok((_, read)) => Self {
                subject: name(read.subject()),
                issuer: name(read.issuer()),
                serial: hex::encode(read.raw_serial()),
                sha256,
            },
            Err(_) => {
                let unknown = || "(unreadable)".to_owned();
                Self { subject: unknown(), issuer: unknown(), serial: unknown(), sha256 }
            }
        }
    }

    /// Enough of the digest for a person to tell certificates apart.
    pub fn short(&self) -> &str {
        self.sha256.get(..12).unwrap_or(&self.sha256)
    }
}

/// The certificate's issuer controls these names.
fn name(name: &X509Name<'_>) -> String {
    printable(&name.to_string()).into_owned()
}

impl fmt::Display for CertificateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, sha256 {}, ", self.subject, self.short())?;
        if self.issuer == self.subject {
            f.write_str("self-signed")
        } else {
            write!(f, "issued by {}", self.issuer)
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::{
        demo::authority::{Authority, self_signed},
        runtime::printable::{HOSTILE, is_harmless},
    };

    #[test]
    fn a_certificate_is_summarised_by_its_names_and_its_digest() {
        let authority = Authority::new("some CA", Utc::now()).unwrap();
        let shown = CertificateSummary::of(
            &authority.issue(&["shop.example.com"], Utc::now()).unwrap().der,
        );
        let short = shown.short();
        assert_eq!(
            shown.to_string(),
            format!("CN=shop.example.com, sha256 {short}, issued by CN=some CA")
        );
        let lonely = CertificateSummary::of(&self_signed("lonely", &[], Utc::now()).unwrap().der);
        assert!(lonely.to_string().ends_with(", self-signed"), "{lonely}");
    }

    #[test]
    fn an_unreadable_certificate_has_a_digest_and_a_name_cannot_break_a_line() {
        assert_eq!(CertificateSummary::of(b"").subject, "(unreadable)");
        assert_eq!(CertificateSummary::of(b"").short(), "e3b0c44298fc");
        let odd = self_signed("two\r\nlines", &[], Utc::now()).unwrap();
        assert_eq!(CertificateSummary::of(&odd.der).subject, "CN=two\\r\\nlines");
        let hostile = self_signed(HOSTILE, &[], Utc::now()).unwrap();
        assert!(is_harmless(&CertificateSummary::of(&hostile.der).to_string()));
    }
}
