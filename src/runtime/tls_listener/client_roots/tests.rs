//! Which certificates of clients count.

use std::fs;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, date_time_ymd,
};

use super::*;
use crate::runtime::reloader::RELOAD_INTERVAL;

struct Ca {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new(name: &str) -> Self {
        Self::signed(name, None)
    }

    fn signed(name: &str, parent: Option<&Self>) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![name.into()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = match parent {
            None => parameters.self_signed(&key).unwrap(),
            Some(parent) => parameters.signed_by(&key, &parent.issuer).unwrap(),
        };
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    fn client(&self) -> CertificateDer<'static> {
        self.client_with(|_| {})
    }

    fn client_with(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut parameters = CertificateParams::new(vec!["caller".into()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        parameters.signed_by(&key, &self.issuer).unwrap().der().clone()
    }

    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }
}

fn file(folder: &tempfile::TempDir, cas: &[&Ca]) -> PathBuf {
    let path = folder.path().join("ca.crt");
    let text: String = cas.iter().map(|ca| ca.certificate.pem()).collect();
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_certificate_counts_that_a_ca_of_the_file_signed_for_clients_and_that_is_valid_now() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, other) = (Ca::new("first"), Ca::new("second"), Ca::new("other"));
    let between = Ca::signed("between", Some(&second));
    let roots = ClientRoots::read(&file(&folder, &[&first, &second])).unwrap();

    for chain in
        [vec![first.client()], vec![second.client()], vec![between.client(), between.der()]]
    {
        let leaf: &[u8] = &chain[0];
        assert_eq!(&*roots.verified(&chain).unwrap().0, leaf);
    }

    let of_servers = first.client_with(|it| {
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let expired = first.client_with(|it| it.not_after = date_time_ymd(2020, 1, 1));
    let early = first.client_with(|it| it.not_before = date_time_ymd(4000, 1, 1));
    for (chain, why) in [
        (vec![], "nothing was shown"),
        (vec![other.client()], "another CA"),
        (vec![other.client(), other.der()], "another CA, which came along"),
        (vec![between.client()], "the CA in between is missing"),
        (vec![of_servers], "for servers"),
        (vec![expired], "expired"),
        (vec![early], "not valid yet"),
        (vec![CertificateDer::from(vec![0; 10])], "no certificate"),
    ] {
        assert_eq!(roots.verified(&chain), None, "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_file_is_read_again_when_it_changes_and_a_bad_one_leaves_the_old_cas_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let roots = ClientRoots::read(&file(&folder, &[&old])).unwrap();
    let (of_old, of_new) = ([old.client()], [new.client()]);
    let counts = || [&of_old, &of_new].map(|chain| roots.verified(chain).is_some());
    assert_eq!(counts(), [true, false]);
    file(&folder, &[&old, &new]);
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(counts(), [true, true]);
    file(&folder, &[&new]);
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(counts(), [false, true]);
    file(&folder, &[]);
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(counts(), [false, true]);
}

#[test]
fn a_file_without_a_ca_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let absent = ClientRoots::read(&folder.path().join("absent")).unwrap_err();
    assert!(absent.to_string().contains("absent can't be read"), "{absent}");
    let empty = ClientRoots::read(&file(&folder, &[])).unwrap_err();
    assert!(empty.to_string().contains("ca.crt holds no CA certificate"), "{empty}");
}
