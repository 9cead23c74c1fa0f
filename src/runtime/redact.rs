//! Secrets that can't be printed by accident.

use std::fmt;

use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A private key as PEM text, byte for byte as its owner wrote it.
///
/// `Debug` shows a fingerprint; there is no `Display` and no `Serialize`. The text is available only
/// through [`PrivateKeyPem::expose`], so a reader finds every use by that name.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKeyPem(Zeroizing<String>);

impl PrivateKeyPem {
    /// Takes the text over; it is wiped from memory when dropped.
    pub fn new(pem: impl Into<String>) -> Self {
        Self(Zeroizing::new(pem.into()))
    }

    /// The key itself. Only hashing, parsing and the patch of a Route may ask for it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(self.0.as_bytes());
        write!(f, "PrivateKeyPem(sha256:{}…)", hex::encode(&digest[..4]))
    }
}

impl<'de> Deserialize<'de> for PrivateKeyPem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// A private key in DER (PKCS#8), as the Workload API hands it over. Printed and read as [`PrivateKeyPem`] is.
#[derive(Clone, PartialEq, Eq)]
pub struct Pkcs8Key(Zeroizing<Vec<u8>>);

impl Pkcs8Key {
    /// Takes the bytes over; they are wiped from memory when dropped.
    pub fn new(der: Vec<u8>) -> Self {
        Self(Zeroizing::new(der))
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Pkcs8Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(&*self.0);
        write!(f, "Pkcs8Key(sha256:{}…)", hex::encode(&digest[..4]))
    }
}

/// A bearer token. Printed and read as [`PrivateKeyPem`] is.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Zeroizing<String>);

impl BearerToken {
    /// Takes the text over; it is wiped from memory when dropped.
    pub fn new(token: impl Into<String>) -> Self {
        Self(Zeroizing::new(token.into()))
    }

    /// The token itself. Only reading its claims, sending it and the write of our Secret may ask for it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Tells tokens apart, and shows nothing of them.
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(self.0.as_bytes())))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(self.0.as_bytes());
        write!(f, "BearerToken(sha256:{}…)", hex::encode(&digest[..4]))
    }
}

impl<'de> Deserialize<'de> for BearerToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_a_fingerprint_and_nothing_of_the_key() {
        let shown = format!("{:?}", PrivateKeyPem::new("BEGIN very secret"));
        assert!(shown.starts_with("PrivateKeyPem(sha256:"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
        let shown = format!("{:?}", Pkcs8Key::new(b"very secret".to_vec()));
        assert!(shown.starts_with("Pkcs8Key(sha256:") && !shown.contains("115"), "{shown}");
        let token = BearerToken::new("very secret");
        for shown in [format!("{token:?}"), token.fingerprint()] {
            assert!(shown.contains("sha256:") && !shown.contains("secret"), "{shown}");
        }
    }
}
