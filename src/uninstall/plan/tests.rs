//! What is removed, for each kind of Route.

use serde_json::{Value, json};

use super::*;
use crate::{
    inject::decide::marker::Marker,
    names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION},
};

/// A Route in the making.
struct Draft(Value);

impl Draft {
    fn edge() -> Self {
        let metadata = json!({ "name": "shop", "namespace": "web", "uid": "1", "annotations": {} });
        Self(json!({ "metadata": metadata, "spec": { "tls": { "termination": "edge" } } }))
    }

    fn annotated(mut self) -> Self {
        self.0["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = json!("shop-tls");
        self
    }

    fn holding(mut self, certificate: &str, key: &str) -> Self {
        self.0["spec"]["tls"]["certificate"] = json!(certificate);
        self.0["spec"]["tls"]["key"] = json!(key);
        self
    }

    /// With the marker for the pair `certificate`, `key`.
    fn marked(mut self) -> Self {
        let marker = Marker::of("1", "certificate", "key").to_string();
        self.0["metadata"]["annotations"][INJECTED_ANNOTATION] = json!(marker);
        self
    }

    fn with(mut self, place: &str, field: &str, value: Value) -> Self {
        self.0.pointer_mut(place).unwrap()[field] = value;
        self
    }

    fn of_ingress(self) -> Self {
        let owner = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": "2",
            "controller": true,
        });
        self.with("/metadata", "ownerReferences", json!([owner]))
    }

    fn facts(&self) -> RouteFacts {
        RouteFacts::read(&serde_json::from_value(self.0.clone()).unwrap())
    }

    fn release(&self, pairs: Pairs) -> Option<Write> {
        step(&self.facts(), pairs, StatusField::Dropped).release
    }

    fn effects(&self) -> [Effect; 2] {
        [Pairs::Keep, Pairs::Clear].map(|pairs| effect(&self.facts(), pairs))
    }
}

fn ours() -> Draft {
    Draft::edge().annotated().holding("certificate", "key").marked()
}

#[test]
fn an_injected_pair_stays_or_goes_as_it_was_chosen() {
    assert_eq!(ours().release(Pairs::Keep), Some(Write::DropMarker));
    assert_eq!(ours().release(Pairs::Clear), Some(Write::Clear));
    assert_eq!(ours().effects(), [Effect::PairStays, Effect::PairGoes]);
}

#[test]
fn an_injected_key_that_is_left_beside_an_external_certificate_is_found() {
    let external = json!({ "name": "own" });
    let left = ours().with("/spec/tls", "externalCertificate", external);
    let left = left.with("/spec/tls", "certificate", json!(null));
    for pairs in [Pairs::Keep, Pairs::Clear] {
        assert_eq!(left.release(pairs), Some(Write::ClearKey), "it is of no use to anybody");
    }
    assert_eq!(left.effects(), [Effect::KeyGoes, Effect::KeyGoes]);
}

#[test]
fn a_pair_that_is_not_ours_stays_whatever_was_chosen() {
    let changed = ours().holding("another", "key");
    let own = Draft::edge().annotated().holding("certificate", "key");
    for draft in [changed, own] {
        for pairs in [Pairs::Keep, Pairs::Clear] {
            assert_eq!(draft.release(pairs), Some(Write::DropMarker));
        }
        assert_eq!(draft.effects(), [Effect::OwnPairStays; 2]);
    }
}

#[test]
fn a_key_of_ours_that_lost_its_certificate_goes_whatever_was_chosen() {
    let left_over = ours().holding("", "key");
    assert_eq!(left_over.release(Pairs::Clear), Some(Write::ClearKey));
    assert_eq!(left_over.release(Pairs::Keep), Some(Write::ClearKey));
    assert_eq!(left_over.effects(), [Effect::KeyGoes, Effect::KeyGoes]);
}

#[test]
fn where_the_router_serves_nothing_from_the_route_only_the_annotations_go() {
    let passthrough =
        Draft::edge().annotated().with("/spec/tls", "termination", json!("passthrough"));
    let insecure = Draft::edge().annotated().with("/spec", "tls", Value::Null);
    for draft in [passthrough, insecure, Draft::edge().annotated()] {
        assert_eq!(draft.release(Pairs::Clear), Some(Write::DropMarker));
        assert_eq!(draft.effects(), [Effect::NoPair; 2]);
    }
}

#[test]
fn a_route_that_never_asked_loses_its_condition_and_nothing_else() {
    let condition = json!([{ "type": "Custom", "status": "True" }]);
    let draft = Draft::edge().holding("certificate", "key").with(
        "",
        "status",
        json!({ "certificate": condition }),
    );
    let kept = step(&draft.facts(), Pairs::Clear, StatusField::Kept);
    assert_eq!(kept, Step { release: None, drop_status: true });
    let dropped = step(&draft.facts(), Pairs::Clear, StatusField::Dropped);
    assert!(dropped.is_nothing(), "there is nothing to take out where the server keeps nothing");
}

#[test]
fn a_note_alone_is_removed_too() {
    let removed = Draft::edge().holding("certificate", "key").marked();
    assert_eq!(removed.release(Pairs::Keep), Some(Write::DropMarker));
    assert_eq!(removed.release(Pairs::Clear), Some(Write::Clear));
}

#[test]
fn routes_of_an_ingress_and_those_under_deletion_are_left_alone() {
    let deleted = ours().with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    for draft in [ours().of_ingress(), deleted] {
        assert!(step(&draft.facts(), Pairs::Clear, StatusField::Kept).is_nothing());
    }
}

#[test]
fn after_it_was_done_there_is_nothing_left_to_do() {
    for done in [Draft::edge().holding("certificate", "key"), Draft::edge()] {
        for pairs in [Pairs::Keep, Pairs::Clear] {
            assert!(step(&done.facts(), pairs, StatusField::Kept).is_nothing());
        }
    }
}

#[test]
fn the_outlook_sorts_routes_by_what_is_to_be_done() {
    let condition = json!([{ "type": "Default", "status": "True" }]);
    let plain = Draft::edge().with("", "status", json!({ "certificate": condition }));
    let odd = Draft::edge().with("/metadata/annotations", SECRET_NAME_ANNOTATION, json!("a\nb"));
    let drafts = [ours(), plain, ours().of_ingress(), Draft::edge(), odd];
    let survey = Inventory {
        routes: drafts.iter().map(Draft::facts).collect(),
        undecodable: vec![ObjectRef::new("web", "odd")],
    };
    let outlook = Outlook::of(survey, StatusField::Kept);
    assert_eq!(outlook.marked.len(), 2);
    assert_eq!(outlook.marked[0].asks_for.as_deref(), Some("shop-tls"));
    assert_eq!(outlook.marked[1].asks_for.as_deref(), Some("a\\nb"), "nothing breaks the table");
    assert_eq!((outlook.status_only.len(), outlook.left_alone.len()), (1, 1));
    assert_eq!((outlook.routes().len(), outlook.undecodable.len()), (3, 1));
    assert_eq!(outlook.count(Pairs::Clear, Effect::PairGoes), 1);
    assert_eq!(outlook.statuses(), 1, "only one Route has a condition");
}
