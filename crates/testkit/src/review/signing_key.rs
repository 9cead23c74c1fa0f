//! Keys that tokens of ServiceAccounts are signed with.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openssl::{
    ec::{EcGroup, EcKey},
    ecdsa::EcdsaSig,
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKey, Private},
    rsa::Rsa,
    sha::sha256,
    sign::Signer,
};
use serde_json::{Value, json};

use crate::suite;

/// What kube-apiserver can sign with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Rsa,
    P256,
    P384,
    P521,
}

impl KeyKind {
    fn algorithm(self) -> (&'static str, MessageDigest) {
        match self {
            Self::Rsa => ("RS256", MessageDigest::sha256()),
            Self::P256 => ("ES256", MessageDigest::sha256()),
            Self::P384 => ("ES384", MessageDigest::sha384()),
            Self::P521 => ("ES512", MessageDigest::sha512()),
        }
    }

    /// In bytes, of each half of a signature.
    fn half(self) -> i32 {
        match self {
            Self::Rsa => 0,
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }
}

/// A key of a cluster, or of somebody who would like to be one.
#[derive(Clone)]
pub struct SigningKey {
    kind: KeyKind,
    key: PKey<Private>,
}

impl SigningKey {
    pub fn new(kind: KeyKind) -> Self {
        let on = |curve| EcGroup::from_curve_name(curve).and_then(|group| EcKey::generate(&group));
        let key = match kind {
            KeyKind::Rsa => Rsa::generate(2048).and_then(PKey::from_rsa),
            KeyKind::P256 => on(Nid::X9_62_PRIME256V1).and_then(PKey::from_ec_key),
            KeyKind::P384 => on(Nid::SECP384R1).and_then(PKey::from_ec_key),
            KeyKind::P521 => on(Nid::SECP521R1).and_then(PKey::from_ec_key),
        };
        let key = Self { kind, key: key.expect("openssl makes keys") };
        suite::register_key(&key.private_pem());
        key
    }

    pub fn private_pem(&self) -> String {
        text(self.key.private_key_to_pem_pkcs8().expect("a key is PEM"))
    }

    pub fn public_pem(&self) -> String {
        text(self.key.public_key_to_pem().expect("a key is PEM"))
    }

    /// As kube-apiserver names it.
    pub fn kid(&self) -> String {
        URL_SAFE_NO_PAD.encode(sha256(&self.key.public_key_to_der().expect("a key is DER")))
    }

    /// A token with these claims, as kube-apiserver would sign it.
    pub fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": self.kind.algorithm().0, "kid": self.kid() }), claims)
    }

    /// A token with any header.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let mut signer =
            Signer::new(self.kind.algorithm().1, &self.key).expect("a signer for the key");
        let signature = signer.sign_oneshot_to_vec(signed.as_bytes()).expect("a signature");
        let signature = match self.kind {
            KeyKind::Rsa => signature,
            _ => halves(&signature, self.kind.half()),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A signature as tokens have it, of one in DER.
fn halves(der: &[u8], length: i32) -> Vec<u8> {
    let signature = EcdsaSig::from_der(der).expect("openssl reads what it wrote");
    let half = |number: &openssl::bn::BigNumRef| {
        number.to_vec_padded(length).expect("a half is no longer than the curve's order")
    };
    [half(signature.r()), half(signature.s())].concat()
}

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).expect("PEM is text")
}
