use chrono::TimeDelta;

use super::*;
use crate::{
    authority::decide::{
        problem::Problem,
        sync::Policy,
        testing::{federation, fixed, noon, received, spiffe, web},
    },
    spiffe::testing::{Ca, document},
};

const POLICY: Policy = Policy { shortest_interval: TimeDelta::minutes(1) };

fn synced(source: BundleSource) -> SpiffeFederation {
    let mut federation = federation("b.test", 1, source);
    let answer = received(&document(&[&Ca::new("one")]).to_string());
    federation.status = sync::conclude(&federation, Ok(answer), &POLICY, 0.0, noon()).status;
    federation
}

fn annotated(mut federation: SpiffeFederation, name: &str, value: &str) -> SpiffeFederation {
    let annotations = federation.metadata.annotations.get_or_insert_default();
    annotations.insert(name.to_owned(), value.to_owned());
    federation
}

fn changed(mut federation: SpiffeFederation) -> SpiffeFederation {
    federation.metadata.generation = Some(2);
    federation
}

fn refused(mut federation: SpiffeFederation, fingerprint: &str) -> SpiffeFederation {
    federation.status.refused_fingerprint = Some(fingerprint.to_owned());
    federation
}

#[test]
fn however_long_its_texts_are_a_federation_takes_little_memory() {
    let long = "x".repeat(500_000);
    for source in [fixed(&long), spiffe("spiffe://b.test/server", Some(&long)), web()] {
        let mut federation = synced(source);
        if let Some(web) = &mut federation.spec.bundle_source.https_web {
            web.ca_bundle = Some(long.clone());
            web.pins = vec![long.clone()];
        }
        federation.status.current_bundle = Some(long.clone());
        federation.status.observed_refresh = Some(long.clone());
        federation.status.conditions[0].message = long.clone();
        let federation = annotated(federation, REFRESH_ANNOTATION, &long);
        let federation = annotated(federation, "notes.example", &long);
        let kept = serde_json::to_string(&Summary::of(&federation).outline).unwrap();
        assert!(kept.len() < 2000, "{} bytes", kept.len());
    }
}

#[test]
fn it_is_due_when_the_whole_federation_is() {
    let print = "ab".repeat(32);
    let long = format!("{print} {}", "x".repeat(5000));
    let failed = {
        let mut federation = synced(web());
        let problem = Err(Problem::NoneValid);
        federation.status = sync::conclude(&federation, problem, &POLICY, 0.0, noon()).status;
        federation
    };
    let federations = [
        federation("b.test", 1, web()),
        synced(web()),
        synced(fixed("a bundle")),
        synced(spiffe("spiffe://b.test/server", Some("a bundle"))),
        failed,
        changed(synced(web())),
        annotated(synced(web()), REFRESH_ANNOTATION, "now"),
        annotated(synced(web()), REFRESH_ANNOTATION, &long),
        annotated(refused(synced(web()), &print), ACCEPT_ANNOTATION, &print),
        annotated(refused(synced(web()), &print), ACCEPT_ANNOTATION, &long),
        annotated(refused(synced(web()), &print), ACCEPT_ANNOTATION, "another"),
    ];
    let mut found = Vec::new();
    for federation in &federations {
        let outline = Summary::of(federation).outline;
        for (eligible, seconds) in [(true, 0), (true, 301), (true, 100_000), (false, 0)] {
            let now = noon() + TimeDelta::seconds(seconds);
            let due = sync::due(federation, eligible, &POLICY, now);
            assert_eq!(sync::due(&outline, eligible, &POLICY, now), due, "{federation:?}");
            found.push(due);
        }
    }
    for reason in [sync::SyncReason::Requested, sync::SyncReason::Accepted] {
        let count = found.iter().filter(|due| **due == Due::Now(reason)).count();
        assert!(count >= 2, "{reason:?}: {found:?}");
    }
}

#[test]
fn a_request_that_was_carried_out_stays_so_however_long_it_is() {
    let long = "x".repeat(5000);
    let mut federation = annotated(synced(web()), REFRESH_ANNOTATION, &long);
    federation.status.observed_refresh = Some(long.clone());
    let due = |it: &SpiffeFederation| sync::due(&Summary::of(it).outline, true, &POLICY, noon());
    assert!(matches!(due(&federation), Due::At(_)));
    let other = annotated(federation, REFRESH_ANNOTATION, &format!("{}y", &long[1..]));
    assert_eq!(due(&other), Due::Now(sync::SyncReason::Requested));
}

#[test]
fn the_end_of_the_last_authority_is_known_without_the_bundle() {
    let federation = synced(web());
    let summary = Summary::of(&federation);
    let end = summary.expires_at.unwrap();
    assert!(!summary.has_expired(end) && summary.has_expired(end + TimeDelta::seconds(1)));
    assert!(sync::expired(&federation, end).is_none());
    assert!(sync::expired(&federation, end + TimeDelta::seconds(1)).is_some());
    assert_eq!(summary.next_look(Due::Never, noon()), Some(end));
    assert_eq!(summary.next_look(Due::At(noon()), noon()), Some(noon()));
    assert_eq!(summary.next_look(Due::Never, end), None);
}

#[test]
fn bundles_that_joins_are_judged_by_are_bounded_together() {
    let large = |name: &str| {
        let mut one = federation(name, 1, web());
        one.status.current_bundle = Some("x".repeat(500_000));
        one
    };
    let kept = |one: &SpiffeFederation| {
        let mut summary = Summary::of(one);
        summary.outline.status.current_bundle.clone_from(&one.status.current_bundle);
        summary
    };
    let mut known = Vec::new();
    for one in (0..1000).map(|number| large(&format!("peer{number}.test"))) {
        if !has_room(known.iter(), &one) {
            break;
        }
        known.push(kept(&one));
    }
    assert_eq!(known.len(), MOST_BUNDLES / 500_000);
    assert!(has_room(known.iter(), &large("peer0.test")), "it is there already");
    let mut small = federation("small.test", 1, web());
    small.status.current_bundle = Some("x".repeat(5_000));
    assert!(has_room(known.iter(), &small), "a large one is left out, and not all after it");
}
