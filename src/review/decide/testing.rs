//! Tokens and keys for tests.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
        ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
        RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

enum Signer {
    Ec(EcdsaKeyPair, &'static str),
    Rsa(RsaKeyPair),
}

/// A cluster's key. Makes tokens.
pub struct Issuer {
    signer: Signer,
    pub kid: String,
    alg: &'static str,
}

impl Issuer {
    pub fn p256(kid: &str) -> Self {
        Self::ec(kid, &ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "ES256")
    }

    pub fn p384(kid: &str) -> Self {
        Self::ec(kid, &ECDSA_P384_SHA384_FIXED_SIGNING, "P-384", "ES384")
    }

    pub fn p521(kid: &str) -> Self {
        Self::ec(kid, &ECDSA_P521_SHA512_FIXED_SIGNING, "P-521", "ES512")
    }

    pub fn rsa(kid: &str) -> Self {
        let signer = Signer::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
        Self { signer, kid: kid.to_owned(), alg: "RS256" }
    }

    fn ec(
        kid: &str,
        algorithm: &'static EcdsaSigningAlgorithm,
        curve: &'static str,
        alg: &'static str,
    ) -> Self {
        let signer = Signer::Ec(EcdsaKeyPair::generate(algorithm).unwrap(), curve);
        Self { signer, kid: kid.to_owned(), alg }
    }

    pub fn jwk(&self) -> Value {
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut key = match &self.signer {
            Signer::Ec(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": number(x), "y": number(y) })
            }
            Signer::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({ "kty": "RSA", "n": number(&public.n), "e": number(&public.e) })
            }
        };
        key["kid"] = self.kid.as_str().into();
        key["alg"] = self.alg.into();
        key["use"] = "sig".into();
        key
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.alg, "kid": self.kid }), claims)
    }

    /// With a header of the caller's own.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = signed(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.signer {
            Signer::Ec(pair, _) => {
                pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec()
            }
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn signed(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// With any signature.
pub fn token_of(header: &Value, claims: &Value, signature: &[u8]) -> String {
    format!("{}.{}", signed(header, claims), URL_SAFE_NO_PAD.encode(signature))
}

/// Of a token that is bound to a Pod, valid for an hour from [`noon`].
pub fn claims() -> Value {
    json!({
        "iss": "https://kubernetes.default.svc",
        "sub": "system:serviceaccount:shop:cart",
        "aud": ["shop", "till"],
        "iat": 1_900_000_000, "nbf": 1_900_000_000, "exp": 1_900_003_600,
        "jti": "t-1",
        "kubernetes.io": {
            "namespace": "shop",
            "serviceaccount": { "name": "cart", "uid": "u-1" },
            "pod": { "name": "cart-0", "uid": "p-1" },
            "node": { "name": "node-1", "uid": "n-1" },
        },
    })
}

/// Of a token that lies in a Secret, as Kubernetes made them before 1.24.
pub fn legacy_claims() -> Value {
    json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:shop:cart",
        "kubernetes.io/serviceaccount/namespace": "shop",
        "kubernetes.io/serviceaccount/secret.name": "cart-token",
        "kubernetes.io/serviceaccount/service-account.name": "cart",
        "kubernetes.io/serviceaccount/service-account.uid": "u-1",
    })
}

/// When [`claims`] begin to be valid.
pub fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}
