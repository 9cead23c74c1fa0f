//! What is removed, for each kind of Route.

use serde_json::{Value, json};

use super::*;
use crate::inject::decide::facts::tests::Draft;

const NOTHING: Step = Step { release: None, drop_status: false };

fn release(draft: &Draft, pairs: Pairs) -> Option<Write> {
    step(&draft.facts(), pairs, StatusField::Dropped).release
}

fn effects(draft: &Draft) -> [Effect; 2] {
    [Pairs::Keep, Pairs::Clear].map(|pairs| effect(&draft.facts(), pairs))
}

fn annotated() -> Draft {
    Draft::edge().annotated("shop-tls")
}

fn ours() -> Draft {
    annotated().holding("certificate", "key").marked()
}

#[test]
fn an_injected_pair_stays_or_goes_as_it_was_chosen() {
    assert_eq!(release(&ours(), Pairs::Keep), Some(Write::DropMarker));
    assert_eq!(release(&ours(), Pairs::Clear), Some(Write::Clear));
    assert_eq!(effects(&ours()), [Effect::PairStays, Effect::PairGoes]);
}

#[test]
fn an_injected_key_that_is_left_beside_an_external_certificate_is_found() {
    let external = json!({ "name": "own" });
    let left = ours().with("/spec/tls", "externalCertificate", external);
    let left = left.with("/spec/tls", "certificate", json!(null));
    for pairs in [Pairs::Keep, Pairs::Clear] {
        assert_eq!(release(&left, pairs), Some(Write::ClearKey), "it is of no use to anybody");
    }
    assert_eq!(effects(&left), [Effect::KeyGoes, Effect::KeyGoes]);
}

#[test]
fn a_pair_that_is_not_ours_stays_whatever_was_chosen() {
    let changed = ours().holding("another", "key");
    let own = annotated().holding("certificate", "key");
    for draft in [changed, own] {
        for pairs in [Pairs::Keep, Pairs::Clear] {
            assert_eq!(release(&draft, pairs), Some(Write::DropMarker));
        }
        assert_eq!(effects(&draft), [Effect::OwnPairStays; 2]);
    }
}

#[test]
fn a_key_of_ours_that_lost_its_certificate_goes_whatever_was_chosen() {
    let left_over = ours().holding("", "key");
    assert_eq!(release(&left_over, Pairs::Clear), Some(Write::ClearKey));
    assert_eq!(release(&left_over, Pairs::Keep), Some(Write::ClearKey));
    assert_eq!(effects(&left_over), [Effect::KeyGoes, Effect::KeyGoes]);
}

#[test]
fn where_the_router_serves_nothing_from_the_route_only_the_annotations_go() {
    let passthrough = annotated().with("/spec/tls", "termination", json!("passthrough"));
    let insecure = annotated().with("/spec", "tls", Value::Null);
    for draft in [passthrough, insecure, annotated()] {
        assert_eq!(release(&draft, Pairs::Clear), Some(Write::DropMarker));
        assert_eq!(effects(&draft), [Effect::NoPair; 2]);
    }
}

#[test]
fn a_route_that_never_asked_loses_its_condition_and_nothing_else() {
    let condition = json!([{ "type": "Custom", "status": "True" }]);
    let status = json!({ "certificate": condition });
    let draft = Draft::edge().holding("certificate", "key").with("", "status", status);
    let kept = step(&draft.facts(), Pairs::Clear, StatusField::Kept);
    assert_eq!(kept, Step { release: None, drop_status: true });
    let dropped = step(&draft.facts(), Pairs::Clear, StatusField::Dropped);
    assert_eq!(dropped, NOTHING, "there is nothing to take out where the server keeps nothing");
}

#[test]
fn a_note_alone_is_removed_too() {
    let removed = Draft::edge().holding("certificate", "key").marked();
    assert_eq!(release(&removed, Pairs::Keep), Some(Write::DropMarker));
    assert_eq!(release(&removed, Pairs::Clear), Some(Write::Clear));
}

#[test]
fn routes_of_an_ingress_and_those_under_deletion_are_left_alone() {
    let deleted = ours().with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    for draft in [ours().owned_by("networking.k8s.io/v1", "Ingress"), deleted] {
        assert_eq!(step(&draft.facts(), Pairs::Clear, StatusField::Kept), NOTHING);
    }
}

#[test]
fn after_it_was_done_there_is_nothing_left_to_do() {
    for done in [Draft::edge().holding("certificate", "key"), Draft::edge()] {
        for pairs in [Pairs::Keep, Pairs::Clear] {
            assert_eq!(step(&done.facts(), pairs, StatusField::Kept), NOTHING);
        }
    }
}

#[test]
fn the_outlook_sorts_routes_by_what_is_to_be_done() {
    let condition = json!([{ "type": "Default", "status": "True" }]);
    let plain = Draft::edge().with("", "status", json!({ "certificate": condition }));
    let odd = Draft::edge().annotated("a\nb");
    let drafts =
        [ours(), plain, ours().owned_by("networking.k8s.io/v1", "Ingress"), Draft::edge(), odd];
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
