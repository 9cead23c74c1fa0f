//! Keys and certificates for tests, made with OpenSSL while the tests run.

use std::sync::OnceLock;

use chrono::{DateTime, TimeZone, Utc};
use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Extension, X509NameBuilder, X509Ref};

pub(super) type Key = PKey<Private>;

pub(super) fn ec(curve: Nid) -> Key {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

pub(super) fn p256() -> Key {
    ec(Nid::X9_62_PRIME256V1)
}

/// One key per size and binary: large ones take seconds to find.
pub(super) fn rsa(bits: u32) -> Key {
    static KEYS: [OnceLock<Key>; 9] = [const { OnceLock::new() }; 9];
    let make = || match bits {
        8192 => rsa_8192(),
        bits => Rsa::generate(bits).unwrap(),
    };
    KEYS[(bits / 1024) as usize].get_or_init(|| PKey::from_rsa(make()).unwrap()).clone()
}

/// One of the two primes is a well-known one, which saves most of the search.
fn rsa_8192() -> Rsa<Private> {
    let number = || BigNum::new().unwrap();
    let mut context = BigNumContext::new().unwrap();
    let (one, e) = (BigNum::from_u32(1).unwrap(), BigNum::from_u32(65537).unwrap());
    let p = BigNum::get_rfc3526_prime_4096().unwrap();
    let mut q = number();
    q.generate_prime(4096, false, None, None).unwrap();
    let (below_p, below_q) = (&p - &one, &q - &one);
    let (n, phi) = (&p * &q, &below_p * &below_q);
    let mut d = number();
    d.mod_inverse(&e, &phi, &mut context).unwrap();
    let (d_p, d_q) = (&d % &below_p, &d % &below_q);
    let mut q_inverse = number();
    q_inverse.mod_inverse(&q, &p, &mut context).unwrap();
    Rsa::from_private_components(n, e, d, p, q, d_p, d_q, q_inverse).unwrap()
}

pub(super) fn pem(key: &Key) -> String {
    String::from_utf8(key.private_key_to_pem_pkcs8().unwrap()).unwrap()
}

pub(super) fn crt(certificate: &X509Ref) -> String {
    String::from_utf8(certificate.to_pem().unwrap()).unwrap()
}

/// A PEM block by hand, for contents that OpenSSL would not write.
pub(super) fn block(label: &str, der: &[u8]) -> String {
    let base64 = openssl::base64::encode_block(der);
    let lines: Vec<_> =
        base64.as_bytes().chunks(64).map(|l| std::str::from_utf8(l).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub(super) fn day(day: i64) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap() + chrono::TimeDelta::days(day)
}

/// A certificate and its key.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) x509: X509,
    pub(super) key: Key,
}

impl Issued {
    pub(super) fn crt(&self) -> String {
        crt(&self.x509)
    }

    pub(super) fn pem(&self) -> String {
        pem(&self.key)
    }
}

/// Describes a certificate. The default is a good leaf for `shop.example.com`.
pub(super) struct Recipe {
    name: String,
    key: Key,
    dns: Vec<String>,
    addresses: Vec<String>,
    uris: Vec<String>,
    authority: Option<bool>,
    digest: MessageDigest,
    days: (i64, i64),
    key_ids: bool,
    version: i32,
    extensions: Vec<X509Extension>,
}

pub(super) fn leaf() -> Recipe {
    Recipe {
        name: "shop".into(),
        key: p256(),
        dns: vec!["shop.example.com".into()],
        addresses: Vec::new(),
        uris: Vec::new(),
        authority: None,
        digest: MessageDigest::sha256(),
        days: (0, 90),
        key_ids: true,
        version: 2,
        extensions: Vec::new(),
    }
}

pub(super) fn authority(name: &str) -> Recipe {
    let mut recipe = leaf().named(name).days(-1000, 3650).authority(true);
    recipe.dns.clear();
    recipe
}

impl Recipe {
    pub(super) fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }
    pub(super) fn key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }
    pub(super) fn dns(mut self, names: &[&str]) -> Self {
        self.dns = names.iter().map(|n| (*n).to_owned()).collect();
        self
    }
    pub(super) fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.into());
        self
    }
    pub(super) fn uri(mut self, uri: &str) -> Self {
        self.uris.push(uri.into());
        self
    }
    pub(super) fn authority(mut self, is: bool) -> Self {
        self.authority = Some(is);
        self
    }
    pub(super) fn digest(mut self, digest: MessageDigest) -> Self {
        self.digest = digest;
        self
    }
    pub(super) fn days(mut self, from: i64, to: i64) -> Self {
        self.days = (from, to);
        self
    }
    pub(super) fn version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }
    /// Without subject and authority key identifiers.
    pub(super) fn without_key_ids(mut self) -> Self {
        self.key_ids = false;
        self
    }
    /// An extension as `openssl.cnf` writes it.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        #[allow(deprecated)] // the builder types know only some extensions
        let extension = X509Extension::new(None, None, name, value).unwrap();
        self.extensions.push(extension);
        self
    }
    pub(super) fn with_raw(mut self, oid: &str, critical: bool, der: &[u8]) -> Self {
        let (oid, value) =
            (Asn1Object::from_str(oid).unwrap(), Asn1OctetString::new_from_bytes(der).unwrap());
        self.extensions.push(X509Extension::new_from_der(&oid, critical, &value).unwrap());
        self
    }

    pub(super) fn self_signed(self) -> Issued {
        self.sign(None)
    }

    pub(super) fn by(self, issuer: &Issued) -> Issued {
        self.sign(Some(issuer))
    }

    fn sign(self, issuer: Option<&Issued>) -> Issued {
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", &self.name).unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(self.version).unwrap();
        let mut serial = BigNum::new().unwrap();
        serial.rand(120, openssl::bn::MsbOption::ONE, false).unwrap();
        builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(issuer.map_or(&name, |i| i.x509.subject_name())).unwrap();
        let time = |days| Asn1Time::from_unix(day(days).timestamp()).unwrap();
        builder.set_not_before(&time(self.days.0)).unwrap();
        builder.set_not_after(&time(self.days.1)).unwrap();
        builder.set_pubkey(&self.key).unwrap();
        if self.version == 2 {
            self.add_extensions(&mut builder, issuer);
        }
        let signer: &PKeyRef<Private> = issuer.map_or(&self.key, |i| &i.key);
        // Ed25519 has its digest built in.
        let digest = match signer.id() {
            openssl::pkey::Id::ED25519 => MessageDigest::null(),
            _ => self.digest,
        };
        builder.sign(signer, digest).unwrap();
        Issued { x509: builder.build(), key: self.key }
    }

    fn add_extensions(&self, builder: &mut openssl::x509::X509Builder, issuer: Option<&Issued>) {
        let issuer_cert = issuer.map(|i| &*i.x509);
        let mut add = |e: X509Extension| builder.append_extension(e).unwrap();
        match self.authority {
            Some(true) => add(BasicConstraints::new().critical().ca().build().unwrap()),
            Some(false) => add(BasicConstraints::new().build().unwrap()),
            None => {}
        }
        if !(self.dns.is_empty() && self.addresses.is_empty() && self.uris.is_empty()) {
            let mut names = SubjectAlternativeName::new();
            for name in &self.dns {
                names.dns(name);
            }
            for name in &self.addresses {
                names.ip(name);
            }
            for name in &self.uris {
                names.uri(name);
            }
            let names = names.build(&builder.x509v3_context(issuer_cert, None)).unwrap();
            builder.append_extension(names).unwrap();
        }
        if self.key_ids {
            let id = SubjectKeyIdentifier::new()
                .build(&builder.x509v3_context(issuer_cert, None))
                .unwrap();
            builder.append_extension(id).unwrap();
            if issuer_cert.is_some() {
                let id = AuthorityKeyIdentifier::new()
                    .keyid(true)
                    .build(&builder.x509v3_context(issuer_cert, None));
                if let Ok(id) = id {
                    builder.append_extension(id).unwrap();
                }
            }
        }
        for extension in &self.extensions {
            builder.append_extension2(extension).unwrap();
        }
    }
}

/// The same certificate with an RSA-PSS signature, which OpenSSL's builder can't make.
pub(super) fn pss(issued: Issued, issuer: &Issued, digest: MessageDigest, salt: i32) -> Issued {
    let hash_id: u8 = match digest.size() {
        32 => 1,
        48 => 2,
        _ => 3,
    };
    let hash = tlv(0x30, &tlv(6, &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash_id]));
    let pkcs1 = |number| tlv(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, number]);
    let mask = tlv(0x30, &[pkcs1(8), hash.clone()].concat());
    let salt_field = tlv(2, &[salt as u8]);
    let parameters = [tlv(0xa0, &hash), tlv(0xa1, &mask), tlv(0xa2, &salt_field)].concat();
    let algorithm = tlv(0x30, &[pkcs1(10), tlv(0x30, &parameters)].concat());

    let der = issued.x509.to_der().unwrap();
    let outer = body(&der);
    let old_tbs = &outer[..element(outer)];
    let rest = body(old_tbs);
    let before = element(rest) + element(&rest[element(rest)..]);
    let after = before + element(&rest[before..]);
    let tbs = tlv(0x30, &[&rest[..before], &algorithm, &rest[after..]].concat());

    let mut signer = openssl::sign::Signer::new(digest, &issuer.key).unwrap();
    signer.set_rsa_padding(openssl::rsa::Padding::PKCS1_PSS).unwrap();
    signer.set_rsa_mgf1_md(digest).unwrap();
    signer.set_rsa_pss_saltlen(openssl::sign::RsaPssSaltlen::custom(salt)).unwrap();
    let signature = signer.sign_oneshot_to_vec(&tbs).unwrap();
    let signature = tlv(3, &[&[0], &signature[..]].concat());
    let signed = tlv(0x30, &[tbs, algorithm, signature].concat());
    Issued { x509: X509::from_der(&signed).unwrap(), key: issued.key }
}

pub(super) fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = match body.len() {
        length @ 0..=127 => vec![length as u8],
        length @ 128..=255 => vec![0x81, length as u8],
        length => vec![0x82, (length >> 8) as u8, length as u8],
    };
    [&[tag], &length[..], body].concat()
}

/// The length of the first element of the input, tag and length included.
fn element(der: &[u8]) -> usize {
    match der[1] {
        0x81 => 3 + der[2] as usize,
        0x82 => 4 + ((der[2] as usize) << 8) + der[3] as usize,
        length => 2 + length as usize,
    }
}

fn body(der: &[u8]) -> &[u8] {
    let header = match der[1] {
        0x81 => 3,
        0x82 => 4,
        _ => 2,
    };
    &der[header..element(der)]
}
