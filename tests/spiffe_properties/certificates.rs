//! Certificates and requests for them, written tag by tag and signed with keys that are made once: quick, and
//! free to break every rule.

use std::sync::LazyLock;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use chrono::TimeDelta;
use rustls::pki_types::CertificateDer;
use testkit::der::tlv;

use crate::{documents::Damage, material::NOW};

pub const KEY_USAGE: u8 = 15;
pub const NAMES: u8 = 17;
pub const BASIC_CONSTRAINTS: u8 = 19;
pub const NAME_CONSTRAINTS: u8 = 30;
pub const PURPOSES: u8 = 37;
/// Nobody knows it.
pub const UNKNOWN: u8 = 99;

pub const DIGITAL_SIGNATURE: &[u8] = &[3, 2, 7, 0x80];
pub const SIGNS_OTHERS: &[u8] = &[3, 2, 1, 6];
pub const CA: &[u8] = &[0x30, 3, 1, 1, 0xff];
pub const CA_OF_LEAVES: &[u8] = &[0x30, 6, 1, 1, 0xff, 2, 1, 0];
pub const NO_CA: &[u8] = &[0x30, 0];

const ECDSA_WITH_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const P256: &[u8] = &[
    0x30, 19, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7,
];

/// The owner of a name and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The authorities of the bundle.
    Root,
    Expired,
    /// May have no authority below it.
    Short,
    /// Has a critical extension that nobody knows.
    Odd,
    /// Vouches for DNS names in td.test alone.
    Constrained,
    /// Others.
    Foreign,
    /// Calls itself as the first one.
    Impostor,
    Between,
    Below,
    Workload,
}

use Party::*;

pub const PARTIES: [Party; 10] =
    [Root, Expired, Short, Odd, Constrained, Foreign, Impostor, Between, Below, Workload];

/// Those of the bundle.
pub const TRUSTED: [Party; 5] = [Root, Expired, Short, Odd, Constrained];

static KEYS: LazyLock<Vec<EcdsaKeyPair>> = LazyLock::new(|| {
    let key = |_| EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    PARTIES.iter().map(key).collect()
});

impl Party {
    fn key(self) -> &'static EcdsaKeyPair {
        &KEYS[self as usize]
    }

    fn name(self) -> Vec<u8> {
        let text = match self {
            Impostor => Root,
            other => other,
        };
        let common_name = [&[6, 3, 0x55, 4, 3][..], &tlv(0x0c, format!("{text:?}").as_bytes())];
        tlv(0x30, &tlv(0x31, &tlv(0x30, &common_name.concat())))
    }

    /// As a certificate has it.
    fn public_key(self) -> Vec<u8> {
        let point = [&[0], self.key().public_key().as_ref()].concat();
        tlv(0x30, &[P256, &tlv(3, &point)].concat())
    }

    /// What is to be signed, with its signature.
    fn signed(self, content: &[u8]) -> Vec<u8> {
        let signature = self.key().sign(&SystemRandom::new(), content).expect("a signature");
        let signature = tlv(3, &[&[0], signature.as_ref()].concat());
        tlv(0x30, &[content, ECDSA_WITH_SHA256, &signature].concat())
    }

    /// Its own certificate, if it is an authority of the bundle.
    pub fn root(self) -> CertificateDer<'static> {
        let mut root = Certificate::authority(self, self);
        match self {
            Expired => root.hours = (-2000, -1000),
            Short => root.set(BASIC_CONSTRAINTS, true, CA_OF_LEAVES),
            Odd => root.set(UNKNOWN, true, &[5, 0]),
            Constrained => {
                let below = tlv(0x30, &tlv(0x82, b"td.test"));
                root.set(NAME_CONSTRAINTS, true, &tlv(0x30, &tlv(0xa0, &below)));
            }
            _ => {}
        }
        root.der().into()
    }

    /// A request for a certificate with this key.
    pub fn request(self, subject: Party, damages: &[Damage]) -> Vec<u8> {
        let parts = [&[2, 1, 0][..], &subject.name(), &subject.public_key(), &[0xa0, 0]].concat();
        let mut content = tlv(0x30, &parts);
        damages.iter().for_each(|damage| damage.apply(&mut content));
        self.signed(&content)
    }
}

/// An extension: its number below `2.5.29`, whether it is critical, and its value.
pub type Extension = (u8, bool, Vec<u8>);

/// What a certificate is made of.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub subject: Party,
    pub issuer: Party,
    /// The validity, from now.
    pub hours: (i64, i64),
    /// Tags and texts.
    pub names: Vec<(u8, Vec<u8>)>,
    pub extensions: Vec<Extension>,
    /// Of what is signed.
    pub damages: Vec<Damage>,
    /// Written in the end over each text that differs from it in upper and lower case alone.
    pub id: Option<String>,
}

impl Certificate {
    /// As SPIRE issues it.
    pub fn svid(uri: &str, issuer: Party) -> Self {
        let purpose = |last| tlv(6, &[0x2b, 6, 1, 5, 5, 7, 3, last]);
        Self {
            subject: Workload,
            issuer,
            hours: (-100, 10_000),
            names: vec![(0x86, uri.as_bytes().to_vec())],
            extensions: vec![
                (KEY_USAGE, true, DIGITAL_SIGNATURE.to_vec()),
                (PURPOSES, false, tlv(0x30, &[purpose(1), purpose(2)].concat())),
                (BASIC_CONSTRAINTS, true, NO_CA.to_vec()),
            ],
            damages: Vec::new(),
            id: None,
        }
    }

    pub fn authority(subject: Party, issuer: Party) -> Self {
        let extensions =
            vec![(KEY_USAGE, true, SIGNS_OTHERS.to_vec()), (BASIC_CONSTRAINTS, true, CA.to_vec())];
        let hours = (-100, 20_000);
        let (names, damages) = (Vec::new(), Vec::new());
        Self { subject, issuer, hours, names, extensions, damages, id: None }
    }

    /// In the place of the one of this number, if there is one.
    pub fn set(&mut self, number: u8, is_critical: bool, value: &[u8]) {
        self.remove(number);
        self.extensions.push((number, is_critical, value.to_vec()));
    }

    pub fn remove(&mut self, number: u8) {
        self.extensions.retain(|it| it.0 != number);
    }

    pub fn der(&self) -> Vec<u8> {
        let time = |hours: i64| {
            let at = *NOW + TimeDelta::hours(hours);
            tlv(0x17, at.format("%y%m%d%H%M%SZ").to_string().as_bytes())
        };
        let validity = [time(self.hours.0), time(self.hours.1)].concat();
        let parts = [
            &[0xa0, 3, 2, 1, 2, 2, 1, 7][..],
            ECDSA_WITH_SHA256,
            &self.issuer.name(),
            &tlv(0x30, &validity),
            &self.subject.name(),
            &self.subject.public_key(),
            &tlv(0xa3, &tlv(0x30, &self.extensions())),
        ];
        let mut content = tlv(0x30, &parts.concat());
        self.damages.iter().for_each(|damage| damage.apply(&mut content));
        self.id.iter().for_each(|id| write_over(&mut content, id.as_bytes()));
        self.issuer.signed(&content)
    }

    fn extensions(&self) -> Vec<u8> {
        let names: Vec<u8> = self.names.iter().flat_map(|(tag, text)| tlv(*tag, text)).collect();
        let names = (!names.is_empty()).then(|| (NAMES, false, tlv(0x30, &names)));
        let all = self.extensions.iter().cloned().chain(names);
        all.flat_map(|(number, is_critical, value)| {
            let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
            let parts = [&[6, 3, 0x55, 0x1d, number][..], critical, &tlv(4, &value)];
            tlv(0x30, &parts.concat())
        })
        .collect()
    }
}

fn write_over(content: &mut [u8], id: &[u8]) {
    for at in 0..=content.len().saturating_sub(id.len()) {
        if content[at..].get(..id.len()).is_some_and(|it| it.eq_ignore_ascii_case(id)) {
            content[at..at + id.len()].copy_from_slice(id);
        }
    }
}
