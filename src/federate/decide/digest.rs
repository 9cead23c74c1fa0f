//! A digest of a text, to tell whether it changed.

use sha2::{Digest, Sha256};

pub(in crate::federate) fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
