use rcgen::{
    CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType,
    date_time_ymd,
};

use super::*;
use crate::spiffe::testing::{Ca, bundle, id, noon, svid_params, uri_name};

const SERVER: &str = "spiffe://td-b.test/spire/server";

/// The error for a certificate that is an SVID except for this change.
fn said_of(change: impl FnOnce(&mut CertificateParams)) -> Result<Option<SvidWarning>, SvidError> {
    let ca = Ca::new("td-b");
    let mut params = svid_params(&[SERVER]);
    change(&mut params);
    verify(&[ca.issue(params).der], &id(SERVER), &bundle(&[&ca]), noon())
}

fn domain() -> TrustDomain {
    TrustDomain::parse("td-b.test").unwrap()
}

#[test]
fn an_svid_of_the_trust_domain_proves_its_id() {
    assert_eq!(said_of(|_| {}), Ok(None));
}

#[test]
fn an_svid_is_signed_through_intermediates() {
    let (root, other) = (Ca::new("root"), Ca::new("other"));
    let between = root.below("between", |params| {
        params.subject_alt_names = vec![uri_name("spiffe://td-b.test")];
    });
    let svid = between.svid(SERVER).der;
    let with = |chain: &[_], ca: &Ca| verify(chain, &id(SERVER), &bundle(&[ca]), noon());

    assert_eq!(with(&[svid.clone(), between.der()], &root), Ok(None));
    assert_eq!(with(&[svid.clone(), between.der(), root.der()], &root), Ok(None));
    assert_eq!(
        with(std::slice::from_ref(&svid), &root),
        Err(SvidError::UnknownAuthority(domain()))
    );
    assert_eq!(with(&[svid, between.der()], &other), Err(SvidError::UnknownAuthority(domain())));
}

#[test]
fn an_authority_vouches_for_no_longer_chain_than_its_path_length_says() {
    let root = Ca::with("root", |params| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    });
    let between = root.below("between", |_| {});
    let with = |chain: &[_]| verify(chain, &id(SERVER), &bundle(&[&root]), noon());
    let direct = root.svid(SERVER).der;

    assert_eq!(with(&[direct.clone(), root.der()]), Ok(None));
    assert_eq!(with(&[direct]), Ok(None));
    let long = with(&[between.svid(SERVER).der, between.der()]);
    assert_eq!(long, Err(SvidError::LimitedAuthority(domain())));
}

#[test]
fn an_authority_with_a_critical_extension_that_nobody_knows_vouches_for_nothing() {
    let mut unknown = CustomExtension::from_oid_content(&[1, 3, 9999, 1], vec![0x05, 0x00]);
    unknown.set_criticality(true);
    let root = Ca::with("root", |params| params.custom_extensions = vec![unknown.clone()]);
    let said = verify(&[root.svid(SERVER).der], &id(SERVER), &bundle(&[&root]), noon());
    assert_eq!(said, Err(SvidError::LimitedAuthority(domain())));

    let root = Ca::new("root");
    let between = root.below("between", |params| {
        let subtree = rcgen::GeneralSubtree::DirectoryName(rcgen::DistinguishedName::new());
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: Vec::new(),
            excluded_subtrees: vec![subtree],
        });
    });
    let chain = [between.svid(SERVER).der, between.der()];
    let said = verify(&chain, &id(SERVER), &bundle(&[&root]), noon());
    assert_eq!(said, Err(SvidError::Intermediate { number: 2, flaw: Flaw::Critical }));
}

/// Go takes the name for a host's, and finds an empty label in it.
#[test]
fn an_svid_that_readers_in_go_refuse_proves_nothing() {
    let ca = Ca::new("td..b");
    let chain = [ca.svid("spiffe://td..b/workload").der];
    let svid = PresentedSvid::read(&chain).unwrap();
    assert!(svid.id().is_ok());
    assert_eq!(svid.verify(&bundle(&[&ca]), noon()), Err(SvidError::Unreadable));
}

#[test]
fn a_certificate_between_that_is_no_authoritys_is_refused() {
    let root = Ca::new("root");
    type Change = fn(&mut CertificateParams);
    let cases: [(Change, Flaw); 3] = [
        (|params| params.is_ca = IsCa::ExplicitNoCa, Flaw::NotAuthority),
        (|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature], Flaw::MayNotSign),
        (|params| params.subject_alt_names = vec![uri_name(SERVER)], Flaw::OfWorkload),
    ];
    for (change, flaw) in cases {
        let between = root.below("between", change);
        let chain = [between.svid(SERVER).der, between.der()];

        let said = verify(&chain, &id(SERVER), &bundle(&[&root]), noon());

        assert_eq!(said, Err(SvidError::Intermediate { number: 2, flaw }));
    }
}

#[test]
fn an_authority_of_another_trust_domain_vouches_for_nothing() {
    let (own, foreign) = (Ca::new("td-b"), Ca::new("td-b"));
    let said = verify(&[foreign.svid(SERVER).der], &id(SERVER), &bundle(&[&own]), noon());

    assert_eq!(
        said.unwrap_err().to_string(),
        "the certificate is signed by no authority of the bundle of td-b.test"
    );
}

#[test]
fn an_empty_bundle_makes_every_svid_invalid() {
    let ca = Ca::new("td-b");
    let said = verify(&[ca.svid(SERVER).der], &id(SERVER), &bundle(&[]), noon());
    assert_eq!(said, Err(SvidError::NoAuthority(domain())));
}

#[test]
fn an_authority_that_is_expired_or_not_yet_valid_is_not_trusted() {
    let expired = Ca::with("td-b", |ca| ca.not_after = date_time_ymd(2030, 6, 15));
    let early = Ca::with("td-b", |ca| ca.not_before = date_time_ymd(2030, 6, 16));
    let valid = Ca::new("td-b, new");
    for ca in [expired, early] {
        let with = |bundle| verify(&[ca.svid(SERVER).der], &id(SERVER), &bundle, noon());

        assert_eq!(with(bundle(&[&ca])), Err(SvidError::NoAuthority(domain())));
        assert_eq!(with(bundle(&[&valid, &ca])), Err(SvidError::AuthorityNotValid(domain())));
    }
}

#[test]
fn an_authority_is_trusted_from_its_first_to_its_last_second() {
    let ca = Ca::with("td-b", |ca| {
        (ca.not_before, ca.not_after) = (date_time_ymd(2030, 1, 1), date_time_ymd(2031, 1, 1));
    });
    let (svid, bundle) = (ca.svid(SERVER).der, bundle(&[&ca]));
    let at = |now: &str| {
        let chain = std::slice::from_ref(&svid);
        verify(chain, &id(SERVER), &bundle, now.parse().unwrap()).is_ok()
    };

    assert!(!at("2029-12-31T23:59:59Z"));
    assert!(at("2030-01-01T00:00:00Z"));
    assert!(at("2031-01-01T00:00:00Z"));
    assert!(!at("2031-01-01T00:00:01Z"));
}

#[test]
fn an_svid_that_is_expired_or_not_yet_valid_proves_nothing() {
    let expired = said_of(|svid| svid.not_after = date_time_ymd(2030, 6, 15));
    let early = said_of(|svid| svid.not_before = date_time_ymd(2030, 6, 16));

    assert_eq!(expired, Err(SvidError::Expired));
    assert_eq!(early, Err(SvidError::NotYetValid));
}

#[test]
fn a_certificate_without_a_uri_hints_at_a_proxy() {
    let said = said_of(|svid| {
        svid.subject_alt_names = vec![SanType::DnsName("apps.example.org".try_into().unwrap())];
    });
    assert_eq!(said, Err(SvidError::NoUri));
    assert_eq!(
        said.unwrap_err().to_string(),
        "the certificate contains no URI SAN: is a re-encrypting proxy in front of it?"
    );
    assert_eq!(said_of(|svid| svid.subject_alt_names.clear()), Err(SvidError::NoUri));
}

#[test]
fn a_certificate_with_two_uris_is_no_svid() {
    let second = |uri: &str| said_of(|svid| svid.subject_alt_names.push(uri_name(uri)));
    for uri in ["https://x.test", SERVER, "spiffe://td-b.test/x"] {
        assert_eq!(second(uri), Err(SvidError::ManyUris(2)), "{uri}");
    }
}

#[test]
fn a_uri_that_is_not_text_counts_as_one() {
    let said = said_of(|svid| {
        // SAN: two URIs, the second of them a byte that is no text.
        let mut names = vec![0x86, SERVER.len() as u8];
        names.extend(SERVER.as_bytes());
        names.extend([0x86, 1, 0xff]);
        let mut content = vec![0x30, names.len() as u8];
        content.extend(names);
        svid.subject_alt_names.clear();
        svid.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], content)];
    });
    assert_eq!(said, Err(SvidError::ManyUris(2)));
}

#[test]
fn names_other_than_uris_may_stand_beside_the_id() {
    let said = said_of(|svid| {
        svid.subject_alt_names.push(SanType::DnsName("server.td-b.test".try_into().unwrap()));
    });
    assert_eq!(said, Ok(None));
}

#[test]
fn the_scheme_of_an_svid_is_spiffe() {
    let said = said_of(|svid| svid.subject_alt_names = vec![uri_name("https://td-b.test/x")]);
    assert_eq!(said, Err(SvidError::NotSpiffe(IdError::Scheme)));
}

#[test]
fn an_svid_has_a_path() {
    let said = said_of(|svid| svid.subject_alt_names = vec![uri_name("spiffe://td-b.test")]);
    assert_eq!(said, Err(SvidError::NoPath(domain())));
}

#[test]
fn an_svid_of_another_workload_or_trust_domain_is_told_apart() {
    for other in ["spiffe://td-b.test/spire/agent", "spiffe://td-c.test/spire/server"] {
        let said = said_of(|svid| svid.subject_alt_names = vec![uri_name(other)]);
        assert_eq!(
            said.unwrap_err().to_string(),
            format!("the certificate is for {other}, not for {SERVER}")
        );
    }
}

#[test]
fn the_certificate_of_a_ca_is_no_svid() {
    let said = said_of(|svid| svid.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    assert_eq!(said, Err(SvidError::OfAuthority));
}

#[test]
fn a_certificate_that_may_sign_others_is_no_svid() {
    for usage in [KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign] {
        assert_eq!(said_of(|svid| svid.key_usages.push(usage)), Err(SvidError::MaySign));
    }
}

#[test]
fn an_svid_says_critically_that_its_key_signs() {
    let none = said_of(|svid| svid.key_usages.clear());
    let other = said_of(|svid| svid.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    let not_critical = said_of(|svid| {
        svid.key_usages.clear();
        let content = vec![0x03, 0x02, 0x07, 0x80];
        svid.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 15], content)];
    });

    assert_eq!(none, Err(SvidError::KeyUsage));
    assert_eq!(other, Err(SvidError::KeyUsage));
    assert_eq!(not_critical, Err(SvidError::KeyUsage));
}

#[test]
fn an_svid_for_servers_alone_is_taken_as_spire_takes_it_with_a_warning() {
    let with = |usages| said_of(|svid| svid.extended_key_usages = usages);
    let (server, client) =
        (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(with(vec![]), Ok(None));
    assert_eq!(with(vec![server.clone(), client.clone()]), Ok(None));
    assert_eq!(with(vec![server]), Ok(Some(SvidWarning::ServerAuthAlone)));
    assert_eq!(with(vec![client]), Err(SvidError::ExtendedKeyUsage));
}

#[test]
fn a_critical_extension_that_nobody_knows_makes_the_path_invalid() {
    let said = said_of(|svid| {
        let mut unknown = CustomExtension::from_oid_content(&[1, 3, 9999, 1], vec![0x05, 0x00]);
        unknown.set_criticality(true);
        svid.custom_extensions = vec![unknown];
    });
    assert!(matches!(said, Err(SvidError::Path(_))), "{said:?}");
}

#[test]
fn what_is_no_certificate_has_an_answer() {
    let bundle = bundle(&[&Ca::new("td-b")]);
    let of = |chain: &[CertificateDer<'_>]| verify(chain, &id(SERVER), &bundle, noon());

    assert_eq!(of(&[]), Err(SvidError::Empty));
    assert_eq!(of(&[b"garbage"[..].into()]), Err(SvidError::Unreadable));
}

#[test]
fn a_damaged_svid_proves_nothing_and_never_panics() {
    let ca = Ca::new("td-b");
    let (svid, bundle) = (ca.svid(SERVER).der, bundle(&[&ca]));
    for index in 0..svid.len() {
        let mut damaged = svid.to_vec();
        damaged[index] ^= 0x10;
        assert!(verify(&[damaged.into()], &id(SERVER), &bundle, noon()).is_err(), "byte {index}");
    }
}
