//! Authorities, and the keys of good bundle documents, made once.

use std::sync::LazyLock;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use chrono::{DateTime, Utc};
use openssl::{
    bn::{BigNum, BigNumContext},
    nid::Nid,
    pkey::{Id, PKey, Public},
    rsa::Rsa,
    x509::X509,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Everything here is valid then.
pub fn noon() -> DateTime<Utc> {
    "2026-06-01T12:00:00Z".parse().expect("a time")
}

/// What go-spiffe verifies is made at the moment, because it has a clock of its own.
pub static NOW: LazyLock<DateTime<Utc>> = LazyLock::new(Utc::now);

/// A key of a document: its members in order, each value as JSON.
#[derive(Clone, Debug)]
pub struct Key(pub Vec<(String, String)>);

impl Key {
    fn new(members: &[(&str, String)]) -> Self {
        Self(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }

    /// With this member, in the place of one of the same name.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        match self.0.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, existing)) => value.clone_into(existing),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&&**name));
        self
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(existing, _)| existing == name).map(|(_, value)| &**value)
    }

    pub fn text(&self) -> String {
        object(&self.0)
    }
}

/// An object of members whose values are JSON already.
pub fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", members.join(", "))
}

pub fn document(keys: &[Key]) -> String {
    let keys: Vec<_> = keys.iter().map(Key::text).collect();
    format!("{{\"keys\": [{}]}}", keys.join(", "))
}

/// The keys of good documents.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let ders = || AUTHORITIES.iter().map(|authority| &**authority.der());
    let x509 = ders().map(|der| of_certificate(der).expect("a known type of key"));
    // JWT-SVIDs are not signed with Ed25519.
    let jwt = x509.clone().filter(|key| key.value("kty") != Some("\"OKP\"")).enumerate();
    let jwt = jwt.map(|(number, key)| {
        let kid = format!("\"key {number}\"");
        key.without(&["x5c"]).with("use", "\"jwt-svid\"").with("kid", &kid)
    });
    x509.chain(jwt).collect()
});

pub fn x509(number: usize) -> Key {
    let x509 = KEYS.iter().filter(|key| key.value("x5c").is_some());
    x509.cycle().nth(number).expect("there are some").clone()
}

pub fn jwt(number: usize) -> Key {
    let jwt = KEYS.iter().filter(|key| key.value("kid").is_some());
    jwt.cycle().nth(number).expect("there are some").clone()
}

/// The key of an authority as go-spiffe writes it; none for a type that JWKs don't have.
pub fn of_certificate(der: &[u8]) -> Option<Key> {
    let (kty, members) = jwk_members(der)?;
    let mut key = Key::new(&[
        ("kty", format!("\"{kty}\"")),
        ("use", "\"x509-svid\"".to_owned()),
        ("x5c", format!("[\"{}\"]", STANDARD.encode(der))),
    ]);
    for (name, value) in members {
        key = key.with(name, &format!("\"{value}\""));
    }
    Some(key)
}

/// A certificate's key as a JWK: its `kty`, and the members of that type. By OpenSSL, which src/spiffe does
/// not use.
pub fn jwk_members(der: &[u8]) -> Option<(&'static str, Vec<(&'static str, String)>)> {
    let key = X509::from_der(der).ok()?.public_key().ok()?;
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    match key.id() {
        Id::EC => Some(("EC", coordinates(&key)?)),
        Id::RSA => {
            let rsa = key.rsa().ok()?;
            Some(("RSA", vec![("n", text(&rsa.n().to_vec())), ("e", text(&rsa.e().to_vec()))]))
        }
        Id::ED25519 => {
            let x = text(&key.raw_public_key().ok()?);
            Some(("OKP", vec![("crv", "Ed25519".to_owned()), ("x", x)]))
        }
        _ => None,
    }
}

fn coordinates(key: &PKey<Public>) -> Option<Vec<(&'static str, String)>> {
    let key = key.ec_key().ok()?;
    let (curve, length) = match key.group().curve_name()? {
        Nid::X9_62_PRIME256V1 => ("P-256", 32),
        Nid::SECP384R1 => ("P-384", 48),
        Nid::SECP521R1 => ("P-521", 66),
        _ => return None,
    };
    let (mut x, mut y) = (BigNum::new().ok()?, BigNum::new().ok()?);
    let mut context = BigNumContext::new().ok()?;
    key.public_key().affine_coordinates(key.group(), &mut x, &mut y, &mut context).ok()?;
    let number = |it: &BigNum| Some(URL_SAFE_NO_PAD.encode(it.to_vec_padded(length).ok()?));
    Some(vec![("crv", curve.to_owned()), ("x", number(&x)?), ("y", number(&y)?)])
}

type Authority = CertifiedIssuer<'static, KeyPair>;

/// The first has issued [`SVID`].
static AUTHORITIES: LazyLock<Vec<Authority>> = LazyLock::new(|| {
    let made = |name: &str, key: KeyPair, change: &dyn Fn(&mut CertificateParams)| {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        change(&mut params);
        CertifiedIssuer::self_signed(params, key).expect("an authority")
    };
    let with = |algorithm| KeyPair::generate_for(algorithm).expect("a key");
    let p256 = || with(&rcgen::PKCS_ECDSA_P256_SHA256);
    let rsa = PKey::from_rsa(Rsa::generate(2048).expect("a key")).expect("a key");
    let rsa = rsa.private_key_to_pem_pkcs8().expect("PEM");
    let rsa = KeyPair::from_pem(&String::from_utf8(rsa).expect("text")).expect("a key");
    vec![
        made("plain", p256(), &|_| {}),
        // As SPIRE makes them.
        made("named", p256(), &|params| {
            params.subject_alt_names = vec![uri("spiffe://td.test")];
            params.distinguished_name.push(DnType::CountryName, "US");
        }),
        made("constrained", p256(), &|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("td.test".to_owned())],
                excluded_subtrees: vec![GeneralSubtree::Rfc822Name("other.test".to_owned())],
            });
        }),
        made("with policies", p256(), &|params| {
            // anyPolicy; and an extension that nobody knows.
            let any_policy = b"\x30\x08\x30\x06\x06\x04\x55\x1d\x20\x00".to_vec();
            params.custom_extensions = vec![
                CustomExtension::from_oid_content(&[2, 5, 29, 32], any_policy),
                CustomExtension::from_oid_content(&[1, 3, 9999, 1], vec![5, 0]),
            ];
        }),
        made("P-384", with(&rcgen::PKCS_ECDSA_P384_SHA384), &|_| {}),
        made("P-521", with(&rcgen::PKCS_ECDSA_P521_SHA512), &|_| {}),
        made("Ed25519", with(&rcgen::PKCS_ED25519), &|_| {}),
        made("RSA", rsa, &|_| {}),
    ]
});

/// For `spiffe://td.test/workload`, from the authority of `x509(0)`.
pub static SVID: LazyLock<CertificateDer<'static>> = LazyLock::new(|| issued().0);

/// A new SVID like [`SVID`] that is good for `127.0.0.1`, too, and its key.
pub fn issued() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = params("workload");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names =
        vec![uri("spiffe://td.test/workload"), SanType::IpAddress([127, 0, 0, 1].into())];
    let key = KeyPair::generate().expect("a key");
    let svid = params.signed_by(&key, &AUTHORITIES[0]).expect("an SVID");
    (svid.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

/// The authority of `x509(0)`.
pub fn authority_pem() -> String {
    AUTHORITIES[0].pem()
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2045, 1, 1));
    params.use_authority_key_identifier_extension = true;
    params
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}
