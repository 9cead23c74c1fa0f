//! What is read of a Route, and Routes for the tests of others.

use serde_json::{Value, json};

use super::*;
use crate::inject::fixtures::issued;

/// A Route as the API server stores it.
#[derive(Clone)]
pub(crate) struct Draft(pub(crate) Value);

impl Draft {
    pub(crate) fn plain() -> Self {
        let metadata = json!({
            "name": "shop", "namespace": "web", "uid": "4711", "resourceVersion": "41",
        });
        Self(json!({ "metadata": metadata, "spec": { "host": "shop.example.com" } }))
    }

    pub(crate) fn edge() -> Self {
        Self::plain().with("/spec", "tls", json!({ "termination": "edge" }))
    }

    pub(crate) fn with(mut self, place: &str, name: &str, value: Value) -> Self {
        self.0.pointer_mut(place).unwrap()[name] = value;
        self
    }

    pub(crate) fn named(self, namespace: &str, name: &str) -> Self {
        self.with("/metadata", "namespace", json!(namespace)).with("/metadata", "name", json!(name))
    }

    pub(crate) fn uid(self, uid: &str) -> Self {
        self.with("/metadata", "uid", json!(uid))
    }

    pub(crate) fn version(self, version: &str) -> Self {
        self.with("/metadata", "resourceVersion", json!(version))
    }

    pub(crate) fn annotated(mut self, name: &str) -> Self {
        self.0["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = json!(name);
        self
    }

    pub(crate) fn holding(self, certificate: &str, key: &str) -> Self {
        let tls = self.with("/spec/tls", "certificate", json!(certificate));
        tls.with("/spec/tls", "key", json!(key))
    }

    pub(crate) fn marker(mut self, marker: &str) -> Self {
        self.0["metadata"]["annotations"][INJECTED_ANNOTATION] = json!(marker);
        self
    }

    /// With the marker that we would have written with what stands there now.
    pub(crate) fn marked(self) -> Self {
        let text = |name: &str| self.0["spec"]["tls"][name].as_str().unwrap_or_default();
        let uid = self.0["metadata"]["uid"].as_str().unwrap();
        let marker = Marker::of(uid, text("certificate"), text("key")).to_string();
        self.marker(&marker)
    }

    /// With the annotation that we would have written for this version of its Secret.
    pub(crate) fn from(mut self, uid: &str, version: &str) -> Self {
        let annotations = &mut self.0["metadata"]["annotations"];
        let marker = annotations[INJECTED_ANNOTATION].as_str().unwrap().parse().unwrap();
        annotations[INJECTED_FROM_ANNOTATION] = json!(Source::text(uid, version, &marker));
        self
    }

    pub(crate) fn owned_by(self, api_version: &str, kind: &str) -> Self {
        let owner = json!({
            "apiVersion": api_version, "kind": kind, "name": "shop", "uid": "1", "controller": true,
        });
        self.with("/metadata", "ownerReferences", json!([owner]))
    }

    pub(crate) fn facts(&self) -> RouteFacts {
        RouteFacts::read(&serde_json::from_value(self.0.clone()).unwrap())
    }
}

fn holding(draft: &Draft) -> Holding {
    match draft.facts().tls {
        Tls::Terminated { holding, .. } => holding,
        other => panic!("terminates no TLS: {other:?}"),
    }
}

fn pair(owner: Owner) -> Holding {
    Holding::Certificate(Fingerprint::of("certificate", "key"), owner)
}

#[test]
fn a_pair_is_ours_where_the_note_agrees_and_theirs_where_there_is_none() {
    let draft = Draft::edge().holding("certificate", "key");
    assert_eq!(holding(&draft), pair(Owner::Theirs));
    assert!(!draft.facts().has_marker);
    assert_eq!(holding(&draft.clone().marked()), pair(Owner::Ours));
    assert!(draft.marked().facts().has_marker);
}

#[test]
fn a_copied_or_restored_route_with_a_new_uid_holds_its_owners_pair() {
    let copy = Draft::edge().holding("certificate", "key").marked().uid("4712");
    assert_eq!(holding(&copy), pair(Owner::Theirs));
    assert!(copy.facts().has_marker, "the marker stands there all the same and is to be dropped");
}

#[test]
fn a_forged_note_gains_nothing() {
    let draft = Draft::edge().holding("certificate", "key");
    let other = Marker::of("4711", "other", "key").to_string();
    let good = Marker::of("4711", "certificate", "key").to_string();
    let forged =
        ["", "true", "v1:00:00", "v2:x:y", &other, &good.replace("v1", "v2"), &good[..131]];
    for marker in forged {
        assert_eq!(holding(&draft.clone().marker(marker)), pair(Owner::Theirs), "{marker:?}");
        assert!(draft.clone().marker(marker).facts().has_marker, "{marker:?}");
    }
}

#[test]
fn a_pair_in_which_one_byte_changed_is_no_longer_ours() {
    let ours = Draft::edge().holding("certificate\n", "key\n").marked();
    let theirs = [("certificate\r\n", "key\n"), ("certificate\n", "key"), ("certificate\n", "")];
    for (certificate, key) in theirs {
        let Holding::Certificate(_, owner) = holding(&ours.clone().holding(certificate, key))
        else {
            panic!("{certificate:?} is a certificate");
        };
        assert_eq!(owner, Owner::Theirs, "{certificate:?} {key:?}");
    }
}

#[test]
fn line_ends_are_kept_as_they_are() {
    let crlf = Draft::edge().holding("a\r\nb\r\n", "k\r\n").marked();
    let expected = Holding::Certificate(Fingerprint::of("a\r\nb\r\n", "k\r\n"), Owner::Ours);
    assert_eq!(holding(&crlf), expected);
    assert_ne!(holding(&Draft::edge().holding("a\nb\n", "k\n").marked()), expected);
}

#[test]
fn empty_strings_are_no_certificate_and_no_key() {
    assert_eq!(holding(&Draft::edge()), Holding::Nothing);
    assert_eq!(holding(&Draft::edge().holding("", "")), Holding::Nothing);
    let alone = Draft::edge().holding("certificate", "");
    let expected = Holding::Certificate(Fingerprint::of("certificate", ""), Owner::Theirs);
    assert_eq!(holding(&alone), expected);
}

#[test]
fn a_key_without_its_certificate_is_ours_if_the_note_knows_the_key() {
    let left_over = Draft::edge().holding("certificate", "key").marked().holding("", "key");
    assert_eq!(holding(&left_over), Holding::KeyOnly(Owner::Ours));
    assert_eq!(holding(&left_over.holding("", "other")), Holding::KeyOnly(Owner::Theirs));
    assert_eq!(holding(&Draft::edge().holding("", "key")), Holding::KeyOnly(Owner::Theirs));
}

#[test]
fn what_the_router_does_with_tls_is_read_in_the_order_of_the_table() {
    let external = json!({ "name": "own" });
    let passthrough = Draft::edge().with("/spec/tls", "termination", json!("passthrough"));
    assert_eq!(Draft::plain().facts().tls, Tls::NotSecured);
    assert_eq!(passthrough.facts().tls, Tls::Passthrough);
    let both = passthrough.with("/spec/tls", "externalCertificate", external.clone());
    assert_eq!(both.facts().tls, Tls::Passthrough);
    let set = Draft::edge().with("/spec/tls", "externalCertificate", external);
    assert_eq!(set.facts().tls, Tls::External(Holding::Nothing));
    let unset = Draft::edge().with("/spec/tls", "externalCertificate", json!({ "name": "" }));
    assert_eq!(holding(&unset), Holding::Nothing);
}

#[test]
fn a_ca_certificate_counts_unless_it_is_empty() {
    let with = |text| Draft::edge().with("/spec/tls", "caCertificate", json!(text)).facts();
    assert!(with("-----BEGIN CERTIFICATE-----").ca_certificate().is_some());
    assert!(with("").ca_certificate().is_none());
    assert!(Draft::edge().facts().ca_certificate().is_none());
    assert!(!with("one").same_but_for_version(&with("another")), "it decides again");
}

#[test]
fn an_annotation_that_can_be_a_name_asks_for_that_secret_of_the_routes_namespace() {
    let longest = "n".repeat(253);
    for name in ["shop-tls", "a.b.c", "9", "0-0", &longest] {
        let facts = Draft::edge().annotated(name).facts();
        assert_eq!(facts.secret(), Some(ObjectRef::new("web", name)), "{name}");
        assert!(facts.is_annotated());
    }
}

#[test]
fn an_annotation_that_can_not_be_a_name_asks_for_no_secret_but_is_set() {
    let too_long = "n".repeat(254);
    let invalid = [
        " ",
        "shop tls",
        "shop-tls ",
        "../x",
        "web/shop-tls",
        "Shop",
        "shop_tls",
        "-shop",
        "shop-",
        ".shop",
        "shop.",
        "a..b",
        "a.-b",
        "läden",
        "shop\n",
        "shop\0",
        &too_long,
    ];
    for name in invalid {
        let facts = Draft::edge().annotated(name).facts();
        let beginning: String = name.chars().take(63).collect();
        assert_eq!(facts.requested, RequestedSecret::Invalid(beginning.into()), "{name:?}");
        assert_eq!(facts.secret(), None, "{name:?}");
        assert!(facts.is_annotated(), "{name:?}");
    }
}

#[test]
fn of_an_annotation_of_any_size_no_more_is_kept_than_is_told() {
    let facts = |end: &str| Draft::edge().annotated(&("x/".repeat(100_000) + end)).facts();
    let RequestedSecret::Invalid(kept) = facts("a").requested else { panic!("it is no name") };
    assert_eq!(kept.len(), 63);
    assert_eq!(facts("a"), facts("b"), "they differ in nothing that would be told");
}

#[test]
fn an_empty_annotation_is_unset() {
    let facts = Draft::edge().annotated("").facts();
    assert_eq!(facts.requested, RequestedSecret::Nothing);
    assert!(!facts.is_annotated());
}

#[test]
fn a_route_that_an_ingress_controls_is_not_ours_to_write_in_any_of_four_api_versions() {
    let versions = [
        "networking.k8s.io/v1",
        "networking.k8s.io/v1beta1",
        "extensions/v1beta1",
        "extensions.k8s.io/v1beta1",
    ];
    for version in versions {
        let draft = Draft::edge().owned_by(version, "Ingress");
        assert_eq!(draft.facts().write_access, WriteAccess::Ingress, "{version}");
        for controller in [json!(false), Value::Null] {
            let mut follower = draft.clone();
            follower.0["metadata"]["ownerReferences"][0]["controller"] = controller;
            assert_eq!(follower.facts().write_access, WriteAccess::Free, "{version}");
        }
    }
    let others = [("networking.k8s.io/v1", "NetworkPolicy"), ("example.com/v1", "Ingress")];
    for (version, kind) in others {
        let facts = Draft::edge().owned_by(version, kind).facts();
        assert_eq!(facts.write_access, WriteAccess::Free, "{version} {kind}");
    }
}

#[test]
fn a_route_under_deletion_is_not_ours_to_write() {
    let deleted =
        Draft::edge().with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(deleted.facts().write_access, WriteAccess::Deleting);
}

#[test]
fn a_secret_decides_only_where_the_router_serves_what_stands_in_a_route_that_is_ours_to_write() {
    let asks = Draft::edge().annotated("shop-tls");
    assert_eq!(asks.facts().deciding_secret(), Some(ObjectRef::new("web", "shop-tls")));
    let passthrough = asks.clone().with("/spec/tls", "termination", json!("passthrough"));
    let controlled = asks.owned_by("networking.k8s.io/v1", "Ingress");
    for draft in [Draft::plain().annotated("shop-tls"), passthrough, controlled] {
        assert_eq!(draft.facts().deciding_secret(), None);
        assert!(draft.facts().secret().is_some());
    }
}

#[test]
fn the_facts_hold_neither_certificate_nor_key() {
    let facts = Draft::edge().holding("the certificate", "the key").marked().facts();
    let shown = format!("{facts:?}");
    assert!(!shown.contains("the certificate") && !shown.contains("the key"), "{shown}");
}

#[test]
fn only_the_version_may_differ_between_facts_that_are_the_same_but_for_it() {
    let facts = Draft::edge().annotated("shop-tls").facts();
    let newer = Draft::edge().annotated("shop-tls").version("42").facts();
    assert!(facts.same_but_for_version(&newer));
    assert!(!facts.same_but_for_version(&Draft::edge().annotated("other").facts()));
    let again = Draft::edge().annotated("shop-tls").uid("4712").facts();
    assert!(!facts.same_but_for_version(&again));
}

#[test]
fn a_route_with_nothing_but_metadata_can_be_read() {
    let facts = Draft(json!({ "metadata": {} })).facts();
    assert_eq!(facts.tls, Tls::NotSecured);
    assert_eq!(facts.at.to_string(), "/");
}

#[test]
fn only_the_policy_subdomain_serves_the_whole_domain() {
    assert_eq!(wildcard(Some("Subdomain")), Wildcard::Subdomain);
    assert_eq!(wildcard(Some("None")), Wildcard::None);
    assert_eq!(wildcard(None), Wildcard::None);
}

#[test]
fn another_host_or_wildcard_policy_is_a_change() {
    let with = |name: &str, value: &str| Draft::edge().with("/spec", name, json!(value)).facts();
    for other in [with("host", "other.example.com"), with("wildcardPolicy", "Subdomain")] {
        assert!(!other.same_but_for_version(&Draft::edge().facts()));
    }
}

#[test]
fn what_is_kept_of_a_long_chain_is_read_off_the_route_by_itself() {
    let (certificate, key) = issued("other.example.com");
    let ours = |chain: &str| Draft::edge().annotated("shop-tls").holding(chain, &key).marked();
    let short = ours(&certificate).facts();
    let reasons = |facts: &RouteFacts| facts.description().map(|held| held.warnings.len());
    assert_eq!(reasons(&short), Some(1), "it is for another host");

    let long = ours(&certificate.repeat(11));
    assert_eq!(long.facts().certificate, HeldCertificate::Unread);
    let route: Route = serde_json::from_value(long.0.clone()).unwrap();
    let whole = RouteFacts::read_whole(&route);
    assert_eq!(reasons(&whole), Some(1));
    let mut passing = long.facts();
    passing.keep_reading_of(&whole);
    assert_eq!(passing, whole, "what was read once is kept while the Route is the same");
    let mut moved = long.with("/spec", "host", json!("blog.example.com")).facts();
    moved.keep_reading_of(&whole);
    assert_eq!(moved.certificate, HeldCertificate::Unread);
}
