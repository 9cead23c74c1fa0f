use proptest::prelude::*;

use super::*;

fn fault(text: &str) -> IdError {
    SpiffeId::parse(text).unwrap_err()
}

#[test]
fn an_id_is_a_trust_domain_and_a_path() {
    let id = SpiffeId::parse("spiffe://td-a.test/spire/server").unwrap();

    assert_eq!(id.trust_domain().as_str(), "td-a.test");
    assert_eq!(id.path(), "/spire/server");
    assert_eq!(id.to_string(), "spiffe://td-a.test/spire/server");
}

#[test]
fn a_trust_domain_has_an_id_without_a_path() {
    assert_eq!(SpiffeId::parse("spiffe://td-a.test").unwrap().path(), "");
}

#[test]
fn the_scheme_is_spiffe() {
    for text in
        ["", "td-a.test/x", "https://td-a.test/x", "spiffe:/td-a.test", "spiffe//td", "spïffe://td"]
    {
        assert_eq!(fault(text), IdError::Scheme, "{text}");
    }
}

#[test]
fn the_trust_domain_is_not_empty() {
    assert_eq!(fault("spiffe://"), IdError::NoTrustDomain);
    assert_eq!(fault("spiffe:///path"), IdError::NoTrustDomain);
    assert_eq!(TrustDomain::parse("").unwrap_err(), IdError::NoTrustDomain);
}

#[test]
fn there_is_no_query_and_no_fragment() {
    assert_eq!(fault("spiffe://td/x?a=b"), IdError::Query);
    assert_eq!(fault("spiffe://td?"), IdError::Query);
    assert_eq!(fault("spiffe://td/x#y"), IdError::Fragment);
    assert_eq!(fault("spiffe://td#"), IdError::Fragment);
}

#[test]
fn there_is_no_user_and_no_port() {
    assert_eq!(fault("spiffe://admin@td/x"), IdError::UserInfo);
    assert_eq!(fault("spiffe://admin:secret@td/x"), IdError::UserInfo);
    assert_eq!(fault("spiffe://td:443/x"), IdError::Port);
    assert_eq!(fault("spiffe://td:/x"), IdError::Port);
    assert_eq!(TrustDomain::parse("td:443").unwrap_err(), IdError::Port);
}

#[test]
fn a_trust_domain_has_plain_characters_without_percent_encoding() {
    assert!(TrustDomain::parse("a-z_0.9").is_ok());
    for (text, stranger) in [
        ("spiffe://t%64/x", '%'),
        ("spiffe://tá/x", 'á'),
        ("spiffe://t d/x", ' '),
        ("spiffe://t*", '*'),
    ] {
        assert_eq!(fault(text), IdError::TrustDomainCharacter(stranger));
    }
}

#[test]
fn a_trust_domain_has_255_bytes_at_most() {
    assert!(TrustDomain::parse(&"a".repeat(255)).is_ok());
    let longer = TrustDomain::parse(&"a".repeat(256)).unwrap_err();
    assert_eq!(longer, IdError::LongTrustDomain(256));
    assert_eq!(longer.to_string(), "the trust domain has 256 bytes, and may have 255 at most");
}

#[test]
fn a_trust_domain_that_looks_like_an_address_is_a_name_like_any_other() {
    for name in ["10.0.0.1", "1.2.3.4.5", "td.example.org", "td", "-", "..", "_x"] {
        assert_eq!(TrustDomain::parse(name).unwrap().as_str(), name);
    }
    let (one, other) = ("spiffe://010.0.0.1/x", "spiffe://10.0.0.1/x");
    assert_ne!(SpiffeId::parse(one), SpiffeId::parse(other));
}

#[test]
fn a_path_has_plain_characters_without_percent_encoding() {
    assert!(SpiffeId::parse("spiffe://td/A-z_0.9/...").is_ok());
    for (text, stranger) in [
        ("spiffe://td/a%2Fb", '%'),
        ("spiffe://td/ä", 'ä'),
        ("spiffe://td/a b", ' '),
        ("spiffe://td/a:b", ':'),
        ("spiffe://td/a@b", '@'),
        ("spiffe://td/a\\b", '\\'),
        ("spiffe://td/a\0", '\0'),
    ] {
        assert_eq!(fault(text), IdError::PathCharacter(stranger));
    }
}

#[test]
fn a_path_has_no_empty_and_no_dotted_segment_and_no_slash_at_its_end() {
    assert_eq!(fault("spiffe://td//x"), IdError::EmptySegment);
    assert_eq!(fault("spiffe://td/x//y"), IdError::EmptySegment);
    assert_eq!(fault("spiffe://td/./x"), IdError::DotSegment);
    assert_eq!(fault("spiffe://td/x/.."), IdError::DotSegment);
    assert_eq!(fault("spiffe://td/"), IdError::TrailingSlash);
    assert_eq!(fault("spiffe://td/x/"), IdError::TrailingSlash);
}

#[test]
fn an_id_of_2048_bytes_is_read_and_a_longer_one_is_not() {
    let of = |bytes: usize| format!("spiffe://td/{}", "x".repeat(bytes - 12));
    assert_eq!(SpiffeId::parse(&of(2048)).unwrap().to_string().len(), 2048);
    assert_eq!(fault(&of(2049)), IdError::LongId(2049));
}

#[test]
fn scheme_and_trust_domain_are_read_in_any_case_and_the_path_is_not() {
    let id = SpiffeId::parse("SPIFFE://TD-A.Test/Server").unwrap();

    assert_eq!(id.to_string(), "spiffe://td-a.test/Server");
    assert_ne!(Ok(id), SpiffeId::parse("spiffe://td-a.test/server"));
    assert_eq!(TrustDomain::parse("TD-A.Test"), TrustDomain::parse("td-a.test"));
}

#[test]
fn an_id_in_the_place_of_a_trust_domain_is_told_so() {
    for text in ["spiffe://td-a.test", "td-a.test/x"] {
        assert_eq!(
            TrustDomain::parse(text).unwrap_err().to_string(),
            "a trust domain is a bare name such as td.example.org, without a scheme and a path"
        );
    }
}

proptest! {
    #[test]
    fn any_text_has_an_answer(text in any::<String>(), head in "[sS]piff[eE]://") {
        let _ = TrustDomain::parse(&text);
        let _ = SpiffeId::parse(&text);
        let _ = SpiffeId::parse(&(head + &text));
    }

    #[test]
    fn an_id_is_read_back_as_it_was_shown(
        text in r"[sS]piff[eE]://[a-zA-Z0-9._-]{1,40}(/[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,9}){0,4}"
    ) {
        let id = SpiffeId::parse(&text).unwrap();
        let shown = id.to_string();
        prop_assert!(shown.eq_ignore_ascii_case(&text));
        prop_assert_eq!(SpiffeId::parse(&shown).unwrap(), id);
    }

    #[test]
    fn what_is_read_is_shown_with_the_same_letters(text in r"[sS]piffe://[a-zA-Z%:@./?#_-]{0,20}") {
        if let Ok(id) = SpiffeId::parse(&text) {
            prop_assert!(id.to_string().eq_ignore_ascii_case(&text));
        }
    }
}
