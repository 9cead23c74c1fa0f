//! The Route's own caCertificate against the leaf.

use openssl::hash::MessageDigest;
use openssl::nid::Nid;

use super::super::{Problem, ca_problems, destination_problems};
use super::accepted;
use super::material::{Issued, Recipe, authority, block, ec, leaf, rsa};

/// At a time at which all that these tests make is valid.
fn problems_now(certificate: &str, ca: &str) -> Vec<Problem> {
    ca_problems(certificate, ca, chrono::Utc::now())
}

fn problem_texts(issued: &Issued, ca: &str) -> Vec<String> {
    let pair = accepted(&issued.crt(), &issued.pem());
    problems_now(pair.certificate(), ca).iter().map(Problem::to_string).collect()
}

#[track_caller]
fn assert_mismatch(issued: &Issued, ca: &str, why: &str) {
    assert_eq!(
        problem_texts(issued, ca),
        [format!(
            "the Route's caCertificate did not issue the first certificate of tls.crt, so the router would refuse the Route: {why}; replace the Route's caCertificate or remove it"
        )]
    );
}

const NOBODY: &str = "no certificate in it has the name of the issuer";

#[test]
fn no_ca_certificate_is_no_problem() {
    assert!(problem_texts(&leaf().self_signed(), "").is_empty());
}

#[test]
fn the_issuer_alone_or_among_others_is_enough() {
    let (root, other) = (authority("root").self_signed(), authority("other").self_signed());
    let issued = leaf().by(&root);
    assert!(problem_texts(&issued, &root.crt()).is_empty());
    assert!(problem_texts(&issued, &format!("words\n{}{}", other.crt(), root.crt())).is_empty());
}

#[test]
fn every_kind_of_signature_is_verified() {
    for key in [
        ec(Nid::X9_62_PRIME256V1),
        ec(Nid::SECP384R1),
        ec(Nid::SECP521R1),
        rsa(2048),
        openssl::pkey::PKey::generate_ed25519().unwrap(),
    ] {
        let root = authority("root").key(key).self_signed();
        for digest in [MessageDigest::sha256(), MessageDigest::sha384(), MessageDigest::sha512()] {
            assert!(problem_texts(&leaf().digest(digest).by(&root), &root.crt()).is_empty());
        }
    }
}

#[test]
fn rsa_pss_signatures_are_verified() {
    let root = authority("root").key(rsa(2048)).self_signed();
    for (digest, salt) in [
        (MessageDigest::sha256(), 32),
        (MessageDigest::sha384(), 48),
        (MessageDigest::sha512(), 64),
    ] {
        let issued = super::material::pss(leaf().by(&root), &root, digest, salt);
        assert!(problem_texts(&issued, &root.crt()).is_empty());
    }
    let odd = super::material::pss(leaf().by(&root), &root, MessageDigest::sha256(), 20);
    assert_mismatch(&odd, &root.crt(), "the signature is of a kind that the router can't verify");
}

#[test]
fn a_left_over_ca_certificate_is_a_mismatch() {
    let issued = leaf().by(&authority("new").self_signed());
    assert_mismatch(&issued, &authority("old").self_signed().crt(), NOBODY);
}

#[test]
fn a_renewed_authority_of_the_same_name_is_a_mismatch() {
    let issued = leaf().by(&authority("root").self_signed());
    let namesake = authority("root").self_signed();
    let why = "the certificate with the issuer's name has another key than the one that signed";
    assert_mismatch(&issued, &namesake.crt(), why);
}

#[test]
fn intermediates_in_the_certificate_field_do_not_help() {
    let root = authority("root").self_signed();
    let middle = authority("middle").by(&root);
    let issued = leaf().by(&middle);
    let pair = accepted(&format!("{}{}", issued.crt(), middle.crt()), &issued.pem());
    assert_eq!(
        problems_now(pair.certificate(), &root.crt()),
        [Problem::CaMismatch { why: NOBODY }]
    );
    assert!(problems_now(pair.certificate(), &middle.crt()).is_empty());
    assert!(
        problems_now(pair.certificate(), &format!("{}{}", root.crt(), middle.crt())).is_empty()
    );
}

#[test]
fn a_leaf_that_stands_in_the_pool_is_its_own_root() {
    let issued = leaf().self_signed();
    assert!(problem_texts(&issued, &issued.crt()).is_empty());
    let by_other = leaf().by(&authority("root").self_signed());
    assert!(problem_texts(&by_other, &by_other.crt()).is_empty());
}

#[test]
fn a_self_signed_leaf_is_not_verified_by_its_own_older_self() {
    let key = ec(Nid::X9_62_PRIME256V1);
    let make = |from| leaf().authority(true).key(key.clone()).days(from, 90).self_signed();
    assert_mismatch(&make(2), &make(1).crt(), NOBODY);
}

#[test]
fn expiry_of_the_authority_does_not_matter() {
    let root = authority("root").days(-20, -10).self_signed();
    assert!(problem_texts(&leaf().by(&root), &root.crt()).is_empty());
}

#[test]
fn what_is_no_authority_is_a_mismatch() {
    let why = "the certificate with the issuer's name is not a certificate authority's";
    let plain = leaf().named("plain").self_signed();
    assert_mismatch(&leaf().by(&plain), &plain.crt(), why);
    let denied = leaf().named("plain").authority(false).self_signed();
    assert_mismatch(&leaf().by(&denied), &denied.crt(), why);
    let unsigning = authority("root").with("keyUsage", "digitalSignature").self_signed();
    assert_mismatch(&leaf().by(&unsigning), &unsigning.crt(), why);
    let signing = authority("root").with("keyUsage", "keyCertSign,cRLSign").self_signed();
    assert!(problem_texts(&leaf().by(&signing), &signing.crt()).is_empty());
}

#[test]
fn an_authority_of_version_1_has_no_extensions_and_may_sign() {
    let root = authority("root").version(0).self_signed();
    assert!(problem_texts(&leaf().without_key_ids().by(&root), &root.crt()).is_empty());
}

#[test]
fn extended_key_usage_of_both_must_allow_servers() {
    let root = authority("root").self_signed();
    let client = leaf().with("extendedKeyUsage", "clientAuth").by(&root);
    let why =
        "the first certificate of tls.crt may not be used by a TLS server (extended key usage)";
    assert_mismatch(&client, &root.crt(), why);
    for usage in ["serverAuth", "clientAuth,serverAuth", "anyExtendedKeyUsage"] {
        assert!(
            problem_texts(&leaf().with("extendedKeyUsage", usage).by(&root), &root.crt())
                .is_empty()
        );
    }
    let mail = authority("root").with("extendedKeyUsage", "emailProtection").self_signed();
    let why = "the issuer may not issue certificates for TLS servers (extended key usage)";
    assert_mismatch(&leaf().by(&mail), &mail.crt(), why);
}

#[test]
fn name_constraints_of_the_authority_must_be_met() {
    let why = "the issuer may not issue certificates for these names (name constraints)";
    let check = |constraints: &str, recipe: Recipe| {
        let root = authority("root").with("nameConstraints", constraints).self_signed();
        let issued = recipe.by(&root);
        match problem_texts(&issued, &root.crt()).as_slice() {
            [] => true,
            [one] => {
                assert!(one.contains(why), "{one}");
                false
            }
            more => panic!("{more:?}"),
        }
    };
    let named = |name: &str| leaf().dns(&[name]);
    assert!(check("critical,permitted;DNS:example.com", named("shop.example.com")));
    assert!(check("critical,permitted;DNS:example.com", named("EXAMPLE.com")));
    assert!(check(
        "critical,permitted;DNS:example.org,permitted;DNS:example.com",
        named("*.example.com")
    ));
    assert!(!check("critical,permitted;DNS:example.com", named("shop.example.org")));
    assert!(!check("critical,permitted;DNS:example.com", named("badexample.com")));
    assert!(!check("permitted;DNS:.example.com", named("example.com")));
    assert!(!check("excluded;DNS:example.com", named("shop.example.com")));
    assert!(!check("excluded;DNS:shop.example.com", named("*.example.com")));
    assert!(check("excluded;DNS:example.org", named("shop.example.com")));
    assert!(check("permitted;IP:10.0.0.0/255.0.0.0", leaf().address("10.1.2.3")));
    assert!(!check("permitted;IP:10.0.0.0/255.0.0.0", leaf().address("11.1.2.3")));
    assert!(!check("excluded;IP:10.0.0.0/255.0.0.0", leaf().address("10.1.2.3")));
    assert!(!check("permitted;URI:example.org", leaf().uri("https://other.example.com/x")));
}

#[test]
fn names_that_no_constraint_could_be_compared_with_are_a_mismatch() {
    let constrained =
        authority("root").with("nameConstraints", "permitted;DNS:example.com").self_signed();
    let served =
        |recipe: Recipe| problem_texts(&recipe.by(&constrained), &constrained.crt()).is_empty();
    assert!(served(leaf().uri("spiffe://example.org/shop").uri("https://example.org:8443/")));
    for uri in ["urn:shop", "https://10.0.0.1/", "https://[::1]:8443/", "https:///path"] {
        assert!(!served(leaf().uri(uri)), "{uri}");
    }
    assert!(!served(leaf().dns(&["shop.example.com", "two words.example.com"])));
    let anything = authority("root").self_signed();
    assert!(problem_texts(&leaf().uri("urn:shop").by(&anything), &anything.crt()).is_empty());
}

#[test]
fn a_wildcard_within_a_label_covers_an_excluded_name_as_in_go() {
    let root =
        authority("root").with("nameConstraints", "excluded;DNS:shop.example.com").self_signed();
    assert!(!problem_texts(&leaf().dns(&["*op.example.com"]).by(&root), &root.crt()).is_empty());
}

#[test]
fn a_signature_with_unused_bits_is_a_mismatch() {
    let root = authority("root").self_signed();
    // A signature is drawn until its last bit is zero, so that it can be called unused.
    let issued = std::iter::repeat_with(|| leaf().by(&root))
        .find(|issued| issued.x509.signature().as_slice().last().unwrap() & 1 == 0)
        .unwrap();
    let mut der = issued.x509.to_der().unwrap();
    let place = der.len() - issued.x509.signature().as_slice().len() - 1;
    der[place] = 1;
    let crt = block("CERTIFICATE", &der);
    accepted(&crt, &issued.pem());
    let why = "the certificate with the issuer's name has another key than the one that signed";
    assert_eq!(problems_now(&crt, &root.crt()), [Problem::CaMismatch { why }]);
}

#[test]
fn where_the_issuers_certificate_that_does_is_not_valid_now_every_other_must_do() {
    let key = ec(Nid::X9_62_PRIME256V1);
    let root = authority("root").key(key.clone()).days(-1000, -1).self_signed();
    let mail = authority("root").key(key).with("extendedKeyUsage", "emailProtection").self_signed();
    let issued = leaf().by(&root);
    assert!(problem_texts(&issued, &root.crt()).is_empty());
    for pool in [root.crt() + &mail.crt(), mail.crt() + &root.crt()] {
        assert!(problem_texts(&issued, &pool)[0].contains("extended key usage"));
    }
}

#[test]
fn a_leaf_that_requires_explicit_policies_is_a_mismatch() {
    let root = authority("root").self_signed();
    let issued = leaf().with("policyConstraints", "requireExplicitPolicy:0").by(&root);
    let why = "the first certificate of tls.crt requires explicit policies";
    assert_mismatch(&issued, &root.crt(), why);
}

#[test]
fn more_namesakes_of_the_issuer_than_go_follows_are_a_mismatch() {
    let issuer = authority("root").self_signed();
    let issued = leaf().by(&issuer);
    assert!(problem_texts(&issued, &issuer.crt().repeat(50)).is_empty());
    assert!(
        problem_texts(&issued, &issuer.crt().repeat(51))[0].contains("more than 50 certificates")
    );
}

#[test]
fn critical_extensions_that_go_does_not_know_are_a_mismatch() {
    let root = authority("root").self_signed();
    let issued = leaf().with_raw("1.2.3.4", true, &[5, 0]).by(&root);
    let why = "the first certificate of tls.crt has a critical extension that Go does not know";
    assert_mismatch(&issued, &root.crt(), why);
    assert!(
        problem_texts(&leaf().with_raw("1.2.3.4", false, &[5, 0]).by(&root), &root.crt())
            .is_empty()
    );
    let root = authority("root").with_raw("1.2.3.4", true, &[5, 0]).self_signed();
    let why = "the issuer has a critical extension that Go does not know";
    assert_mismatch(&leaf().by(&root), &root.crt(), why);
    // Of names, Go knows four kinds.
    let root = authority("root").with("nameConstraints", "critical,permitted;RID:1.2.3.4");
    let root = root.self_signed();
    assert_mismatch(&leaf().by(&root), &root.crt(), why);
}

#[test]
fn a_public_key_among_the_authorities_is_no_problem() {
    let root = authority("root").self_signed();
    let public = String::from_utf8(root.key.public_key_to_pem().unwrap()).unwrap();
    assert!(problem_texts(&leaf().by(&root), &(public + &root.crt())).is_empty());
}

#[test]
fn a_ca_certificate_that_is_broken_itself_is_a_problem() {
    let root = authority("root").self_signed();
    let issued = leaf().by(&root);
    let why = "the Route's caCertificate has no certificate: there is no -----BEGIN CERTIFICATE----- line";
    assert_eq!(problem_texts(&issued, "hello"), [why]);
    let why =
        "certificate 1 of the Route's caCertificate can't be read: it is not an X.509 certificate";
    assert_eq!(problem_texts(&issued, &block("CERTIFICATE", &[1])), [why]);
    assert!(
        problem_texts(&issued, &format!("{}{}", root.crt(), block("X509 CRL", &[1])))[0]
            .ends_with("X509 CRL")
    );
    assert!(
        problem_texts(&issued, &format!("{}{}", root.crt(), root.pem()))[0]
            .starts_with("the Route's caCertificate has a private key")
    );
}

#[test]
fn weak_certificates_in_the_pool_are_problems_unless_self_signed() {
    let root = authority("root").digest(MessageDigest::sha1()).self_signed();
    assert!(problem_texts(&leaf().by(&root), &root.crt()).is_empty());
    let middle = authority("middle").digest(MessageDigest::sha1()).by(&root);
    assert!(
        problem_texts(&leaf().by(&middle), &middle.crt())[0]
            .starts_with("certificate 1 of the Route's caCertificate is signed with SHA-1")
    );
    let small = authority("small").key(rsa(1024)).self_signed();
    assert!(problem_texts(&leaf().by(&small), &small.crt())[0].starts_with(
        "the key of certificate 1 of the Route's caCertificate is an RSA key of 1024 bits"
    ));
}

#[test]
fn a_destination_ca_certificate_must_be_certificates_with_sound_signatures() {
    let said = |text: &str| -> Vec<String> {
        destination_problems(text).iter().map(Problem::to_string).collect()
    };
    let root = authority("root").self_signed();
    assert!(said("").is_empty());
    assert!(said(&root.crt()).is_empty());
    let why = "the Route's destinationCACertificate has no certificate: there is no -----BEGIN CERTIFICATE----- line";
    assert_eq!(said("words"), [why]);
    let weak = authority("between").digest(MessageDigest::sha1()).by(&root);
    let why = "certificate 1 of the Route's destinationCACertificate is signed with SHA-1, which the router refuses; have it reissued with SHA-256 or better";
    assert_eq!(said(&weak.crt()), [why]);
}

/// Go tries every candidate, and one that does is enough.
#[test]
fn a_second_certificate_of_the_issuer_that_will_not_do_harms_nothing() {
    let key = rsa(2048);
    let good = authority("root").key(key.clone()).self_signed();
    let issued = leaf().by(&good);
    let mut refused = Vec::new();
    for (name, value) in [
        ("extendedKeyUsage", "clientAuth"),
        ("nameConstraints", "permitted;DNS:elsewhere.example.org"),
    ] {
        let other = authority("root").key(key.clone()).with(name, value).self_signed();
        for ca in
            [format!("{}{}", good.crt(), other.crt()), format!("{}{}", other.crt(), good.crt())]
        {
            refused.extend(problem_texts(&issued, &ca));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
