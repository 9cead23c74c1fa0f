use std::collections::BTreeMap;

use super::*;
use crate::{
    authority::decide::testing::{federation, fixed, spiffe, web},
    spiffe::testing::{Ca, document},
};

#[derive(Default)]
struct TestBundles {
    bundles: BTreeMap<String, Arc<Bundle>>,
    endpoints: BTreeMap<String, String>,
}

impl KnownBundles for TestBundles {
    fn bundle(&self, trust_domain: &TrustDomain) -> Option<Arc<Bundle>> {
        self.bundles.get(trust_domain.as_str()).cloned()
    }

    fn endpoint_of(&self, trust_domain: &TrustDomain) -> Option<TrustDomain> {
        self.endpoints.get(trust_domain.as_str()).map(|it| td(it))
    }
}

fn td(name: &str) -> TrustDomain {
    TrustDomain::parse(name).unwrap()
}

fn bundle_of(document: &str) -> Arc<Bundle> {
    Arc::new(Bundle::parse(document.as_bytes()).unwrap())
}

fn proof(source: Result<Source, Problem>) -> Arc<Bundle> {
    match source {
        Ok(Source::Fetch { proof: Proof::Spiffe { bundle, .. }, .. }) => bundle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_self_serving_endpoint_is_verified_with_the_bootstrap_bundle_first_and_then_with_the_latest() {
    let [boot, latest] = ["boot", "latest"].map(|name| document(&[&Ca::new(name)]).to_string());
    let mut federation = federation("b.test", 1, spiffe("spiffe://b.test/server", Some(&boot)));
    let of = |it: &SpiffeFederation| proof(source(it, &td("b.test"), &TestBundles::default()));
    assert_eq!(of(&federation), bundle_of(&boot));
    federation.status.current_bundle = Some(latest.clone());
    federation.status.current_bundle_synced_from = Some(federation.spec.bundle_source.digested());
    assert_eq!(of(&federation), bundle_of(&latest));
}

#[test]
fn another_bootstrap_bundle_or_another_server_starts_anew() {
    let [boot, latest, other] =
        ["boot", "latest", "other"].map(|name| document(&[&Ca::new(name)]).to_string());
    let mut federation = federation("b.test", 1, spiffe("spiffe://b.test/server", Some(&boot)));
    federation.status.current_bundle = Some(latest);
    federation.status.current_bundle_synced_from = Some(federation.spec.bundle_source.digested());
    for (id, bootstrap) in [("spiffe://b.test/server", &other), ("spiffe://b.test/other", &boot)] {
        federation.spec.bundle_source = spiffe(id, Some(bootstrap));
        let found = proof(source(&federation, &td("b.test"), &TestBundles::default()));
        assert_eq!(found, bundle_of(bootstrap), "{id}");
    }
}

#[test]
fn an_endpoint_in_another_trust_domain_is_verified_with_that_one_s_bundle_and_never_with_a_bootstrap()
 {
    let (theirs, boot) =
        (document(&[&Ca::new("c")]).to_string(), document(&[&Ca::new("x")]).to_string());
    let federation = federation("b.test", 1, spiffe("spiffe://c.test/server", Some(&boot)));
    let mut known = TestBundles::default();
    let unknown = source(&federation, &td("b.test"), &known);
    assert_eq!(unknown, Err(Problem::EndpointUnknown(td("c.test"))));
    known.bundles.insert("c.test".to_owned(), bundle_of(&theirs));
    assert_eq!(proof(source(&federation, &td("b.test"), &known)), bundle_of(&theirs));
}

#[test]
fn endpoints_that_wait_for_each_other_are_told_as_a_circle() {
    let federation = federation("b.test", 1, spiffe("spiffe://c.test/server", None));
    let endpoints = [("b.test", "c.test"), ("c.test", "d.test"), ("d.test", "b.test")];
    let endpoints = endpoints.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let found =
        source(&federation, &td("b.test"), &TestBundles { endpoints, ..TestBundles::default() });
    let Err(problem) = found else { panic!("{found:?}") };
    let text = problem.to_string();
    assert!(text.contains("b.test -> c.test -> d.test -> b.test"), "{text}");
}

#[test]
fn a_self_serving_endpoint_without_a_bootstrap_bundle_is_told() {
    let federation = federation("b.test", 1, spiffe("spiffe://b.test/server", None));
    assert_eq!(
        source(&federation, &td("b.test"), &TestBundles::default()),
        Err(Problem::NoBootstrap)
    );
}

#[test]
fn an_endpoint_must_be_a_server_and_not_a_trust_domain() {
    let federation = federation("b.test", 1, spiffe("spiffe://b.test", Some("{}")));
    assert_eq!(
        source(&federation, &td("b.test"), &TestBundles::default()),
        Err(Problem::EndpointIdWithoutPath)
    );
}

#[test]
fn pins_are_read_and_redirects_are_followed_unless_they_are_switched_off() {
    let mut sources = web();
    let web = sources.https_web.as_mut().unwrap();
    web.pins = vec!["ab".repeat(32)];
    web.follow_redirects = Some(false);
    let found =
        source(&federation("b.test", 1, sources.clone()), &td("b.test"), &TestBundles::default());
    let Ok(Source::Fetch { proof: Proof::Web { pins, .. }, follow_redirects, .. }) = found else {
        panic!("{found:?}")
    };
    assert_eq!((pins, follow_redirects), (vec![[0xab; 32]], false));
    sources.https_web.as_mut().unwrap().pins = vec!["abc".to_owned()];
    let refused = source(&federation("b.test", 1, sources), &td("b.test"), &TestBundles::default());
    assert_eq!(refused, Err(Problem::Pin));
}

#[test]
fn there_is_exactly_one_source() {
    let none = federation("b.test", 1, BundleSource::default());
    let two = BundleSource { fixed: fixed("{}").fixed, ..web() };
    for federation in [none, federation("b.test", 1, two)] {
        assert_eq!(
            source(&federation, &td("b.test"), &TestBundles::default()),
            Err(Problem::ManySources)
        );
    }
}
