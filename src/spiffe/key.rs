//! Public keys of SVIDs and of requests for one: which are taken, and whether they signed something.
//!
//! A size is checked before anything is computed with a key: others choose them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{
        OID_EC_P256, OID_NIST_EC_P384, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ED25519,
    },
    prelude::FromDer,
    public_key::PublicKey as ParsedKey,
    x509::SubjectPublicKeyInfo,
};

use crate::tls;

const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// In bytes. 65537 has three.
const LONGEST_EXPONENT: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key is of a kind that is not taken: P-256, P-384, RSA and Ed25519 are")]
    Kind,
    #[error("the RSA key has {0} bits, and 2048 to 8192 are taken")]
    RsaSize(usize),
    #[error("the key is damaged")]
    Damaged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the certificate signing request is not a well-formed PKCS#10 request")]
    Unreadable,
    #[error("the certificate signing request's own signature is not valid")]
    Signature,
    #[error("the certificate signing request's key: {0}")]
    Key(#[from] KeyError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    P256,
    P384,
    Rsa,
    Ed25519,
}

/// A public key of a kind and size that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub kind: KeyKind,
    /// What `subjectPublicKey` holds.
    bytes: Vec<u8>,
}

impl PublicKey {
    pub(super) fn read(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, KeyError> {
        let bytes = &*info.subject_public_key.data;
        let curve = info.algorithm.parameters.as_ref().and_then(|it| it.as_oid().ok());
        let kind = match info.parsed() {
            Ok(ParsedKey::RSA(rsa)) => {
                let bits = bits(rsa.modulus);
                if !RSA_BITS.contains(&bits) {
                    return Err(KeyError::RsaSize(bits));
                }
                if rsa.exponent.len() > LONGEST_EXPONENT + 1 {
                    return Err(KeyError::Damaged);
                }
                KeyKind::Rsa
            }
            Ok(ParsedKey::EC(_)) if curve == Some(OID_EC_P256) => KeyKind::P256,
            Ok(ParsedKey::EC(_)) if curve == Some(OID_NIST_EC_P384) => KeyKind::P384,
            _ if info.algorithm.algorithm == OID_SIG_ED25519 => KeyKind::Ed25519,
            _ => return Err(KeyError::Kind),
        };
        // Uncompressed points, and bytes of Ed25519.
        let length = match kind {
            KeyKind::P256 => 65,
            KeyKind::P384 => 97,
            KeyKind::Ed25519 => 32,
            KeyKind::Rsa => bytes.len(),
        };
        match bytes.len() == length && tls::is_key_read_by_go(info.raw) {
            true => Ok(Self { kind, bytes: bytes.to_vec() }),
            false => Err(KeyError::Damaged),
        }
    }

    /// The key of a PKCS#10 request that it signed itself. Nothing else of the request is looked at: who
    /// asks for a name or a right would otherwise get it.
    pub fn of_request(der: &[u8]) -> Result<Self, RequestError> {
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|_| RequestError::Unreadable)?;
        // The parser passes over damaged attributes, and over the class of tags.
        if !rest.is_empty() || !tls::is_strict_request(der) {
            return Err(RequestError::Unreadable);
        }
        let info = &request.certification_request_info;
        let key = Self::read(&info.subject_pki)?;
        let algorithm = &request.signature_algorithm.algorithm;
        let algorithm: &dyn VerificationAlgorithm = match key.kind {
            KeyKind::P256 if *algorithm == OID_SIG_ECDSA_WITH_SHA256 => &ECDSA_P256_SHA256_ASN1,
            KeyKind::P256 if *algorithm == OID_SIG_ECDSA_WITH_SHA384 => &ECDSA_P256_SHA384_ASN1,
            KeyKind::P384 if *algorithm == OID_SIG_ECDSA_WITH_SHA256 => &ECDSA_P384_SHA256_ASN1,
            KeyKind::P384 if *algorithm == OID_SIG_ECDSA_WITH_SHA384 => &ECDSA_P384_SHA384_ASN1,
            KeyKind::Rsa if *algorithm == OID_PKCS1_SHA256WITHRSA => &RSA_PKCS1_2048_8192_SHA256,
            KeyKind::Rsa if *algorithm == OID_PKCS1_SHA384WITHRSA => &RSA_PKCS1_2048_8192_SHA384,
            KeyKind::Rsa if *algorithm == OID_PKCS1_SHA512WITHRSA => &RSA_PKCS1_2048_8192_SHA512,
            KeyKind::Ed25519 if *algorithm == OID_SIG_ED25519 => &ED25519,
            _ => return Err(RequestError::Signature),
        };
        match key.is_signed(algorithm, info.raw, &request.signature_value.data) {
            true => Ok(key),
            false => Err(RequestError::Signature),
        }
    }

    /// Whether this key signed the message, by the one algorithm of its kind: ECDSA with SHA-256 (P-256) or
    /// SHA-384 (P-384), RSA-PSS with SHA-256, or Ed25519.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.kind {
            KeyKind::P256 => &ECDSA_P256_SHA256_ASN1,
            KeyKind::P384 => &ECDSA_P384_SHA384_ASN1,
            KeyKind::Rsa => &RSA_PSS_2048_8192_SHA256,
            KeyKind::Ed25519 => &ED25519,
        };
        self.is_signed(algorithm, message, signature)
    }

    fn is_signed(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Of a big-endian number.
fn bits(number: &[u8]) -> usize {
    let start = number.iter().position(|&byte| byte != 0).unwrap_or(number.len());
    let zeros = number.get(start).map_or(0, |byte| byte.leading_zeros() as usize);
    (number.len() - start) * 8 - zeros
}

#[cfg(test)]
mod tests;
