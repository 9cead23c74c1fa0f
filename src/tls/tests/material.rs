//! Keys and certificates for tests, made with OpenSSL while the tests run.

use std::sync::OnceLock;

use chrono::{DateTime, TimeZone, Utc};
use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
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
    let slot = (bits / 1024) as usize;
    KEYS[slot].get_or_init(|| PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()).clone()
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

/// What a certificate is to be like; unless told otherwise a good leaf for `shop.example.com`.
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
            self.dns.iter().for_each(|n| drop(names.dns(n)));
            self.addresses.iter().for_each(|n| drop(names.ip(n)));
            self.uris.iter().for_each(|n| drop(names.uri(n)));
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
