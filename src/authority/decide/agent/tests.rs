use serde_json::json;

use super::*;
use crate::spiffe::testing::{Ca, document, id, noon, svid_params};

fn own() -> TrustDomain {
    TrustDomain::parse("own.test").unwrap()
}

fn received(bundles: &[(&str, String)]) -> BTreeMap<String, Vec<u8>> {
    bundles.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())).collect()
}

/// Valid until one hour after noon.
fn issued(ca: &Ca) -> Arc<IssuedSvid> {
    let der = ca.issue(svid_params(&["spiffe://own.test/agent/a"])).der;
    Arc::new(IssuedSvid {
        id: id("spiffe://own.test/agent/a"),
        chain: vec![der],
        key: Pkcs8Key::new(vec![7]),
        not_after: noon() + TimeDelta::hours(1),
    })
}

fn snapshot(signed_by: &Ca, published: &[&Ca]) -> Snapshot {
    let bundles = received(&[("own.test", document(published).to_string())]);
    let bundles = Arc::new(TrustedBundles::read(&own(), &bundles).unwrap());
    Snapshot { svid: issued(signed_by), bundles }
}

#[test]
fn an_svid_is_renewed_around_its_half_life() {
    let ca = Ca::new("own");
    let snapshot = snapshot(&ca, &[&ca]);
    let joined_at = noon() - TimeDelta::hours(1);
    for (chance, minutes) in [(0.0, -12), (0.5, 0), (1.0, 12), (7.0, 12)] {
        let renewal = renewal(&snapshot, joined_at, chance, noon());
        assert_eq!(renewal.cause, RenewalCause::HalfLife);
        assert_eq!(renewal.at, noon() + TimeDelta::minutes(minutes), "{chance}");
    }
}

#[test]
fn an_svid_whose_ca_left_the_bundle_is_renewed_at_once() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let joined_at = noon() - TimeDelta::minutes(1);
    let both = renewal(&snapshot(&old, &[&old, &new]), joined_at, 0.5, noon());
    assert_eq!(both.cause, RenewalCause::HalfLife);
    let gone = renewal(&snapshot(&old, &[&new]), joined_at, 0.5, noon());
    assert_eq!(gone.at, noon());
    assert!(matches!(gone.cause, RenewalCause::NotInBundle(_)), "{gone:?}");
    let none = renewal(&snapshot(&old, &[]), joined_at, 0.5, noon());
    assert!(matches!(none.cause, RenewalCause::NotInBundle(_)), "{none:?}");
}

#[test]
fn a_server_that_signs_with_a_ca_outside_of_its_bundle_is_not_asked_in_a_hot_loop() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let again = renewal(&snapshot(&old, &[&new]), noon(), 0.5, noon());
    assert_eq!(again.at, noon() + SHORTEST_PAUSE);
}

#[test]
fn an_svid_that_ends_in_a_moment_is_not_renewed_ever_faster() {
    let ca = Ca::new("own");
    let snapshot = snapshot(&ca, &[&ca]);
    let joined_at = snapshot.svid.not_after - TimeDelta::milliseconds(10);
    let again = renewal(&snapshot, joined_at, 0.5, joined_at);
    assert_eq!(again.at, joined_at + SHORTEST_PAUSE);
}

#[test]
fn an_agent_serves_until_its_svid_ends_and_no_longer() {
    let ca = Ca::new("own");
    let snapshot = snapshot(&ca, &[&ca]);
    let end = snapshot.svid.not_after;
    assert!(snapshot.is_served_at(end));
    assert!(!snapshot.is_served_at(end + TimeDelta::seconds(1)));
}

#[test]
fn a_broken_bundle_ends_the_trust_in_its_trust_domain_alone() {
    let ca = Ca::new("a");
    let good = document(&[&ca]).to_string();
    let sent = received(&[
        ("own.test", good.clone()),
        ("good.test", good.clone()),
        ("broken.test", "{".to_owned()),
        ("../etc", good.clone()),
    ]);
    let bundles = TrustedBundles::read(&own(), &sent).unwrap();
    let federated: Vec<_> = bundles.federated().map(|(name, _)| name.to_string()).collect();
    assert_eq!(federated, ["good.test"]);
    assert_eq!(bundles.unusable.keys().collect::<Vec<_>>(), ["../etc", "broken.test"]);
    let documents: Vec<_> = bundles.iter().map(|(_, it)| it.document.clone()).collect();
    assert_eq!(documents, [good.clone(), good]);
}

#[test]
fn without_the_bundle_of_our_own_trust_domain_nothing_counts() {
    let other = received(&[("other.test", json!({ "keys": [] }).to_string())]);
    assert_eq!(TrustedBundles::read(&own(), &other), Err(BundlesError::NoOwn(own())));
    let broken = received(&[("own.test", "{}".to_owned())]);
    let expected = BundlesError::Own(own(), BundleError::NoKeys);
    assert_eq!(TrustedBundles::read(&own(), &broken), Err(expected));
}
