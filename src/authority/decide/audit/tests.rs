use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time},
    jiff::Timestamp,
};

use super::*;
use crate::{
    authority::decide::testing::{federation, noon, web},
    runtime::printable::{HOSTILE, is_harmless},
};

fn entry(manager: &str, second: i64, subresource: Option<&str>) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Update".to_owned()),
        subresource: subresource.map(str::to_owned),
        time: Timestamp::from_second(second).ok().map(Time),
        ..ManagedFieldsEntry::default()
    }
}

#[test]
fn a_creation_and_each_change_of_the_spec_is_recorded_once_with_an_id_that_stays() {
    let mut one = federation("b.test", 1, web());
    let created = change(&one, noon()).unwrap();
    assert_eq!(created.event, "spiffe.federation.create");
    let again = change(&one, noon()).unwrap();
    assert_eq!(
        (again.event, &again.id),
        ("spiffe.federation.create", &created.id),
        "after a crash"
    );
    one.status.audited_generation = Some(1);
    assert_eq!(change(&one, noon()), None);
    one.metadata.generation = Some(2);
    let updated = change(&one, noon()).unwrap();
    assert_eq!(updated.event, "spiffe.federation.update");
    assert_ne!(updated.id, created.id);
}

#[test]
fn the_last_manager_of_the_spec_is_named_and_not_the_one_of_the_status() {
    let mut one = federation("b.test", 1, web());
    let fields = vec![
        entry("helm", 1, None),
        entry("kubectl-edit", 5, None),
        entry("trustplane", 9, Some("status")),
        entry("forged", noon().timestamp() + 3600, None),
    ];
    one.metadata.managed_fields = Some(fields);
    let by = change(&one, noon()).unwrap().changed_by.unwrap();
    assert_eq!((&*by.manager, &*by.operation), ("kubectl-edit", "Update"));
}

#[test]
fn texts_of_others_are_cut_and_escaped() {
    let mut one = federation("b.test", 1, web());
    one.metadata.managed_fields = Some(vec![entry(&HOSTILE.repeat(1_000), 1, None)]);
    let record = change(&one, noon()).unwrap();
    let line = serde_json::to_string(&record).unwrap();
    assert!(is_harmless(&line), "{line}");
    assert!(line.len() < 2_000, "{}", line.len());
}

#[test]
fn a_deletion_that_nobody_saw_is_recorded_from_what_was_noted() {
    let one = federation("b.test", 1, web());
    let noted = Audited::from_text(&Audited::of(&one).to_text()).unwrap();
    let record = deletion("b.test", &noted, noon());
    assert_eq!((record.event, &*record.trust_domain), ("spiffe.federation.delete", "b.test"));
    assert_eq!(record.id, deletion("b.test", &noted, noon() + chrono::TimeDelta::days(1)).id);
}

#[test]
fn a_rotation_has_both_sequences_and_the_ids_of_the_keys() {
    let one = federation("b.test", 1, web());
    let change = Rotation {
        old_sequence: Some("1".to_owned()),
        old_keys: vec!["x509:a".to_owned()],
        new_keys: vec!["x509:b".to_owned()],
        fingerprint: "f".to_owned(),
    };
    let record = serde_json::to_value(rotation(&one, &change, Some("2"), noon())).unwrap();
    assert_eq!(record["event"], "spiffe.federation.rotation");
    assert_eq!((&record["oldSequence"], &record["sequence"]), (&"1".into(), &"2".into()));
    assert_eq!(
        (&record["oldKeys"][0], &record["newKeys"][0]),
        (&"x509:a".into(), &"x509:b".into())
    );
    assert_eq!(record["source"], "https_web https://b.example/bundle");
}

#[test]
fn keys_that_come_back_and_go_again_are_another_rotation() {
    let mut one = federation("b.test", 1, web());
    let change = Rotation {
        old_sequence: None,
        old_keys: vec!["x509:a".to_owned()],
        new_keys: vec!["x509:b".to_owned()],
        fingerprint: "b".to_owned(),
    };
    one.status.fingerprint = Some("a".to_owned());
    one.status.current_bundle_synced_at = Some(noon());
    let id = |one: &SpiffeFederation, now| rotation(one, &change, None, now).id;
    let first = id(&one, noon());
    assert_eq!(id(&one, noon() + TimeDelta::minutes(5)), first, "after a crash");
    // Meanwhile it was b, and then a again.
    one.status.current_bundle_synced_at = Some(noon() + TimeDelta::minutes(10));
    assert_ne!(id(&one, noon() + TimeDelta::minutes(15)), first, "it would count as a repetition");
}

/// Our CAs with these phases.
fn own_state(sequence: u64, cas: &[(&str, Phase)]) -> AuthorityState {
    let ca = |(id, phase): &(&str, Phase)| {
        serde_json::json!({
            "id": id, "phase": phase, "chain": [], "longestSvid": 3600,
            "notBefore": noon(), "notAfter": noon(), "publishedAt": noon(), "usableAt": noon(),
        })
    };
    let cas: Vec<_> = cas.iter().map(ca).collect();
    let state = serde_json::json!({
        "trustDomain": "a.test", "sequence": sequence, "refreshHint": 300, "cas": cas,
    });
    serde_json::from_value(state).unwrap()
}

#[test]
fn the_first_ca_is_recorded_and_once_it_is_noted_nothing_is() {
    let state = own_state(1, &[("a", Phase::Active)]);
    let record = own(&AuditedOwn::default(), &state, noon()).unwrap();
    assert_eq!(record.event, "spiffe.authority.rotation");
    assert_eq!((&*record.new_keys, record.old_sequence), (&["a".to_owned()][..], None));
    let noted = AuditedOwn::from_text(&AuditedOwn::of(&state).to_text()).unwrap();
    assert_eq!(own(&noted, &state, noon()), None);
    assert_eq!(own(&noted, &own_state(2, &[("a", Phase::Active)]), noon()), None, "another hint");
}

#[test]
fn preparing_a_ca_and_activating_it_are_two_changes_and_each_keeps_its_id() {
    let first = AuditedOwn::of(&own_state(1, &[("a", Phase::Active)]));
    let prepared = own_state(2, &[("a", Phase::Active), ("b", Phase::Prepared)]);
    let activated = own_state(2, &[("a", Phase::Retiring), ("b", Phase::Active)]);
    let one = own(&first, &prepared, noon()).unwrap();
    let two = own(&AuditedOwn::of(&prepared), &activated, noon()).unwrap();
    assert_eq!((&*one.new_keys, &*two.new_keys), (&["b".to_owned()][..], &["b".to_owned()][..]));
    assert_ne!(one.id, two.id, "one of them would count as a repetition");
    let again = own(&first, &prepared, noon() + chrono::TimeDelta::hours(1)).unwrap();
    assert_eq!(one.id, again.id, "after a crash");
}

#[test]
fn a_removed_ca_is_recorded_as_a_revocation_only_if_that_was_asked_for() {
    let cas = [("a", Phase::Active), ("b", Phase::Prepared)];
    let before = AuditedOwn::of(&own_state(2, &cas));
    let mut state = own_state(3, &[("c", Phase::Active)]);
    let replaced = own(&before, &state, noon()).unwrap();
    assert_eq!(replaced.event, "spiffe.authority.rotation");
    assert_eq!(replaced.old_keys, ["a", "b"]);
    assert_eq!(replaced.old_sequence.as_deref(), Some("2"));
    state.handled.revoke = Some("a".to_owned());
    let revoked = own(&before, &state, noon()).unwrap();
    assert_eq!(revoked.event, "spiffe.authority.revocation");
    let later = own_state(4, &[("c", Phase::Active), ("d", Phase::Prepared)]);
    let later = AuthorityState { handled: state.handled.clone(), ..later };
    let prepared = own(&AuditedOwn::of(&state), &later, noon()).unwrap();
    assert_eq!(prepared.event, "spiffe.authority.rotation", "an old request is not a new one");
}

#[test]
fn however_many_federations_there_are_the_note_about_our_own_cas_fits_in() {
    let mut all = BTreeMap::new();
    let note = |number: usize| {
        let uid = format!("{number:036}");
        (format!("{number:0253}"), Audited { uid, trust_domain: "x".repeat(255) })
    };
    let fits = (0..10_000).map(note).take_while(|(name, it)| {
        let fits = has_room(&all, name, it);
        all.insert(name.clone(), it.clone());
        fits
    });
    let fits = fits.count();
    assert!((1000..1800).contains(&fits), "{fits}");
    let (name, known) = note(0);
    assert!(has_room(&all, &name, &known), "what is noted already stays");
    let other = Audited { uid: "another".to_owned(), ..known };
    assert!(!has_room(&all, &name, &other) && has_room(&BTreeMap::new(), &name, &other));
}
