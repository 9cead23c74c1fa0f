use super::*;
use crate::spiffe::testing::id;

fn matches(pattern: &str, path: &str) -> bool {
    IdPattern::parse(pattern).unwrap().matches(&id(&format!("spiffe://td.test{path}")))
}

#[test]
fn a_pattern_without_a_star_is_one_id() {
    assert!(matches("spiffe://td.test/ci/deploy", "/ci/deploy"));
    for other in ["/ci/deploy2", "/ci", "/ci/deploy/x", "/CI/deploy", "/x/ci/deploy"] {
        assert!(!matches("spiffe://td.test/ci/deploy", other), "{other}");
    }
}

#[test]
fn a_star_stays_within_its_segment() {
    assert!(matches("spiffe://td.test/ci/*", "/ci/deploy"));
    assert!(!matches("spiffe://td.test/ci/*", "/ci/deploy/root"));
    assert!(!matches("spiffe://td.test/ci/*", "/ci"));
    assert!(matches("spiffe://td.test/ns/*/sa/web-*", "/ns/shop/sa/web-1"));
    assert!(!matches("spiffe://td.test/ns/*/sa/web-*", "/ns/shop/x/sa/web-1"));
}

#[test]
fn several_stars_in_a_segment_do_not_overlap() {
    assert!(matches("spiffe://td.test/a*b*c", "/abc"));
    assert!(matches("spiffe://td.test/a*b*c", "/a-b-b-c"));
    assert!(matches("spiffe://td.test/a*bc*bc", "/abcbc"));
    assert!(!matches("spiffe://td.test/a*bc*bc", "/abc"));
    assert!(!matches("spiffe://td.test/aa*aa", "/aaa"));
    assert!(!matches("spiffe://td.test/a*b*c", "/acb"));
}

#[test]
fn two_stars_at_the_end_are_everything_below() {
    assert!(matches("spiffe://td.test/ci/**", "/ci/a"));
    assert!(matches("spiffe://td.test/ci/**", "/ci/a/b/c"));
    assert!(!matches("spiffe://td.test/ci/**", "/ci"));
    assert!(!matches("spiffe://td.test/ci/**", "/cix/a"));
    assert!(matches("spiffe://td.test/**", "/anything"));
}

#[test]
fn another_trust_domain_never_matches() {
    let pattern = IdPattern::parse("spiffe://td.test/**").unwrap();
    assert!(!pattern.matches(&id("spiffe://td.test.evil/a")));
    assert!(!pattern.matches(&id("spiffe://evil/td.test/a")));
    assert!(!pattern.matches(&id("spiffe://td.test")));
}

#[test]
fn a_pattern_that_could_mean_more_than_it_says_is_refused() {
    use PatternError::{NoPath, Rest, TrustDomain};
    let refused = |text: &str| IdPattern::parse(text).unwrap_err();
    assert_eq!(refused("spiffe://*/ci"), TrustDomain);
    assert_eq!(refused("spiffe://*.test/ci"), TrustDomain);
    assert_eq!(refused("spiffe://td.test/**/ci"), Rest);
    assert_eq!(refused("spiffe://td.test/a**"), Rest);
    assert_eq!(refused("spiffe://td.test/***"), Rest);
    assert_eq!(refused("spiffe://td.test"), NoPath);
    for text in [
        "spiffe://td.test/a/../b",
        "spiffe://td.test/%2e",
        "spiffe://td.test/",
        "td.test/ci",
        "",
        "*",
    ] {
        assert!(matches!(refused(text), PatternError::Id(_) | TrustDomain), "{text}");
    }
}

#[test]
fn a_pattern_is_printed_as_it_was_written() {
    for text in ["spiffe://td.test/ci/*/deploy", "spiffe://td.test/**", "spiffe://td.test/a*b"] {
        assert_eq!(IdPattern::parse(text).unwrap().to_string(), text);
    }
}
