//! The keys that sign tokens, and the JWKS in which they are published.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    error::Unspecified,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key could not be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signing key could not be made or used")]
pub struct KeyError;

impl From<Unspecified> for KeyError {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

/// When a new key appears in the JWKS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    Now,
    /// As external signers may do. Its tokens are good nevertheless.
    Later,
}

/// Has no Debug: it holds private keys.
#[derive(Default)]
pub(crate) struct Keys {
    /// Oldest first. Made when the first is needed, because most servers sign nothing.
    own: Vec<Key>,
    /// The place of the one that signs. A newer one is prepared.
    signing: usize,
    copied: Vec<Value>,
}

struct Key {
    pair: EcdsaKeyPair,
    id: String,
    is_published: bool,
}

impl Key {
    fn new(publication: Publication) -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        // As kube-apiserver names its keys.
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der.as_ref());
        let id = URL_SAFE_NO_PAD.encode(digest);
        Ok(Self { pair, id, is_published: publication == Publication::Now })
    }

    fn to_jwk(&self) -> Value {
        // An uncompressed point: 4, and both coordinates.
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }

    fn verifies(&self, message: &str, signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        key.verify(message.as_bytes(), signature).is_ok()
    }
}

/// Of all keys of this server.
pub(super) const ALGORITHM: &str = "ES256";

impl Keys {
    fn signing(&mut self) -> Result<&Key, KeyError> {
        if self.own.is_empty() {
            self.own.push(Key::new(Publication::Now)?);
        }
        self.own.get(self.signing).ok_or(KeyError)
    }

    /// The id of the key that signs.
    pub fn signing_id(&mut self) -> Result<&str, KeyError> {
        Ok(&self.signing()?.id)
    }

    pub fn sign(&mut self, message: &str) -> Result<Vec<u8>, KeyError> {
        let signature = self.signing()?.pair.sign(&SystemRandom::new(), message.as_bytes())?;
        Ok(signature.as_ref().to_vec())
    }

    /// None if there is no such key. A token without an id may be of any.
    pub fn verify(&self, id: Option<&str>, message: &str, signature: &[u8]) -> Option<bool> {
        let mut keys = self.own.iter().filter(|key| id.is_none_or(|id| id == key.id)).peekable();
        keys.peek()?;
        Some(keys.any(|key| key.verifies(message, signature)))
    }

    /// A key that signs nothing yet. One that was prepared before is replaced.
    pub fn prepare(&mut self, publication: Publication) -> Result<String, KeyError> {
        self.signing()?;
        let key = Key::new(publication)?;
        self.own.truncate(self.signing + 1);
        let id = key.id.clone();
        self.own.push(key);
        Ok(id)
    }

    /// The prepared key signs, or a new one.
    pub fn rotate(&mut self) -> Result<String, KeyError> {
        self.signing()?;
        if self.signing + 1 == self.own.len() {
            self.prepare(Publication::Now)?;
        }
        self.signing += 1;
        Ok(self.signing_id()?.to_owned())
    }

    pub fn publish_all(&mut self) {
        self.own.iter_mut().for_each(|key| key.is_published = true);
    }

    /// Forgets the keys that signed before.
    pub fn retire(&mut self) {
        self.own.drain(..self.signing);
        self.signing = 0;
    }

    pub fn publish_copies(&mut self, keys: Vec<Value>) {
        self.copied = keys;
    }

    pub fn jwks(&mut self) -> Result<Value, KeyError> {
        self.signing()?;
        let own = self.own.iter().filter(|key| key.is_published).map(Key::to_jwk);
        let keys: Vec<Value> = own.chain(self.copied.iter().cloned()).collect();
        Ok(json!({ "keys": keys }))
    }
}
