//! The keys of clusters, and tokens that they sign.

use std::sync::OnceLock;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// More than any simulation rotates through.
const KEYS: usize = 12;

pub struct Key {
    pair: EcdsaKeyPair,
    pub kid: String,
}

/// Keys, made once per run.
pub fn key(number: usize) -> &'static Key {
    static POOL: OnceLock<Vec<Key>> = OnceLock::new();
    let make = |number| Key {
        pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key can be made"),
        kid: format!("key-{number}"),
    };
    &POOL.get_or_init(|| (0..KEYS).map(make).collect())[number % KEYS]
}

impl Key {
    pub fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let [x, y] = [x, y].map(|number| URL_SAFE_NO_PAD.encode(number));
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, "use": "sig" })
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": self.kid });
        let [header, claims] = [&header, claims].map(|it| URL_SAFE_NO_PAD.encode(it.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.expect("a key signs");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
