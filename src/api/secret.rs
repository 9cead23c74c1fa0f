//! What we read of a Secret: its type and the two values of a TLS pair.

use std::fmt;

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::{metadata, resource::resource};

/// The only type of Secret that is injected.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// The fields of a Secret that we use.
#[derive(Clone, Debug, Deserialize)]
pub struct Secret {
    #[serde(deserialize_with = "metadata::identity")]
    pub metadata: ObjectMeta,
    /// Immutable.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub data: SecretData,
}

/// Other values are not even decoded.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SecretData {
    #[serde(rename = "tls.crt", default)]
    pub certificate: SecretBytes,
    #[serde(rename = "tls.key", default)]
    pub key: SecretBytes,
}

/// A decoded value that is wiped when dropped and never printed.
#[derive(Clone, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
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

/// A Secret as it is watched, without its content.
#[derive(Clone, Debug, Deserialize)]
pub struct SecretMetadata {
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
