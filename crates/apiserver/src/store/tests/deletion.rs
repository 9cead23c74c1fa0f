//! Deletion, finalizers, garbage and namespaces.

use super::*;

fn options(propagation: Option<Propagation>) -> DeleteOptions {
    DeleteOptions { propagation, ..DeleteOptions::default() }
}

/// Deletes a Secret, then runs garbage collection.
fn delete(store: &mut Store, name: &str, propagation: Option<Propagation>) {
    let before = store.version();
    let mut call = Call::at(noon());
    store.delete(kinds::secret(), ("web", name), &options(propagation), &mut call).unwrap();
    store.collect_garbage(before, noon());
}

fn owned_by(owner: &Value, name: &str) -> Value {
    let mut object = secret(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Secret", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    object
}

#[test]
fn an_object_with_finalizers_waits_for_the_last_of_them_to_go() {
    let (mut store, mut call) = store();
    let mut held = route("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    store.create(testing::route(), "web", held, &mut call).unwrap();
    let deleted = store.delete(testing::route(), ("web", "a"), &options(None), &mut call).unwrap();
    let Deleted::Waiting(object) = deleted else { panic!("it is held") };
    assert_eq!(object["metadata"]["deletionTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(object["metadata"]["generation"], 2);

    let another = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/more"] } }));
    let refused = store.patch(testing::route(), ("web", "a"), Part::Main, &another, &mut call);
    assert_eq!(reason(refused), (422, "Invalid"), "no new ones");
    let again = store.create(testing::route(), "web", route("a"), &mut call);
    assert_eq!(reason(again), (409, "AlreadyExists"));

    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    store.patch(testing::route(), ("web", "a"), Part::Main, &release, &mut call).unwrap();
    assert!(store.get(testing::route(), "web", "a").is_none());
}

#[test]
fn a_deletion_of_another_incarnation_or_version_is_a_conflict() {
    let (mut store, mut call) = store();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    let wrong = [
        DeleteOptions { uid: Some("another".into()), ..DeleteOptions::default() },
        DeleteOptions { version: Some("1".into()), ..DeleteOptions::default() },
    ];
    for options in wrong {
        let error = store.delete(kinds::secret(), ("web", "a"), &options, &mut call).unwrap_err();
        assert_eq!((error.code, error.reason), (409, "Conflict"));
    }
    assert!(store.get(kinds::secret(), "web", "a").is_some());
}

#[test]
fn dependents_are_deleted_with_their_owner_and_so_are_their_dependents() {
    let (mut store, mut call) = store();
    let owner = store.create(kinds::secret(), "web", secret("owner"), &mut call).unwrap();
    let child = store.create(kinds::secret(), "web", owned_by(&owner, "child"), &mut call).unwrap();
    store.create(kinds::secret(), "web", owned_by(&child, "grandchild"), &mut call).unwrap();
    delete(&mut store, "owner", None);
    assert_eq!(store.list(kinds::secret(), "", &Query::default()).unwrap().items.len(), 0);
}

#[test]
fn an_object_with_an_owner_left_stays_and_forgets_the_other() {
    let (mut store, mut call) = store();
    let one = store.create(kinds::secret(), "web", secret("one"), &mut call).unwrap();
    let two = store.create(kinds::secret(), "web", secret("two"), &mut call).unwrap();
    let mut child = owned_by(&one, "child");
    let other = owned_by(&two, "child")["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(other);
    store.create(kinds::secret(), "web", child, &mut call).unwrap();
    delete(&mut store, "one", None);
    let child = store.get(kinds::secret(), "web", "child").unwrap();
    let owners: Vec<_> = gc::owners(child).map(|owner| owner["name"].clone()).collect();
    assert_eq!(owners, ["two"]);
}

#[test]
fn orphans_stay_and_forget_their_owner() {
    let (mut store, mut call) = store();
    let owner = store.create(kinds::secret(), "web", secret("owner"), &mut call).unwrap();
    store.create(kinds::secret(), "web", owned_by(&owner, "child"), &mut call).unwrap();
    delete(&mut store, "owner", Some(Propagation::Orphan));
    assert!(store.get(kinds::secret(), "web", "owner").is_none());
    let child = store.get(kinds::secret(), "web", "child").unwrap();
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[test]
fn foreground_deletion_removes_the_owner_last() {
    let (mut store, mut call) = store();
    let owner = store.create(kinds::secret(), "web", secret("owner"), &mut call).unwrap();
    let mut child = owned_by(&owner, "child");
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    store.create(kinds::secret(), "web", child, &mut call).unwrap();
    delete(&mut store, "owner", Some(Propagation::Foreground));
    assert!(store.get(kinds::secret(), "web", "owner").is_some(), "it waits for its child");

    let before = store.version();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    store.patch(kinds::secret(), ("web", "child"), Part::Main, &release, &mut call).unwrap();
    store.collect_garbage(before, noon());
    let deleted = store.history().filter(|change| change.after.is_none());
    let order: Vec<_> = deleted.map(|change| &*change.name).collect();
    assert_eq!(order, ["child", "owner"]);
}

#[test]
fn an_object_created_for_a_missing_owner_is_deleted_and_one_of_an_unknown_kind_stays() {
    let (mut store, mut call) = store();
    let owner = store.create(kinds::secret(), "web", secret("owner"), &mut call).unwrap();
    delete(&mut store, "owner", None);
    let before = store.version();
    store.create(kinds::secret(), "web", owned_by(&owner, "late"), &mut call).unwrap();
    let mut foreign = owned_by(&owner, "foreign");
    foreign["metadata"]["ownerReferences"][0]["kind"] = "Pod".into();
    store.create(kinds::secret(), "web", foreign, &mut call).unwrap();
    store.collect_garbage(before, noon());
    assert_eq!(names(&store.list(kinds::secret(), "", &Query::default()).unwrap()), ["foreign"]);
}

#[test]
fn a_terminating_namespace_is_emptied_before_it_is_removed_and_accepts_nothing_new() {
    let (mut store, mut call) = store();
    let mut held = route("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    store.create(testing::route(), "web", held, &mut call).unwrap();
    store.create(kinds::secret(), "web", secret("a"), &mut call).unwrap();
    let before = store.version();
    store.delete(kinds::namespace(), ("", "web"), &options(None), &mut call).unwrap();
    store.collect_garbage(before, noon());
    let namespace = store.get(kinds::namespace(), "", "web").unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert!(store.get(kinds::secret(), "web", "a").is_none());
    let late = store.create(kinds::secret(), "web", secret("b"), &mut call);
    assert_eq!(reason(late), (403, "Forbidden"));

    let before = store.version();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    store.patch(testing::route(), ("web", "held"), Part::Main, &release, &mut call).unwrap();
    store.collect_garbage(before, noon());
    assert!(store.get(kinds::namespace(), "", "web").is_none());
    let absent = store.create(kinds::secret(), "web", secret("b"), &mut call);
    assert_eq!(reason(absent), (404, "NotFound"));
}

#[test]
fn the_namespaces_of_the_system_stay() {
    let (mut store, mut call) = store();
    let system = json!({ "metadata": { "name": "kube-system" } });
    store.create(kinds::namespace(), "", system, &mut call).unwrap();
    let place = ("", "kube-system");
    let error = store.delete(kinds::namespace(), place, &options(None), &mut call).unwrap_err();
    assert_eq!((error.code, error.reason), (403, "Forbidden"));
}
