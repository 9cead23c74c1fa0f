use rcgen::date_time_ymd;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{federated_trust_domain::FederatedTrustDomain, spire_server::PeerStatus},
    federate::decide::render::tests::server,
    spiffe::testing::{Ca, noon},
};

const RULES: ImportRules =
    ImportRules { max_age: Duration::from_secs(7 * 24 * 3_600), unlisted: false, older: false };

fn export(sequence: u64) -> Export {
    Export::new(Offer::of_td_b(&[&Ca::new("b")], json!(sequence)), noon())
}

/// A cluster of td-a.test whose SpireServer lists this trust domain, and which has this bundle of td-b.test.
fn facts(listed: &str, brought: Option<&Offer>) -> Facts {
    let server = server(json!({
        "bundleEndpoint": { "profile": "https_spiffe", "refreshHint": 60 },
        "federatesWith": [{
            "trustDomain": listed,
            "bundleEndpointUrl": "https://b.example",
            "bundleEndpointProfile": "https_spiffe",
            "endpointSpiffeId": format!("spiffe://{listed}/spire/server"),
        }],
        "managedRoute": "true",
    }));
    let existing = |offer: &Offer| -> FederatedTrustDomain {
        let object = json!({
            "metadata": { "name": "td-b.test" },
            "spec": {
                "trustDomain": "td-b.test",
                "bundleEndpointURL": "https://b.example",
                "bundleEndpointProfile": { "type": "https_spiffe" },
                "trustDomainBundle": offer.document,
            },
        });
        serde_json::from_value(object).unwrap()
    };
    Facts { server, existing: brought.into_iter().map(existing).collect() }
}

fn planned(export: &Export, facts: &Facts) -> Result<FileImportPlan, ImportError> {
    plan(export, facts, RULES, noon())
}

#[test]
fn what_was_exported_is_read_again_by_its_fingerprint_however_that_is_written() {
    let export = export(3);
    let (text, fingerprint) = (export.text(), export.fingerprint());
    assert_eq!(fingerprint.len(), 64 + 15, "groups of four: {fingerprint}");
    for written in [&*fingerprint, &fingerprint.replace(':', ""), &fingerprint.to_uppercase()] {
        let read = Export::read(text.as_bytes(), written).unwrap();
        assert_eq!(read.made_at, noon());
        assert_eq!(read.offer.document, export.offer.document);
        assert_eq!(read.fingerprint(), fingerprint);
    }
}

#[test]
fn nothing_in_a_file_can_be_changed_without_its_fingerprint() {
    let export = export(3);
    let file: Value = serde_json::from_str(&export.text()).unwrap();
    let other = Offer::of_td_b(&[&Ca::new("mallory")], json!(3)).document;
    for (field, value) in [
        ("trustDomain", json!("td-c.test")),
        ("bundleEndpointUrl", json!("https://mallory.example")),
        ("bundleEndpointProfile", json!("https_web")),
        ("endpointSpiffeId", json!("spiffe://td-b.test/mallory")),
        ("endpointSpiffeId", Value::Null),
        ("madeAt", json!("2030-06-15T12:00:01Z")),
        ("madeAt", json!("2030-06-15T12:00:00.5Z")),
        ("bundle", json!(other)),
    ] {
        let mut changed = file.clone();
        changed[field] = value;
        let read = Export::read(changed.to_string().as_bytes(), &export.fingerprint());
        assert_eq!(read.unwrap_err(), ImportError::Changed, "{field}");
    }
}

#[test]
fn a_file_in_the_place_of_another_is_refused_with_both_fingerprints() {
    let (right, swapped) = (export(3), export(3));
    let error = Export::read(swapped.text().as_bytes(), &right.fingerprint()).unwrap_err();
    let words = error.to_string();
    assert!(words.contains(&swapped.fingerprint()) && words.contains(&right.fingerprint()));
    // A part of the fingerprint is none.
    let begun = &right.fingerprint()[..19];
    for part in ["", begun] {
        assert!(Export::read(right.text().as_bytes(), part).is_err(), "{part}");
    }
}

#[test]
fn a_file_that_was_cut_is_told_wherever_it_was() {
    let export = export(3);
    let text = export.text();
    let text = text.trim_end();
    for end in 0..text.len() {
        let error = Export::read(&text.as_bytes()[..end], &export.fingerprint()).unwrap_err();
        assert_eq!(error, ImportError::Cut, "after {end} bytes");
    }
}

#[test]
fn what_is_no_export_is_told_from_one_of_another_version() {
    let read = |text: &str| Export::read(text.as_bytes(), "00").unwrap_err();
    assert_eq!(read("<html>"), ImportError::NotAnExport);
    assert_eq!(read(r#"{"keys": []}"#), ImportError::NotAnExport);
    assert_eq!(read(&json!({ "kind": KIND, "version": 2 }).to_string()), ImportError::OtherVersion);
    let more = export(3).text().replacen('{', r#"{"trustsToo": "td-c.test","#, 1);
    assert!(matches!(read(&more), ImportError::Malformed(_)));
    let twice = export(3).text().replacen('{', r#"{"bundle": "","#, 1);
    assert!(matches!(read(&twice), ImportError::Malformed(_)));
    assert_eq!(read(&" ".repeat(LONGEST + 1)), ImportError::TooLong);
}

#[test]
fn a_listed_peer_is_imported_and_importing_it_again_changes_nothing() {
    let export = export(3);
    let plan = planned(&export, &facts("td-b.test", None)).unwrap();
    assert!(matches!(plan.write, ImportPlan::Create { .. }), "{plan:?}");
    assert_eq!(plan.listing, Listing::Listed);
    let ImportPlan::Create { wanted, .. } = plan.write else { panic!("it is created") };
    let mut after = facts("td-b.test", Some(&export.offer));
    after.existing[0].spec = wanted;
    assert!(matches!(planned(&export, &after).unwrap().write, ImportPlan::Nothing));
    let newer = Export::new(Offer::of_td_b(&[&Ca::new("b, rotated")], json!(4)), noon());
    assert!(matches!(planned(&newer, &after).unwrap().write, ImportPlan::Change { .. }));
}

#[test]
fn a_foreign_file_is_refused() {
    let export = export(3);
    let foreign = facts("td-c.test", None);
    let error = planned(&export, &foreign).unwrap_err();
    assert!(error.to_string().contains("it lists td-c.test"), "{error}");
    let allowed = ImportRules { unlisted: true, ..RULES };
    let plan = plan(&export, &foreign, allowed, noon()).unwrap();
    assert_eq!(plan.listing, Listing::Unlisted);

    let mut own = facts("td-b.test", None);
    own.server.spec.trust_domain = "td-b.test".to_owned();
    let error = planned(&export, &own).unwrap_err();
    assert_eq!(error, ImportError::OwnTrustDomain("td-b.test".to_owned()));
}

#[test]
fn a_file_that_is_older_than_what_is_known_is_refused_unless_that_is_asked_for() {
    let newer = Offer::of_td_b(&[&Ca::new("b, rotated")], json!(4));
    let error = ImportError::OlderSequence { found: 3, known: 4 };
    let brought = facts("td-b.test", Some(&newer));
    assert_eq!(planned(&export(3), &brought).unwrap_err(), error);
    assert!(planned(&export(4), &brought).is_ok());
    // What trustplane federate fetched since counts, too.
    let mut fetched = facts("td-b.test", None);
    let trust_domain = "td-b.test".to_owned();
    let peer = PeerStatus { trust_domain, sequence: Some(4), ..PeerStatus::default() };
    fetched.server.status.federation = Some(crate::api::spire_server::FederationStatus {
        peers: vec![peer],
        ..Default::default()
    });
    assert_eq!(planned(&export(3), &fetched).unwrap_err(), error);
    let allowed = ImportRules { older: true, ..RULES };
    assert!(plan(&export(3), &fetched, allowed, noon()).is_ok());
}

#[test]
fn without_a_number_a_file_is_as_old_as_the_youngest_of_its_authorities() {
    let since = |year| Ca::with("b", |ca| ca.not_before = date_time_ymd(year, 1, 1));
    let (old, new) = (since(2028), since(2029));
    let of = |authorities: &[&Ca]| Export::new(Offer::of_td_b(authorities, Value::Null), noon());
    let brought = facts("td-b.test", Some(&of(&[&old, &new]).offer));
    let error = planned(&of(&[&old]), &brought).unwrap_err();
    assert!(matches!(error, ImportError::OlderAuthorities { .. }), "{error}");
    assert!(planned(&of(&[&new]), &brought).is_ok());
}

#[test]
fn a_file_of_another_time_is_refused() {
    let facts = facts("td-b.test", None);
    let at = |days: i64| plan(&export(3), &facts, RULES, noon() + TimeDelta::days(days));
    assert!(at(7).is_ok());
    let error = at(8).unwrap_err();
    assert!(error.to_string().contains("longer ago than 7days (--max-age)"), "{error}");
    let error = at(-1).unwrap_err();
    assert!(matches!(error, ImportError::FromTheFuture { .. }), "{error}");
}

#[test]
fn a_file_without_an_authority_that_is_valid_is_refused_even_if_older_ones_are_asked_for() {
    let ended = Ca::with("b", |ca| ca.not_after = date_time_ymd(2030, 1, 1));
    let early = Ca::with("b", |ca| ca.not_before = date_time_ymd(2031, 1, 1));
    let rules = ImportRules { older: true, unlisted: true, ..RULES };
    let of = |authorities: &[&Ca]| {
        let export = Export::new(Offer::of_td_b(authorities, json!(3)), noon());
        plan(&export, &facts("td-b.test", None), rules, noon()).unwrap_err()
    };
    assert!(matches!(of(&[&ended]), ImportError::Ended { .. }));
    assert!(matches!(of(&[&early, &ended]), ImportError::NotYetValid { .. }));
    assert_eq!(of(&[]), ImportError::NoAuthority);
}
