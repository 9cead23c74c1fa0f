//! Promise: everything that others send us to be judged by SPIFFE's rules has an answer without a panic, and
//! what we accept is what SPIFFE's own library accepts: IDs, bundle documents, X.509-SVIDs, JWT-SVIDs; rules
//! about IDs, requests for certificates and messages of a join have other second opinions.
//!
//! Good ones are made and broken: member by member, in the middle of a certificate, before and after it is
//! signed, and byte by byte. `verdict` asks go-spiffe about each of them, and needs Go.

mod certificates;
mod documents;
mod ids;
mod material;
mod requests;
mod rules;
mod svids;
mod tokens;
mod verdict;

use std::collections::BTreeSet;

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::Value;

use documents::Text;
use trustplane::spiffe::{
    bundle::{Bundle, BundleMap},
    id::{SpiffeId, TrustDomain},
    svid::{self, SvidError},
};

/// Inputs of each property.
fn count() -> u32 {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 1_000_000 } else { 20_000 }
}

/// Fixed in `make test`, random in long runs; TRUSTPLANE_SEED repeats one.
fn seed() -> RngSeed {
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let long = std::env::var_os("TRUSTPLANE_LONG").map(|_| u64::from(std::process::id()));
    let seed = given.or(long).unwrap_or(20_261_101);
    println!("TRUSTPLANE_SEED={seed}");
    RngSeed::Fixed(seed)
}

fn runner() -> TestRunner {
    let config =
        Config { cases: count(), rng_seed: seed(), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
}

/// Runs a property over `count()` inputs. It returns whether an input was accepted, and enough of them
/// must be, and enough must not.
fn check<S: Strategy>(inputs: &S, property: impl Fn(S::Value) -> Result<bool, TestCaseError>) {
    let (accepted, refused) = (std::cell::Cell::new(0_u32), std::cell::Cell::new(0_u32));
    let outcome = runner().run(inputs, |input| {
        let counted = if property(input)? { &accepted } else { &refused };
        counted.set(counted.get() + 1);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} accepted, {} refused", accepted.get(), refused.get());
    assert!(accepted.get() * 10 > count(), "too few good ones to mean anything");
    assert!(refused.get() * 10 > count(), "too few bad ones to mean anything");
}

#[test]
fn every_id_has_an_answer_and_an_accepted_one_is_read_back_as_it_is_shown() {
    check(&ids::id(), |text| {
        let _ = TrustDomain::parse(&text);
        let Ok(id) = SpiffeId::parse(&text) else { return Ok(false) };
        let shown = id.to_string();
        prop_assert!(shown.eq_ignore_ascii_case(&text));
        prop_assert!(shown.ends_with(id.path()) && text.ends_with(id.path()));
        prop_assert!(shown.len() <= 2048 && id.trust_domain().as_str().len() <= 255);
        prop_assert_eq!(SpiffeId::parse(&shown), Ok(id.clone()));
        let trust_domain = id.trust_domain();
        prop_assert_eq!(TrustDomain::parse(trust_domain.as_str()), Ok(trust_domain.clone()));
        Ok(true)
    });
}

#[test]
fn every_document_has_an_answer_and_an_accepted_one_means_the_same_in_every_spelling() {
    check(&documents::document(), |Text(document)| {
        let map = [br#"{"trust_domains": {"td.test": "#, &document[..], b"}}"].concat();
        let map = BundleMap::parse(&map);
        match Bundle::parse(&document) {
            Ok(bundle) => {
                // serde_json reads no tree of everything that is JSON: a number may be too big.
                if let Ok(value) = serde_json::from_slice::<Value>(&document) {
                    let pretty = serde_json::to_vec_pretty(&value).expect("JSON");
                    prop_assert_eq!(Bundle::parse(&pretty), Ok(bundle.clone()));
                }
                if let Ok(map) = map {
                    let td = TrustDomain::parse("td.test").expect("a trust domain");
                    prop_assert_eq!(map.get(&td), Some(&bundle));
                }
                Ok(true)
            }
            Err(error) => {
                let (said, text) = (error.to_string(), String::from_utf8_lossy(&document));
                prop_assert!(quotes(&said, &text).is_none(), "{said}");
                Ok(false)
            }
        }
    });
}

/// A piece of a document in the words about it, which people read and logs keep.
fn quotes<'a>(said: &str, document: &'a str) -> Option<&'a str> {
    let words = document.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.len() >= 12).find(|word| said.contains(word))
}

/// Rule 34. An empty bundle is a test beside the code; here are those that hold keys, but none to use.
#[test]
fn a_bundle_of_keys_to_ignore_makes_every_svid_invalid() {
    let id = SpiffeId::parse("spiffe://td.test/workload").expect("an ID");
    let svid = material::SVID.clone();
    let now = material::noon();
    let good = material::document(&[material::x509(0)]);
    let verified = |document: &str| {
        let bundle = Bundle::parse(document.as_bytes()).expect("a bundle");
        svid::verify(std::slice::from_ref(&svid), &id, &bundle, now)
    };
    assert_eq!(verified(&good), Ok(None));
    let bad: BTreeSet<String> =
        [("kty", "\"XX\""), ("use", "\"sig\""), ("use", "null"), ("x5c", "[]")]
            .into_iter()
            .map(|(name, value)| material::document(&[material::x509(0).with(name, value)]))
            .collect();
    assert_eq!(bad.len(), 4);
    for document in bad {
        let said = verified(&document);
        assert_eq!(said, Err(SvidError::NoAuthority(id.trust_domain().clone())), "{document}");
    }
    // Rule 35: its certificate is no authority's.
    let jwt = material::x509(0).with("use", "\"jwt-svid\"").with("kid", "\"one\"");
    let said = verified(&material::document(&[jwt]));
    assert_eq!(said, Err(SvidError::NoAuthority(id.trust_domain().clone())));
}
