//! What we read of a Secret: its type and the two values of a TLS pair.

use std::fmt;

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::{metadata, resource::resource};

/// The only type of Secret that is injected.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// A Secret, without what is none of our business.
#[derive(Clone, Debug, Deserialize)]
pub struct Secret {
    /// Which Secret it is, and in which version.
    #[serde(deserialize_with = "metadata::identity")]
    pub metadata: ObjectMeta,
    /// `kubernetes.io/tls` for a certificate and its key; it can't be changed.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The values, decoded.
    #[serde(default)]
    pub data: SecretData,
}

/// The two values of a TLS Secret; others are not even decoded.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SecretData {
    /// The certificate chain.
    #[serde(rename = "tls.crt", default)]
    pub certificate: SecretBytes,
    /// The private key.
    #[serde(rename = "tls.key", default)]
    pub key: SecretBytes,
}

/// A decoded value that is wiped when dropped and never printed.
#[derive(Clone, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// The value itself.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `null` is how some clients write an empty value.
        let bytes = Option::<ByteString>::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self(Zeroizing::new(bytes.0)))
    }
}

/// A Secret as it is watched: its identity and version, and nothing of its content.
#[derive(Clone, Debug, Deserialize)]
pub struct SecretMetadata {
    /// Which Secret it is, and in which version.
    #[serde(deserialize_with = "metadata::identity")]
    pub metadata: ObjectMeta,
}

resource!(Secret, NamespaceResourceScope, "", "v1", "Secret", "secrets");
resource!(
    SecretMetadata,
    NamespaceResourceScope,
    "",
    "v1",
    "Secret",
    "secrets",
    metadata_only: true
);
