//! The annotation `trustplane.dev/injected`: a digest of the pair that we injected. Pure.
//!
//! It holds two digests, one over the Route's uid, the certificate and the key, one over the uid
//! and the key alone. The pair in a Route is ours if and only if the marker agrees with it. The uid
//! makes a copied or restored Route hold its owner's pair; the lengths in front of every part keep
//! two different pairs from ever hashing the same text.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

const FORMAT: &str = "v1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pair: [u8; 32],
    key: [u8; 32],
}

impl Marker {
    /// The marker that belongs to this pair in the Route with this uid.
    pub fn of(uid: &str, certificate: &str, key: &str) -> Self {
        Self { pair: digest([uid, certificate, key]), key: digest([uid, key]) }
    }

    /// The first 16 digits of its digest of the pair: what is written beside it names them.
    pub fn digits(&self) -> String {
        hex::encode(&self.pair[..8])
    }

    /// Whether certificate and key are the ones that this marker was written for.
    pub fn owns_pair(&self, uid: &str, certificate: &str, key: &str) -> bool {
        self.pair == digest([uid, certificate, key])
    }

    /// Whether the key alone is the one that this marker was written for.
    pub fn owns_key(&self, uid: &str, key: &str) -> bool {
        self.key == digest([uid, key])
    }
}

fn digest<const N: usize>(parts: [&str; N]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT}:{}:{}", hex::encode(self.pair), hex::encode(self.key))
    }
}

/// The annotation's value is none that we ever wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a marker of ours")]
pub struct ForeignMarker;

impl FromStr for Marker {
    type Err = ForeignMarker;

    fn from_str(text: &str) -> Result<Self, ForeignMarker> {
        let parts: Vec<&str> = text.split(':').collect();
        let [FORMAT, pair, key] = parts[..] else { return Err(ForeignMarker) };
        Ok(Self { pair: decode(pair)?, key: decode(key)? })
    }
}

fn decode(text: &str) -> Result<[u8; 32], ForeignMarker> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).map_err(|_| ForeignMarker)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_being_written_and_read() {
        let marker = Marker::of("uid", "certificate", "key");
        assert_eq!(marker.to_string().parse(), Ok(marker));
    }

    #[test]
    fn a_note_owns_only_the_pair_in_the_route_that_it_was_written_for() {
        let marker = Marker::of("uid", "certificate", "key");
        assert!(marker.owns_pair("uid", "certificate", "key"));
        assert!(!marker.owns_pair("copy", "certificate", "key"));
        assert!(!marker.owns_pair("uid", "certificate", "other"));
        assert!(!marker.owns_pair("uid", "other", "key"));
        assert!(marker.owns_key("uid", "key"));
        assert!(!marker.owns_key("copy", "key"));
    }

    #[test]
    fn text_that_moves_between_the_fields_is_another_pair() {
        assert_ne!(Marker::of("u", "ab", "c"), Marker::of("u", "a", "bc"));
        assert_ne!(Marker::of("ua", "b", "c"), Marker::of("u", "ab", "c"));
    }

    #[test]
    fn what_we_never_wrote_is_no_note() {
        let good = Marker::of("u", "c", "k").to_string();
        for text in ["", "v1", "v1::", "v2:00:00", &good[..good.len() - 1], &format!("{good}:")] {
            assert_eq!(text.parse::<Marker>(), Err(ForeignMarker), "{text}");
        }
    }
}
