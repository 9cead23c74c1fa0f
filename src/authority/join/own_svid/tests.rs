use chrono::TimeDelta;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};

use super::*;
use crate::spiffe::testing::{Ca, noon, svid_params};

const ID: &str = "spiffe://partner.test/ci";

fn own(ca: &Ca, params: CertificateParams, key: &KeyPair) -> Result<OwnSvid, OwnSvidError> {
    let der = params.signed_by(key, &ca.0).unwrap().der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    OwnSvid::new(vec![der], Zeroizing::new(key), noon())
}

fn fault(change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = svid_params(&[ID]);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    own(&Ca::new("partner"), params, &key).err().unwrap().to_string()
}

#[test]
fn every_kind_of_key_signs_as_the_server_verifies() {
    let ca = Ca::new("partner");
    let kinds = [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256];
    for kind in kinds {
        let key = KeyPair::generate_for(kind).unwrap();
        let svid = own(&ca, svid_params(&[ID]), &key).unwrap();
        assert_eq!(svid.id.to_string(), ID);
        let chain = split(&svid.chain()).unwrap();
        let public = PresentedSvid::read(&chain).unwrap().key().unwrap();
        let signature = svid.sign(b"message").unwrap();
        assert!(public.has_signed(b"message", &signature), "{kind:?}");
        assert!(!public.has_signed(b"massage", &signature), "{kind:?}");
    }
}

#[test]
fn a_fault_of_our_own_svid_is_told_with_what_to_do() {
    let two = fault(|it| it.subject_alt_names = svid_params(&[ID, ID]).subject_alt_names);
    assert!(two.contains("2 URI SANs"), "{two}");
    let none = fault(|it| it.subject_alt_names.clear());
    assert!(none.contains("no URI SAN"), "{none}");
    let root = fault(|it| {
        it.subject_alt_names = svid_params(&["spiffe://partner.test"]).subject_alt_names;
    });
    assert!(root.contains("partner.test itself"), "{root}");
    let ca = fault(|it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert!(ca.contains("is a CA's"), "{ca}");
    let signing = fault(|it| it.key_usages.push(KeyUsagePurpose::KeyCertSign));
    assert!(signing.contains("may sign certificates"), "{signing}");
    let server = fault(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    assert!(server.contains("clientAuth"), "{server}");
}

#[test]
fn an_own_svid_out_of_its_time_is_told_with_when_and_what_to_do() {
    let ca = Ca::new("partner");
    let issued = ca.svid(ID);
    let at = |now| {
        let key = Zeroizing::new(issued.key.clone_key());
        OwnSvid::new(vec![issued.der.clone()], key, now).err().unwrap().to_string()
    };
    let expired = at(noon() + TimeDelta::days(365 * 20));
    assert!(expired.contains("expired at 2035-01-01T00:00:00Z"), "{expired}");
    let early = at(noon() - TimeDelta::days(365 * 20));
    assert!(early.contains("not valid before 2025-01-01T00:00:00Z"), "{early}");
    assert!(early.contains("clock of this machine"), "{early}");
}

#[test]
fn the_key_of_another_certificate_is_noticed_before_anybody_is_asked() {
    let ca = Ca::new("partner");
    let (one, other) = (ca.svid(ID), ca.svid(ID));
    let mixed = OwnSvid::new(vec![one.der.clone()], Zeroizing::new(other.key), noon());
    assert!(matches!(mixed, Err(OwnSvidError::OtherKey(_))));
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let key = PrivatePkcs8KeyDer::from(ed25519.serialize_der()).into();
    let mixed = OwnSvid::new(vec![one.der], Zeroizing::new(key), noon());
    assert!(matches!(mixed, Err(OwnSvidError::OtherKey(_))));
}

#[test]
fn a_chain_that_no_server_takes_is_not_sent() {
    let ca = Ca::new("partner");
    let issued = ca.svid(ID);
    let chain = [vec![issued.der], vec![ca.der(); 5]].concat();
    let long = OwnSvid::new(chain, Zeroizing::new(issued.key), noon());
    assert!(matches!(long, Err(OwnSvidError::LongChain(5))));
}

#[tokio::test]
async fn an_svid_is_read_from_files_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let (svid, key) = (folder.path().join("svid.pem"), folder.path().join("key.pem"));
    let source = SvidSource::Files { svid: svid.clone(), key: key.clone() };
    let missing = source.read(noon()).await.err().unwrap().to_string();
    assert!(missing.starts_with("cannot read") && missing.contains("svid.pem"), "{missing}");
    let ca = Ca::new("partner");
    for id in [ID, "spiffe://partner.test/renewed"] {
        let pair = KeyPair::generate().unwrap();
        fs::write(&svid, svid_params(&[id]).signed_by(&pair, &ca.0).unwrap().pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        assert_eq!(source.read(noon()).await.unwrap().id.to_string(), id);
    }
    fs::write(&key, "nothing").unwrap();
    assert!(matches!(source.read(noon()).await, Err(OwnSvidError::NoKey(_))));
}
