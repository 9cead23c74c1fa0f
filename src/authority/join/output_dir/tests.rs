use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::*;
use crate::{
    runtime::redact::Pkcs8Key,
    spiffe::testing::{Ca, document, id, noon},
};

fn issued() -> IssuedSvid {
    let ca = Ca::new("own");
    let svid = ca.svid("spiffe://own.test/bot/ci");
    IssuedSvid {
        id: id("spiffe://own.test/bot/ci"),
        chain: vec![svid.der, ca.der()],
        key: Pkcs8Key::new(svid.key.secret_der().to_vec()),
        not_after: noon(),
    }
}

fn bundles(names: &[&str]) -> TrustedBundles {
    let text = document(&[&Ca::new("any")]).to_string().into_bytes();
    let all: BTreeMap<_, _> = names.iter().map(|it| ((*it).to_owned(), text.clone())).collect();
    TrustedBundles::read(&TrustDomain::parse("own.test").unwrap(), &all).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names = OutputDir(folder.to_owned()).names().unwrap();
    names.retain(|name| !name.starts_with(".."));
    names.sort();
    names
}

/// Folders that hold sets.
fn sets(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap();
    entries.filter(|it| it.as_ref().unwrap().file_type().unwrap().is_dir()).count()
}

#[test]
fn a_set_has_svid_key_and_a_bundle_for_each_trust_domain_for_its_owner_alone() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("out");
    let svid = issued();
    let output = OutputDir::open(&folder).unwrap();
    output.write(&svid, &bundles(&["own.test", "partner.test"])).unwrap();
    let expected = ["bundle.own.test.json", "bundle.partner.test.json", "svid.pem", "svid_key.pem"];
    assert_eq!(names(&folder), expected);
    for name in expected {
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let text = fs::read(folder.join("svid.pem")).unwrap();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).map(Result::unwrap).collect();
    assert_eq!(chain, svid.chain);
    let key = PrivateKeyDer::from_pem_slice(&fs::read(folder.join("svid_key.pem")).unwrap());
    assert_eq!(key.unwrap().secret_der(), svid.key.expose());
}

#[test]
fn a_new_set_replaces_the_old_one_with_the_bundles_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let output = OutputDir::open(folder.path()).unwrap();
    output.write(&issued(), &bundles(&["own.test", "partner.test"])).unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let svid = issued();
    OutputDir::open(folder.path()).unwrap().write(&svid, &bundles(&["own.test"])).unwrap();
    let expected = ["bundle.own.test.json", "notes.txt", "svid.pem", "svid_key.pem"];
    assert_eq!(names(folder.path()), expected);
    assert_eq!(sets(folder.path()), 1);
    let text = fs::read_to_string(folder.path().join("svid.pem")).unwrap();
    assert_eq!(text, chain(&svid));
}

#[test]
fn a_set_that_fails_half_way_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = OutputDir::open(folder.path()).unwrap();
    let svid = issued();
    output.write(&svid, &bundles(&["own.test"])).unwrap();
    // A file of the set that can't be made comes last.
    let broken = [
        (SVID.to_owned(), Zeroizing::new(b"new".to_vec())),
        ("missing/folder".to_owned(), Zeroizing::new(Vec::new())),
    ];
    assert!(output.replace(&broken).is_err());
    assert_eq!(fs::read_to_string(folder.path().join("svid.pem")).unwrap(), chain(&svid));
    assert_eq!(sets(folder.path()), 1);
}

#[test]
fn nothing_is_written_through_links_or_over_files_of_others() {
    let base = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (base.path().join("out"), base.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    assert!(matches!(OutputDir::open(&folder), Err(OutputError::NotFolder(_))));
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(elsewhere.join("target"), "theirs").unwrap();
    symlink(elsewhere.join("target"), folder.join("svid_key.pem")).unwrap();
    assert!(matches!(OutputDir::open(&folder), Err(OutputError::Foreign(_))));
    fs::remove_file(folder.join("svid_key.pem")).unwrap();
    // A planted link in the place of our own leads to no deletion elsewhere.
    for target in [elsewhere.as_path(), Path::new("..")] {
        let _ = fs::remove_file(folder.join(DATA));
        symlink(target, folder.join(DATA)).unwrap();
        let output = OutputDir::open(&folder).unwrap();
        output.write(&issued(), &bundles(&["own.test"])).unwrap();
    }
    assert_eq!(fs::read_to_string(elsewhere.join("target")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn a_trust_domain_whose_name_is_as_long_as_a_file_name_can_be_has_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let long = "a".repeat(255);
    let output = OutputDir::open(folder.path()).unwrap();
    output.write(&issued(), &bundles(&["own.test", &long])).unwrap();
    assert!(names(folder.path()).iter().any(|it| it.starts_with("bundle.sha256-")));
}
