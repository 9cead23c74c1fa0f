//! Chains that somebody presents for an ID that nobody knows beforehand: good ones, and what is nearly one.

use std::sync::LazyLock;

use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use testkit::der::tlv;
use trustplane::spiffe::{
    bundle::Bundle,
    chain,
    id::{SpiffeId, TrustDomain},
    svid::{self, PresentedSvid, SvidError, SvidWarning},
};

use crate::{
    certificates::{
        BASIC_CONSTRAINTS, CA, CA_OF_LEAVES, Certificate, DIGITAL_SIGNATURE, Extension, KEY_USAGE,
        NAME_CONSTRAINTS, NO_CA, PARTIES, PURPOSES, Party, SIGNS_OTHERS, TRUSTED, UNKNOWN,
    },
    check,
    documents::{Damage, damage},
    ids,
    material::{NOW, document, of_certificate},
};

/// The bundle of td.test.
pub static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let key = |party: Party| of_certificate(&party.root()).expect("a known type of key");
    document(&TRUSTED.map(key))
});

static BUNDLE: LazyLock<Bundle> =
    LazyLock::new(|| Bundle::parse(DOCUMENT.as_bytes()).expect("a bundle"));

/// A chain as it is made, so that it can be changed and made again.
#[derive(Clone, Debug)]
pub struct Presented {
    /// The SVID first.
    certificates: Vec<Certificate>,
    /// Of signed certificates.
    damages: Vec<(usize, Damage)>,
}

impl Presented {
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let mut chain: Vec<_> = self.certificates.iter().map(Certificate::der).collect();
        let count = chain.len().max(1);
        for (at, damage) in &self.damages {
            chain.get_mut(at % count).into_iter().for_each(|der| damage.apply(der));
        }
        chain.into_iter().map(CertificateDer::from).collect()
    }

    /// The same with its ID in lower case, whatever wrote it.
    pub fn with_id(&self, id: &SpiffeId) -> Self {
        let mut other = self.clone();
        other.certificates.iter_mut().take(1).for_each(|it| it.id = Some(id.to_string()));
        other
    }
}

/// As a client sends it.
pub fn joined(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    chain.iter().flat_map(|it| it.to_vec()).collect()
}

/// What a server that trusts td.test alone makes of a chain.
pub fn judge(chain: &[CertificateDer<'_>]) -> Result<(SpiffeId, Option<SvidWarning>), SvidError> {
    let svid = PresentedSvid::read(chain)?;
    let id = svid.id()?.clone();
    match id.trust_domain().as_str() {
        "td.test" => svid.verify(&BUNDLE, *NOW).map(|warning| (id, warning)),
        _ => Err(SvidError::UnknownAuthority(id.trust_domain().clone())),
    }
}

pub fn presented() -> impl Strategy<Value = Presented> {
    let path = "(/[a-zA-Z0-9_-]{1,8}){1,3}";
    let root = prop_oneof![6 => Just(Party::Root), 1 => prop::sample::select(&TRUSTED[..])];
    let changes = prop_oneof![3 => Just(0), 6 => Just(1), 3 => 2..4_usize];
    let changes = changes.prop_flat_map(|count| prop::collection::vec(change(), count));
    let between = prop_oneof![5 => Just(0), 3 => Just(1), 1 => Just(2_usize)];
    (path, root, between, changes).prop_map(|(path, root, between, changes)| {
        let parties = [root, Party::Between, Party::Below];
        let svid = Certificate::svid(&format!("spiffe://td.test{path}"), parties[between]);
        let authorities = (0..between).rev();
        let authorities =
            authorities.map(|at| Certificate::authority(parties[at + 1], parties[at]));
        let certificates = std::iter::once(svid).chain(authorities).collect();
        let mut presented = Presented { certificates, damages: Vec::new() };
        changes.iter().for_each(|change| change.apply(&mut presented));
        presented
    })
}

#[derive(Clone, Debug)]
enum Change {
    Names(Vec<(u8, Vec<u8>)>),
    MoreNames(Vec<(u8, Vec<u8>)>),
    /// In the place of one of the same number.
    Set(usize, Extension),
    /// Though there may be one of the same number.
    Add(usize, Extension),
    Drop(usize, u8),
    Hours(usize, (i64, i64)),
    Issuer(usize, Party),
    Damage(usize, Damage),
    /// Of a signed certificate.
    DamageAfterwards(usize, Damage),
    Swap(usize, usize),
    Remove(usize),
    Repeat(usize, usize),
    /// The authority itself.
    Append(Party),
}

fn change() -> impl Strategy<Value = Change> {
    // The SVID, or any of the chain.
    let at = || prop_oneof![2 => Just(0), 1 => 0..4_usize];
    let hours = prop::sample::select(vec![(-100, -50), (50, 100), (100, -100), (-100, 100)]);
    let party = prop::sample::select(&PARTIES[..]);
    let appended = prop::sample::select(&TRUSTED[..]);
    let number = prop::sample::select(vec![KEY_USAGE, BASIC_CONSTRAINTS, PURPOSES]);
    let names = || prop::collection::vec(name(), 0..3);
    prop_oneof![
        5 => names().prop_map(Change::Names),
        2 => names().prop_map(Change::MoreNames),
        8 => (at(), extension()).prop_map(|(at, it)| Change::Set(at, it)),
        2 => (at(), extension()).prop_map(|(at, it)| Change::Add(at, it)),
        2 => (at(), number).prop_map(|(at, number)| Change::Drop(at, number)),
        2 => (at(), hours).prop_map(|(at, hours)| Change::Hours(at, hours)),
        2 => (at(), party).prop_map(|(at, party)| Change::Issuer(at, party)),
        8 => (at(), damage()).prop_map(|(at, damage)| Change::Damage(at, damage)),
        2 => (at(), damage()).prop_map(|(at, damage)| Change::DamageAfterwards(at, damage)),
        1 => (at(), 0..4_usize).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => (0..4_usize).prop_map(Change::Remove),
        1 => (at(), 0..4_usize).prop_map(|(from, to)| Change::Repeat(from, to)),
        1 => appended.prop_map(Change::Append),
    ]
}

fn name() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let good = "spiffe://td\\.test/[a-z]{1,8}";
    let upper = "(SPIFFE|Spiffe|spiffe)://(TD|Td|td)\\.(test|TEST)/[a-zA-Z]{1,8}";
    let text = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        4 => ids::id().prop_map(|id| (0x86, id.into_bytes())),
        2 => good.prop_map(|id| (0x86, id.into_bytes())),
        3 => upper.prop_map(|id| (0x86, id.into_bytes())),
        2 => "([a-z*]{1,5}\\.){0,2}(td\\.test|other)".prop_map(|it| (0x82, it.into_bytes())),
        1 => Just((0x87, vec![127, 0, 0, 1])),
        1 => (0x80..0x8a_u8, text).prop_map(|(tag, text)| (tag, text)),
    ]
}

fn extension() -> impl Strategy<Value = Extension> {
    let one_of =
        |all: &[&[u8]]| prop::sample::select(all.iter().map(|it| it.to_vec()).collect::<Vec<_>>());
    let usages = one_of(&[
        DIGITAL_SIGNATURE,
        SIGNS_OTHERS,
        &[3, 2, 2, 0x84],
        &[3, 2, 1, 0x82],
        &[3, 2, 1, 0x86],
        &[3, 2, 5, 0xa0],
        &[3, 2, 5, 0x20],
        &[3, 2, 7, 0],
        &[3, 1, 0],
        &[3, 3, 7, 0x80, 0x80],
        &[3, 2, 0, 0x80],
    ]);
    let constraints = one_of(&[
        CA,
        CA,
        CA_OF_LEAVES,
        NO_CA,
        &[0x30, 3, 1, 1, 0],
        &[0x30, 3, 1, 1, 1],
        &[0x30, 6, 1, 1, 0xff, 2, 1, 1],
        &[0x30, 6, 1, 1, 0xff, 2, 1, 0xff],
        &[0x30, 3, 2, 1, 0],
        &[5, 0],
    ]);
    let purpose = one_of(&[
        &[0x2b, 6, 1, 5, 5, 7, 3, 1],
        &[0x2b, 6, 1, 5, 5, 7, 3, 2],
        &[0x2b, 6, 1, 5, 5, 7, 3, 4],
        &[0x55, 0x1d, 0x25, 0],
        &[42, 3],
    ])
    .prop_map(|it| tlv(6, &it));
    let purposes = prop::collection::vec(purpose, 0..4).prop_map(|each| tlv(0x30, &each.concat()));
    let subtree = name().prop_map(|(tag, text)| tlv(0x30, &tlv(tag, &text)));
    let subtrees = (prop::sample::select(vec![0xa0_u8, 0xa1]), subtree);
    let subtrees = subtrees.prop_map(|(tag, subtree)| tlv(0x30, &tlv(tag, &subtree)));
    let others = prop::sample::select(vec![14_u8, 31, 32, 35, 36, 54, UNKNOWN]);
    let values = one_of(&[&[5, 0], &[0x30, 0], &[4, 1, 7], &[2, 1, 0], &[]]);
    let usually = || prop::bool::weighted(0.8);
    prop_oneof![
        4 => (Just(KEY_USAGE), usually(), usages),
        4 => (Just(BASIC_CONSTRAINTS), any::<bool>(), constraints),
        4 => (Just(PURPOSES), any::<bool>(), purposes),
        2 => (Just(NAME_CONSTRAINTS), usually(), subtrees),
        2 => (others, any::<bool>(), values),
    ]
}

impl Change {
    fn apply(&self, presented: &mut Presented) {
        let Presented { certificates, damages } = presented;
        let count = certificates.len();
        if count == 0 {
            return;
        }
        match self {
            Self::Names(names) => names.clone_into(&mut certificates[0].names),
            Self::MoreNames(names) => certificates[0].names.extend_from_slice(names),
            Self::Set(at, (number, is_critical, value)) => {
                certificates[at % count].set(*number, *is_critical, value);
            }
            Self::Add(at, extension) => {
                certificates[at % count].extensions.push(extension.clone());
            }
            Self::Drop(at, number) => certificates[at % count].remove(*number),
            Self::Hours(at, hours) => certificates[at % count].hours = *hours,
            Self::Issuer(at, issuer) => certificates[at % count].issuer = *issuer,
            Self::Damage(at, damage) => certificates[at % count].damages.push(damage.clone()),
            Self::DamageAfterwards(at, damage) => damages.push((*at, damage.clone())),
            Self::Swap(one, other) => certificates.swap(one % count, other % count),
            Self::Remove(at) => drop(certificates.remove(at % count)),
            Self::Repeat(from, to) => {
                let copy = certificates[from % count].clone();
                certificates.insert(to % (count + 1), copy);
            }
            Self::Append(root) => certificates.push(Certificate::authority(*root, *root)),
        }
    }
}

#[test]
fn every_presented_chain_has_an_answer_and_an_accepted_one_proves_the_one_id_in_it() {
    let other = SpiffeId::parse("spiffe://td.test/workload/other").expect("an ID");
    let foreign = of_certificate(&Party::Foreign.root()).expect("a known type of key");
    let foreign = Bundle::parse(document(&[foreign]).as_bytes()).expect("a bundle");
    check(&presented(), |presented| {
        let certificates = presented.chain();
        let sent = joined(&certificates);
        let Some(received) = chain::split(&sent) else { return Ok(false) };
        if presented.damages.is_empty() {
            prop_assert_eq!(&received, &certificates);
        }
        let svid = PresentedSvid::read(&received);
        if let Ok(svid) = &svid {
            // For the audit log, whoever signed it.
            let _ = (svid.key(), svid.summary(), svid.check_form());
        }
        let Ok((id, warning)) = judge(&received) else { return Ok(false) };
        let svid = svid.expect("it was judged");
        let names = svid.summary().names;
        prop_assert_eq!(names.len(), 1);
        prop_assert!(names[0].eq_ignore_ascii_case(&id.to_string()));
        let td = TrustDomain::parse("td.test").expect("a trust domain");
        prop_assert!(*id.trust_domain() == td && !id.path().is_empty());
        prop_assert_eq!((svid.check_form(), svid.check_time(*NOW)), (Ok(warning), Ok(())));
        // Not for every case, because verifying takes most of the time.
        if !sent.len().is_multiple_of(8) {
            return Ok(true);
        }
        prop_assert_eq!(svid::verify(&received, &id, &BUNDLE, *NOW), Ok(warning));
        prop_assert!(svid::verify(&received, &other, &BUNDLE, *NOW).is_err());
        prop_assert!(svid.verify(&foreign, *NOW).is_err());
        let (start, end) = svid.validity().expect("times");
        let second = chrono::TimeDelta::seconds(1);
        prop_assert!(svid.verify(&BUNDLE, start - second).is_err());
        prop_assert!(svid.verify(&BUNDLE, end + second).is_err());
        Ok(true)
    });
}
