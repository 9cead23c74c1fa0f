//! A digest of a text, to tell whether it changed.

use sha2::{Digest, Sha256};

/// What changes with a text.
pub(in crate::federate) fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
