use super::*;
use crate::authority::decide::testing::{federation, web};

fn own() -> TrustDomain {
    TrustDomain::parse("own.test").unwrap()
}

fn named(name: &str, created: i64, trust_domain: &str) -> SpiffeFederation {
    let mut federation = federation(name, created, web());
    federation.spec.trust_domain = Some(trust_domain.to_owned());
    federation
}

#[test]
fn the_name_is_the_trust_domain_unless_the_spec_has_one() {
    let plain = federation("b.test", 1, web());
    assert_eq!(trust_domain(&plain, [&plain].into_iter(), &own()).unwrap().as_str(), "b.test");
    let other = named("b", 1, "under_score.test");
    assert_eq!(
        trust_domain(&other, [&other].into_iter(), &own()).unwrap().as_str(),
        "under_score.test"
    );
}

#[test]
fn our_own_trust_domain_cannot_be_federated_with_in_any_case() {
    for name in ["own.test", "OWN.test"] {
        let federation = named("x", 1, name);
        let refused = trust_domain(&federation, [&federation].into_iter(), &own());
        assert_eq!(refused, Err(Problem::OwnTrustDomain), "{name}");
    }
}

#[test]
fn the_second_federation_for_a_trust_domain_is_refused_and_the_first_goes_on() {
    let (old, new) = (named("z-old", 1, "b.test"), named("a-new", 2, "B.test"));
    let all = || [&new, &old].into_iter();
    assert!(trust_domain(&old, all(), &own()).is_ok());
    assert_eq!(
        trust_domain(&new, all(), &own()),
        Err(Problem::Duplicate { of: "z-old".to_owned() })
    );
}

#[test]
fn of_two_from_the_same_second_exactly_one_counts() {
    let (one, two) = (named("a", 5, "b.test"), named("b", 5, "b.test"));
    let all = || [&two, &one].into_iter();
    assert!(trust_domain(&one, all(), &own()).is_ok());
    assert!(trust_domain(&two, all(), &own()).is_err());
}

#[test]
fn what_is_no_trust_domain_is_refused() {
    for name in ["", "a/b", "a:1", "a b", "spiffe://a"] {
        let federation = named("x", 1, name);
        let refused = trust_domain(&federation, [&federation].into_iter(), &own());
        assert!(matches!(refused, Err(Problem::TrustDomain(_))), "{name}");
    }
}
