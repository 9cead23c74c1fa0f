//! JWT-SVIDs: good ones, and what is nearly one.

use std::sync::LazyLock;

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
        ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
        RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use proptest::{prelude::*, sample::Index};
use serde_json::Value;
use trustplane::spiffe::{
    bundle::Bundle,
    id::{SpiffeId, TrustDomain},
    jwt::{self, JwtError, JwtSvid},
};

use crate::{
    check,
    documents::{Damage, VALUES, damage},
    ids,
    material::{Key, NOW, document, object},
};

pub const AUDIENCE: &str = "till";

enum Private {
    Ec(&'static str, EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// Each by the `kid` of its place.
static KEYS: LazyLock<Vec<Private>> = LazyLock::new(|| {
    let ec = |curve, algorithm: &'static EcdsaSigningAlgorithm| {
        Private::Ec(curve, EcdsaKeyPair::generate(algorithm).expect("a key"))
    };
    vec![
        ec("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ec("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ec("P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
        Private::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key")),
        // In no bundle.
        ec("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
    ]
});

impl Private {
    fn algorithms(&self) -> &'static [&'static str] {
        match self {
            Self::Ec("P-256", _) => &["ES256"],
            Self::Ec("P-384", _) => &["ES384"],
            Self::Ec(..) => &["ES512"],
            Self::Rsa(_) => &["RS256", "PS256"],
        }
    }

    fn public(&self, kid: usize) -> Key {
        let text = |bytes: &[u8]| format!("\"{}\"", URL_SAFE_NO_PAD.encode(bytes));
        let key = Key(Vec::new()).with("use", "\"jwt-svid\"").with("kid", &format!("\"{kid}\""));
        match self {
            Self::Ec(curve, key_pair) => {
                let point = &key_pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let key = key.with("kty", "\"EC\"").with("crv", &format!("\"{curve}\""));
                key.with("x", &text(x)).with("y", &text(y))
            }
            Self::Rsa(key_pair) => {
                let (n, e) = (key_pair.public_key().modulus(), key_pair.public_key().exponent());
                let key = key.with("kty", "\"RSA\"");
                let key = key.with("n", &text(n.big_endian_without_leading_zero()));
                key.with("e", &text(e.big_endian_without_leading_zero()))
            }
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ec(_, key) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let padding: &'static dyn aws_lc_rs::signature::RsaEncoding = match algorithm {
                    "PS256" => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                key.sign(padding, &random, message, &mut signature).expect("a signature");
                signature
            }
        }
    }
}

/// The bundle of td.test.
pub static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let known = KEYS[..KEYS.len() - 1].iter().enumerate();
    document(&known.map(|(kid, key)| key.public(kid)).collect::<Vec<_>>())
});

static BUNDLE: LazyLock<Bundle> =
    LazyLock::new(|| Bundle::parse(DOCUMENT.as_bytes()).expect("a bundle"));

/// A JWT-SVID as it is made, so that it can be changed and made again.
#[derive(Clone, Debug)]
pub struct Token {
    /// Members in order, each value as JSON.
    header: Members,
    claims: Members,
    key: usize,
    algorithm: &'static str,
    /// Of what is signed.
    damages: Vec<(Part, Damage)>,
    /// Of the whole.
    damages_afterwards: Vec<Damage>,
}

type Members = Vec<(String, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Claims,
}

impl Token {
    pub fn text(&self) -> String {
        let part = |part: Part, members: &Members| {
            let mut text = object(members).into_bytes();
            let own = self.damages.iter().filter(|(of, _)| *of == part);
            own.for_each(|(_, damage)| damage.apply(&mut text));
            URL_SAFE_NO_PAD.encode(text)
        };
        let (header, claims) = (part(Part::Header, &self.header), part(Part::Claims, &self.claims));
        let mut text = self.signed(&header, &claims).into_bytes();
        self.damages_afterwards.iter().for_each(|damage| damage.apply(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The same with this subject, whatever wrote its own.
    pub fn with_subject(&self, id: &SpiffeId) -> String {
        let text = self.text();
        let mut parts = text.split('.');
        let (header, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let claims = URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
        let mut claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
        claims["sub"] = id.to_string().into();
        self.signed(header, &URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn signed(&self, header: &str, claims: &str) -> String {
        let signed = format!("{header}.{claims}");
        let signature = KEYS[self.key].sign(self.algorithm, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn part(&mut self, part: Part) -> &mut Members {
        match part {
            Part::Header => &mut self.header,
            Part::Claims => &mut self.claims,
        }
    }
}

pub fn judge(token: &str) -> Result<JwtSvid, JwtError> {
    let bundle_of = |of: &TrustDomain| (of.as_str() == "td.test").then_some(&*BUNDLE);
    jwt::verify(token, AUDIENCE, bundle_of, *NOW)
}

pub fn token() -> impl Strategy<Value = Token> {
    // Signing with RSA takes long.
    let key =
        prop_oneof![20 => Just(0), 2 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4_usize)];
    let changes = prop_oneof![3 => Just(0), 6 => Just(1), 3 => 2..4_usize];
    let changes = changes.prop_flat_map(|count| prop::collection::vec(change(), count));
    let path = "(/[a-zA-Z0-9_-]{1,8}){0,3}";
    (key, any::<Index>(), path, changes).prop_map(|(key, algorithm, path, changes)| {
        let algorithm = *algorithm.get(KEYS[key].algorithms());
        let member = |name: &str, value: String| (name.to_owned(), value);
        let text = |text: &str| format!("\"{text}\"");
        let mut token = Token {
            header: vec![
                member("alg", text(algorithm)),
                member("kid", text(&key.to_string())),
                member("typ", text("JWT")),
            ],
            claims: vec![
                member("sub", text(&format!("spiffe://td.test{path}"))),
                member("aud", "[\"till\", \"bank\"]".to_owned()),
                member("exp", (NOW.timestamp() + 30 * DAY).to_string()),
                member("iat", NOW.timestamp().to_string()),
            ],
            key,
            algorithm,
            damages: Vec::new(),
            damages_afterwards: Vec::new(),
        };
        changes.iter().for_each(|change| change.apply(&mut token));
        token
    })
}

const DAY: i64 = 24 * 60 * 60;

/// Those with a meaning, others that are registered, and what is nearly one.
const OF_HEADER: [&str; 17] = [
    "alg", "alg", "kid", "kid", "typ", "typ", "crit", "b64", "jwk", "x5c", "nonce", "cty", "enc",
    "zip", "new", "Alg", "KID",
];
const OF_CLAIMS: [&str; 16] = [
    "sub", "sub", "sub", "aud", "aud", "aud", "exp", "exp", "nbf", "nbf", "iat", "iat", "iss",
    "jti", "new", "Sub",
];
const TEXTS: [&str; 12] = [
    "\"till\"",
    "[\"till\"]",
    "[\"bank\"]",
    "[\"till\", 1]",
    "[1, \"till\"]",
    "\"JWT\"",
    "\"JOSE\"",
    "\"at+jwt\"",
    "\"none\"",
    "\"HS256\"",
    "\"ES256\"",
    "\"RS256\"",
];

#[derive(Clone, Debug)]
enum Change {
    Set(Part, &'static str, String),
    Twice(Part, Index, Option<String>),
    Drop(Part, Index),
    Rename(Part, Index, &'static str),
    Key(usize),
    Damage(Part, Damage),
    DamageAfterwards(Damage),
}

fn change() -> impl Strategy<Value = Change> {
    let part = || prop_oneof![1 => Just(Part::Header), 2 => Just(Part::Claims)];
    let named = || {
        prop_oneof![
            1 => prop::sample::select(&OF_HEADER[..]).prop_map(|name| (Part::Header, name)),
            2 => prop::sample::select(&OF_CLAIMS[..]).prop_map(|name| (Part::Claims, name)),
        ]
    };
    let at = any::<Index>;
    prop_oneof![
        12 => (named(), value())
            .prop_map(|((part, name), value)| Change::Set(part, name, value)),
        4 => subject().prop_map(|id| Change::Set(Part::Claims, "sub", id)),
        4 => (prop::sample::select(vec!["exp", "nbf", "iat"]), time())
            .prop_map(|(name, time)| Change::Set(Part::Claims, name, time)),
        2 => (part(), at(), prop::option::of(value()))
            .prop_map(|(part, at, value)| Change::Twice(part, at, value)),
        1 => (part(), at()).prop_map(|(part, at)| Change::Drop(part, at)),
        1 => (at(), named()).prop_map(|(at, (part, name))| Change::Rename(part, at, name)),
        1 => (0..5_usize).prop_map(Change::Key),
        4 => (part(), damage()).prop_map(|(part, damage)| Change::Damage(part, damage)),
        3 => damage().prop_map(Change::DamageAfterwards),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let known = VALUES.iter().chain(&TEXTS).map(|it| (*it).to_owned()).collect::<Vec<_>>();
    prop_oneof![4 => prop::sample::select(known), 1 => time()]
}

fn subject() -> impl Strategy<Value = String> {
    let own = "(SPIFFE|spiffe)://(td|TD)\\.test/[a-zA-Z]{1,8}";
    prop_oneof![ids::id(), own].prop_map(|id| Value::from(id).to_string())
}

/// In days, because go-spiffe has a clock of its own, and other numbers.
fn time() -> impl Strategy<Value = String> {
    let odd = ["1e300", "-1e300", "4611686018427387904", "4611686018427387903", "0.5", "1e10"];
    let days = prop_oneof![-400..-1_i64, 2..400_i64];
    prop_oneof![
        4 => days.prop_map(|days| (NOW.timestamp() + days * DAY).to_string()),
        1 => (2..400_i64).prop_map(|days| format!("{}.75", NOW.timestamp() + days * DAY)),
        1 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
    ]
}

impl Change {
    fn apply(&self, token: &mut Token) {
        match self {
            Self::Set(part, name, value) => {
                let members = token.part(*part);
                members.retain(|(existing, _)| existing != name);
                members.push(((*name).to_owned(), value.clone()));
            }
            Self::Twice(part, at, value) => {
                let members = token.part(*part);
                if !members.is_empty() {
                    let (name, existing) = at.get(members).clone();
                    members.push((name, value.clone().unwrap_or(existing)));
                }
            }
            Self::Drop(part, at) => {
                let members = token.part(*part);
                if !members.is_empty() {
                    members.remove(at.index(members.len()));
                }
            }
            Self::Rename(part, at, name) => {
                let members = token.part(*part);
                if !members.is_empty() {
                    let place = at.index(members.len());
                    (*name).clone_into(&mut members[place].0);
                }
            }
            Self::Key(key) => token.key = *key,
            Self::Damage(part, damage) => token.damages.push((*part, damage.clone())),
            Self::DamageAfterwards(damage) => token.damages_afterwards.push(damage.clone()),
        }
    }
}

#[test]
fn every_token_has_an_answer_and_an_accepted_one_proves_its_subject_to_its_audience_alone() {
    check(&token(), |token| {
        let text = token.text();
        let svid = match judge(&text) {
            Ok(svid) => svid,
            Err(error) => {
                let said = error.to_string();
                let quoted = text.split('.').find(|it| it.len() > 10 && said.contains(it));
                prop_assert!(quoted.is_none(), "{said}");
                return Ok(false);
            }
        };
        prop_assert_eq!(svid.id.trust_domain().as_str(), "td.test");
        let subject = svid.claims["sub"].as_str().unwrap_or_default();
        prop_assert!(svid.id.to_string().eq_ignore_ascii_case(subject));
        let bundle = |_: &_| Some(&*BUNDLE);
        let elsewhere = jwt::verify(&text, "nobody", bundle, *NOW);
        prop_assert_eq!(elsewhere, Err(JwtError::Audience));
        prop_assert!(jwt::verify(&text, AUDIENCE, |_| None, *NOW).is_err());
        let late = *NOW + chrono::TimeDelta::days(100_000);
        let end = svid.claims["exp"].as_f64().unwrap_or_default();
        let is_over = jwt::verify(&text, AUDIENCE, bundle, late).is_err();
        prop_assert_eq!(is_over, end <= late.timestamp() as f64);
        Ok(true)
    });
}
