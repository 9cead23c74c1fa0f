//! The store without HTTP.

mod deletion;
mod rules;

use serde_json::json;

use super::*;
use crate::{
    api_error::ApiError,
    kinds,
    testing::{self, KINDS},
};

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// A store with the namespace `web`, and a call for it.
fn store() -> (Store, Call) {
    let (mut store, mut call) = (Store::new(&KINDS, 100, 7), Call::at(noon()));
    let web = json!({ "metadata": { "name": "web" } });
    store.create(kinds::namespace(), "", web, &mut call).unwrap();
    (store, call)
}

fn secret(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn route(name: &str) -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": name },
        "spec": { "to": { "name": "shop" } },
    })
}

fn reason(outcome: Result<Arc<Value>, ApiError>) -> (u16, &'static str) {
    let error = outcome.expect_err("it must be refused");
    (error.code, error.reason)
}

fn names(list: &List) -> Vec<&str> {
    list.items.iter().map(|object| meta::name_of(object)).collect()
}

#[test]
fn every_kind_of_the_table_is_known_by_name() {
    let rights = |kind| KINDS.named("rbac.authorization.k8s.io/v1", kind).expect("a kind of RBAC");
    let known = [
        kinds::namespace(),
        kinds::secret(),
        kinds::config_map(),
        kinds::service(),
        kinds::service_account(),
        kinds::event(),
        kinds::new_event(),
        kinds::lease(),
        kinds::stateful_set(),
        testing::route(),
        rights("Role"),
        rights("RoleBinding"),
        rights("ClusterRole"),
        rights("ClusterRoleBinding"),
    ];
    assert_eq!(known.len(), KINDS.all().count());
    assert_eq!(kinds::event().slot, kinds::new_event().slot, "they are the same objects");
}

#[test]
fn uids_and_generated_names_follow_from_the_seed() {
    let made = |seed| {
        let (mut store, mut call) = (Store::new(&KINDS, 9, seed), Call::at(noon()));
        let object = json!({ "metadata": { "generateName": "ns-" } });
        let object = store.create(kinds::namespace(), "", object, &mut call).unwrap();
        (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone())
    };
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
    let name = made(1).1;
    assert!(name.as_str().unwrap().starts_with("ns-") && name.as_str().unwrap().len() == 8);
}

#[test]
fn every_change_has_the_next_version_and_shows_what_was_and_what_is() {
    let (mut store, mut call) = store();
    let start = store.version();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    let label = Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } }));
    store.patch(kinds::secret(), ("web", "a"), Part::Main, &label, &mut call).unwrap();
    store.delete(kinds::secret(), ("web", "a"), &DeleteOptions::default(), &mut call).unwrap();
    let changes: Vec<_> = store.changes_since(start).unwrap().collect();
    let shape: Vec<_> = changes
        .iter()
        .map(|change| (change.version - start, change.before.is_some(), change.after.is_some()))
        .collect();
    assert_eq!(shape, [(1, false, true), (2, true, true), (3, true, false)]);
    assert_eq!(changes[1].after.as_ref().unwrap()["metadata"]["labels"]["x"], "y");
}

#[test]
fn history_is_bounded_and_what_fell_out_is_gone() {
    let (mut store, mut call) = (Store::new(&KINDS, 3, 7), Call::at(noon()));
    for name in ["a", "b", "c", "d", "e"] {
        store.create(kinds::namespace(), "", secret(name), &mut call).unwrap();
    }
    assert_eq!(store.history().count(), 3);
    let now = store.version();
    assert_eq!(store.changes_since(now - 3).unwrap().count(), 3);
    assert_eq!(store.changes_since(now - 4).err(), Some(Gone { asked: now - 4, oldest: now - 3 }));
}

#[test]
fn a_compacted_version_is_gone_for_new_watches_though_history_still_shows_it() {
    let (mut store, mut call) = store();
    let before = store.version();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    store.compact(store.version());
    assert!(store.changes_since(before).is_err());
    assert_eq!(store.changes_since(store.version()).unwrap().count(), 0);
    assert_eq!(store.history().count(), 2);
}

#[test]
fn a_clone_is_frozen() {
    let (mut store, mut call) = store();
    let frozen = store.clone();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    assert!(frozen.get(kinds::secret(), "web", "a").is_none());
    assert!(frozen.version() < store.version());
}

#[test]
fn a_write_from_an_old_version_is_a_conflict_and_changes_nothing() {
    let (mut store, mut call) = store();
    let old = store.create(testing::route(), "web", route("a"), &mut call).unwrap();
    let host = Patch::Merge(json!({ "spec": { "host": "a.example" } }));
    store.patch(testing::route(), ("web", "a"), Part::Main, &host, &mut call).unwrap();
    let version = store.version();
    let put = store.update(testing::route(), ("web", "a"), Part::Main, (*old).clone(), &mut call);
    assert_eq!(reason(put), (409, "Conflict"));
    let stale = json!({ "metadata": { "resourceVersion": old["metadata"]["resourceVersion"] } });
    let stale = Patch::Merge(stale);
    let patch = store.patch(testing::route(), ("web", "a"), Part::Main, &stale, &mut call);
    assert_eq!(reason(patch), (409, "Conflict"));
    assert_eq!(store.version(), version);
}

#[test]
fn a_write_meant_for_another_incarnation_is_refused() {
    let (mut store, mut call) = store();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    let other = json!({ "metadata": { "name": "a", "uid": "another" } });
    let put = store.update(kinds::secret(), ("web", "a"), Part::Main, other.clone(), &mut call);
    assert_eq!(reason(put), (409, "Conflict"));
    let patch = Patch::Merge(other);
    let patch = store.patch(kinds::secret(), ("web", "a"), Part::Main, &patch, &mut call);
    assert_eq!(reason(patch), (422, "Invalid"), "as kube-apiserver has it");
}

#[test]
fn a_route_needs_a_version_to_be_replaced_and_a_secret_does_not() {
    let (mut store, mut call) = store();
    store.create(testing::route(), "web", route("a"), &mut call).unwrap();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    let put = store.update(testing::route(), ("web", "a"), Part::Main, route("a"), &mut call);
    assert_eq!(reason(put), (422, "Invalid"));
    store.update(kinds::secret(), ("web", "a"), Part::Main, secret("a"), &mut call).unwrap();
}

#[test]
fn a_lease_can_be_made_by_replacing_what_is_not_there_and_a_secret_cannot() {
    let (mut store, mut call) = store();
    store.update(kinds::lease(), ("web", "l"), Part::Main, secret("l"), &mut call).unwrap();
    assert!(store.get(kinds::lease(), "web", "l").is_some());
    let put = store.update(kinds::secret(), ("web", "a"), Part::Main, secret("a"), &mut call);
    assert_eq!(reason(put), (404, "NotFound"));
}

#[test]
fn a_dry_run_answers_as_if_and_stores_nothing() {
    let (mut store, mut call) = store();
    call.dry_run = true;
    let version = store.version();
    let made = store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    assert_eq!(made["type"], "Opaque");
    assert_eq!((store.version(), store.get(kinds::secret(), "web", "a")), (version, None));
}

#[test]
fn the_generation_counts_changes_of_the_spec_alone() {
    let (mut store, mut call) = store();
    store.create(testing::route(), "web", route("a"), &mut call).unwrap();
    let mut generation = |part, change| {
        let patch = Patch::Merge(change);
        let object = store.patch(testing::route(), ("web", "a"), part, &patch, &mut call).unwrap();
        object["metadata"]["generation"].as_i64().unwrap()
    };
    assert_eq!(generation(Part::Main, json!({ "metadata": { "labels": { "a": "b" } } })), 1);
    assert_eq!(generation(Part::Main, json!({ "spec": { "host": "a.example" } })), 2);
    let status = json!({ "status": { "ingress": [] }, "spec": { "host": "b.example" } });
    assert_eq!(generation(Part::Status, status), 2);
}

#[test]
fn lists_are_in_the_order_of_etcd_and_of_one_namespace_only_if_asked() {
    let (mut store, mut call) = store();
    // A dash sorts before the slash that ends a namespace's name.
    let other = json!({ "metadata": { "name": "web-2" } });
    store.create(kinds::namespace(), "", other, &mut call).unwrap();
    for (namespace, name) in [("web", "b"), ("web", "a"), ("web-2", "c")] {
        store.create(kinds::secret(), namespace, secret(name), &mut call).unwrap();
    }
    let query = Query::default();
    assert_eq!(names(&store.list(kinds::secret(), "", &query).unwrap()), ["c", "a", "b"]);
    assert_eq!(names(&store.list(kinds::secret(), "web", &query).unwrap()), ["a", "b"]);
}

#[test]
fn a_list_of_a_version_shows_what_was_then() {
    let (mut store, mut call) = store();
    store.create(kinds::secret(), "web", secret("old"), &mut call).unwrap();
    let then = store.version();
    store.create(kinds::secret(), "web", secret("new"), &mut call).unwrap();
    store.delete(kinds::secret(), ("web", "old"), &DeleteOptions::default(), &mut call).unwrap();
    let at = |version| Query { version, ..Query::default() };
    let list = store.list(kinds::secret(), "web", &at(VersionMatch::Exact(then))).unwrap();
    assert_eq!((names(&list), list.version), (vec!["old"], then));
    let later = at(VersionMatch::NotOlderThan(then + 100));
    assert_eq!(store.list(kinds::secret(), "web", &later).unwrap_err().code, 504);
    store.compact(store.version());
    let gone = store.list(kinds::secret(), "web", &at(VersionMatch::Exact(then))).unwrap_err();
    assert_eq!((gone.code, gone.reason), (410, "Expired"));
}

#[test]
fn events_are_stored_in_one_shape_whichever_group_they_came_through() {
    let (mut store, mut call) = store();
    let event = json!({
        "metadata": { "name": "e" }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "trustplane.dev/test", "reportingInstance": "a", "action": "Look",
        "reason": "Because", "type": "Normal", "note": "look", "regarding": { "namespace": "web" },
    });
    store.create(kinds::new_event(), "web", event, &mut call).unwrap();
    let stored = store.get(kinds::event(), "web", "e").unwrap();
    assert_eq!((&stored["message"], &stored["apiVersion"]), (&json!("look"), &json!("v1")));
    let shown = from_stored(kinds::new_event(), stored);
    assert_eq!((&shown["note"], shown.get("message")), (&json!("look"), None));
    assert_eq!(store.history().last().unwrap().kind, kinds::event());
}
