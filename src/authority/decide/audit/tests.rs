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
fn preparing_a_ca_and_activating_it_are_two_changes() {
    let ca = || Some("5b0c".to_owned());
    let prepared = own("a.test", &Changed { prepared: ca(), ..Changed::default() }, 2, noon());
    let activated = own("a.test", &Changed { activated: ca(), ..Changed::default() }, 2, noon());
    assert_eq!(prepared.new_keys, activated.new_keys);
    assert_ne!(prepared.id, activated.id, "one of them would count as a repetition");
}
