use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
        RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;
use crate::spiffe::testing::noon;

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn number(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

struct Signer {
    key: EcdsaKeyPair,
    header: Value,
    claims: Value,
}

impl Signer {
    fn new() -> Self {
        Self {
            key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            header: json!({ "alg": "ES256", "kid": "a", "typ": "JWT" }),
            claims: json!({
                "sub": "spiffe://td.test/shop", "aud": ["till", "bank"], "exp": noon().timestamp() + 60,
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn token(&self) -> String {
        let signed = format!("{}.{}", part(&self.header), part(&self.claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", number(signature.as_ref()))
    }

    fn bundle(&self) -> Bundle {
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        let key = json!({
            "use": "jwt-svid", "kty": "EC", "crv": "P-256", "kid": "a", "x": number(x), "y": number(y),
        });
        Bundle::parse(json!({ "keys": [key] }).to_string().as_bytes()).unwrap()
    }

    fn judge(&self) -> Result<JwtSvid, JwtError> {
        let bundle = self.bundle();
        let bundle_of = |of: &TrustDomain| (of.as_str() == "td.test").then_some(&bundle);
        verify(&self.token(), "till", bundle_of, noon())
    }
}

#[test]
fn a_jwt_svid_proves_its_subject_and_hands_over_its_claims() {
    let signer = Signer::new();
    let svid = signer.judge().unwrap();
    assert_eq!(svid.id.to_string(), "spiffe://td.test/shop");
    assert_eq!(Value::Object(svid.claims), signer.claims);
    let one_audience = signer.with(|it| it.claims["aud"] = json!("till"));
    assert!(one_audience.judge().is_ok());
}

#[test]
fn a_jwt_svid_that_proves_nothing_is_refused_with_its_fault() {
    let trust_domain = |name| TrustDomain::parse(name).unwrap();
    let now = noon().timestamp();
    type Change = Box<dyn FnOnce(&mut Signer)>;
    let cases: Vec<(Change, JwtError)> = vec![
        (Box::new(|it| it.header["alg"] = json!("none")), JwtError::Algorithm),
        (Box::new(|it| it.header["alg"] = json!("HS256")), JwtError::Algorithm),
        (Box::new(|it| it.header["alg"] = json!("ES384")), JwtError::Signature),
        (Box::new(|it| it.header["alg"] = json!("RS256")), JwtError::Signature),
        (Box::new(|it| it.header["typ"] = json!("at+jwt")), JwtError::Type),
        (Box::new(|it| it.header["crit"] = json!(["b64"])), JwtError::Parameter),
        (Box::new(|it| it.header["b64"] = json!(false)), JwtError::Parameter),
        (Box::new(|it| it.header["kid"] = json!(1)), JwtError::NoKid),
        (Box::new(|it| it.header["kid"] = json!("b")), JwtError::NoKey(trust_domain("td.test"))),
        (Box::new(|it| it.claims["sub"] = json!(null)), JwtError::NoSubject),
        (Box::new(|it| it.claims["sub"] = json!("shop")), JwtError::Subject(IdError::Scheme)),
        (
            Box::new(|it| it.claims["sub"] = json!("spiffe://other.test/shop")),
            JwtError::NoBundle(trust_domain("other.test")),
        ),
        (Box::new(|it| it.claims["aud"] = json!(["bank"])), JwtError::Audience),
        (Box::new(|it| it.claims["aud"] = json!(null)), JwtError::Audience),
        (Box::new(|it| it.claims["aud"] = json!(["till", 1])), JwtError::Audience),
        (Box::new(|it| it.claims["exp"] = json!(null)), JwtError::NoExpiry),
        (Box::new(|it| it.claims["exp"] = json!(1e300)), JwtError::NoExpiry),
        (Box::new(move |it| it.claims["exp"] = json!(now)), JwtError::Expired),
        (Box::new(move |it| it.claims["nbf"] = json!(now + 1)), JwtError::NotYetValid),
        (Box::new(|it| it.claims["nbf"] = json!("soon")), JwtError::NotYetValid),
        (Box::new(move |it| it.claims["iat"] = json!(now + 61)), JwtError::IssuedLater),
        (Box::new(|it| it.claims["iss"] = json!(["td.test"])), JwtError::NoText),
    ];
    for (change, expected) in cases {
        assert_eq!(Signer::new().with(change).judge(), Err(expected));
    }
}

/// One reader would take the first of them, and another the last.
#[test]
fn a_jwt_svid_with_two_subjects_is_refused() {
    let signer = Signer::new();
    let claims = signer.claims.to_string();
    let twice = format!("{{\"sub\": \"spiffe://td.test/bank\", {}", &claims[1..]);
    let signed = format!("{}.{}", part(&signer.header), number(twice.as_bytes()));
    let signature = signer.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    let (token, bundle) = (format!("{signed}.{}", number(signature.as_ref())), signer.bundle());
    assert_eq!(verify(&token, "till", |_| Some(&bundle), noon()), Err(JwtError::Form));
}

#[test]
fn a_jwt_svid_that_was_changed_or_is_another_key_s_is_refused() {
    let signer = Signer::new();
    let other = Signer::new().bundle();
    assert_eq!(verify(&signer.token(), "till", |_| Some(&other), noon()), Err(JwtError::Signature));
    let claims = part(&json!({ "sub": "spiffe://td.test/bank", "aud": "till", "exp": 2e10 }));
    let token = signer.token();
    let parts: Vec<_> = token.split('.').collect();
    let forged = format!("{}.{claims}.{}", parts[0], parts[2]);
    let bundle = signer.bundle();
    assert_eq!(verify(&forged, "till", |_| Some(&bundle), noon()), Err(JwtError::Signature));
    for broken in ["", "a", "a.b", "....", &format!("{token}="), &format!("{token}.x")] {
        assert_eq!(verify(broken, "till", |_| Some(&bundle), noon()), Err(JwtError::Form));
    }
    let long = "a".repeat(LONGEST + 1);
    assert_eq!(verify(&long, "till", |_| Some(&bundle), noon()), Err(JwtError::Long));
}

#[test]
fn rsa_keys_sign_with_both_paddings_and_not_with_the_other_one() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let public = key.public_key();
    let (n, e) = (public.modulus(), public.exponent());
    let key_document = json!({
        "use": "jwt-svid", "kty": "RSA", "kid": "a",
        "n": number(n.big_endian_without_leading_zero()), "e": number(e.big_endian_without_leading_zero()),
    });
    let bundle = Bundle::parse(json!({ "keys": [key_document] }).to_string().as_bytes()).unwrap();
    let judge = |algorithm: &str, encoding: &'static dyn RsaEncoding| {
        let claims = Signer::new().claims;
        let signed =
            format!("{}.{}", part(&json!({ "alg": algorithm, "kid": "a" })), part(&claims));
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        verify(&format!("{signed}.{}", number(&signature)), "till", |_| Some(&bundle), noon())
    };
    assert!(judge("RS256", &RSA_PKCS1_SHA256).is_ok());
    assert!(judge("PS512", &RSA_PSS_SHA512).is_ok());
    assert_eq!(judge("PS256", &RSA_PKCS1_SHA256), Err(JwtError::Signature));
}
