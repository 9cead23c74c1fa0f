use super::*;
use crate::{
    authority::decide::testing::{federation, fixed, noon, received, web},
    bundle::fetch::{FetchError, UrlError},
    spiffe::{bundle::BundleError, testing::Ca},
};
use std::{sync::LazyLock, time::Duration};

use crate::spiffe::bundle::write;

const POLICY: Policy = Policy { shortest_interval: TimeDelta::minutes(1) };

static CAS: LazyLock<[Ca; 2]> = LazyLock::new(|| [Ca::new("one"), Ca::new("two")]);

fn document(ca: usize, sequence: u64, hint: u64) -> String {
    write::document(&[CAS[ca].der()], sequence, Duration::from_secs(hint)).unwrap()
}

/// The federation after its status was written.
fn after(mut federation: SpiffeFederation, outcome: &Outcome) -> SpiffeFederation {
    federation.status = outcome.status.clone();
    federation
}

fn sync_at(
    federation: &SpiffeFederation,
    answer: Result<Received, Problem>,
    now: DateTime<Utc>,
) -> Outcome {
    conclude(federation, answer, &POLICY, 0.0, now)
}

fn synced(document: &str) -> SpiffeFederation {
    let federation = federation("b.test", 1, web());
    let outcome = sync_at(&federation, Ok(received(document)), noon());
    after(federation, &outcome)
}

fn condition(status: &SpiffeFederationStatus, about: &str) -> (String, String) {
    let found = status.conditions.iter().find(|it| it.r#type == about).unwrap();
    (found.status.to_string(), found.reason.to_string())
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn annotated(mut federation: SpiffeFederation, name: &str, value: &str) -> SpiffeFederation {
    federation
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(name.to_owned(), value.to_owned());
    federation
}

#[test]
fn a_new_federation_is_synced_at_once() {
    let federation = federation("b.test", 1, web());
    assert_eq!(due(&federation, true, &POLICY, noon()), Due::Now(SyncReason::SpecChanged));
}

#[test]
fn the_next_sync_follows_the_hint_and_a_new_leader_goes_on_from_the_status() {
    let federation = synced(&document(0, 1, 600));
    let next = noon() + TimeDelta::seconds(600);
    assert_eq!(federation.status.next_sync_at, Some(next));
    assert_eq!(due(&federation, true, &POLICY, noon()), Due::At(next));
    assert_eq!(due(&federation, true, &POLICY, next), Due::Now(SyncReason::Due));
}

#[test]
fn intervals_lie_between_the_shortest_and_a_day_and_are_five_minutes_without_a_hint() {
    let seconds = |hint: Option<i64>| interval(hint.map(TimeDelta::seconds), &POLICY).num_seconds();
    assert_eq!(
        [seconds(None), seconds(Some(0)), seconds(Some(59)), seconds(Some(61))],
        [300, 60, 60, 61]
    );
    assert_eq!(seconds(Some(365 * 86_400)), 86_400);
}

#[test]
fn jitter_comes_a_little_early_never_late_and_never_below_the_shortest() {
    let at = |seconds: i64, random: f64| {
        (next(noon(), TimeDelta::seconds(seconds), &POLICY, random) - noon()).num_seconds()
    };
    assert_eq!([at(600, 0.0), at(600, 1.0), at(60, 1.0)], [600, 540, 60]);
    assert_eq!([at(600, -5.0), at(600, f64::NAN)], [600, 600]);
}

#[test]
fn the_bundle_is_kept_verbatim_with_its_sequence_as_text() {
    let document = document(0, u64::MAX, 600);
    let federation = synced(&document);
    assert_eq!(federation.status.current_bundle.as_deref(), Some(&*document));
    assert_eq!(federation.status.sequence.as_deref(), Some("18446744073709551615"));
    assert_eq!(condition(&federation.status, TRUSTED), is("True", "BundleCurrent"));
}

#[test]
fn a_failure_keeps_the_last_bundle_and_waits_for_the_next_interval() {
    let federation = synced(&document(0, 1, 600));
    let now = noon() + TimeDelta::seconds(600);
    let outcome = sync_at(&federation, Err(Problem::Fetch(FetchError::Refused)), now);
    assert_eq!(outcome.status.current_bundle, federation.status.current_bundle);
    assert_eq!(outcome.status.current_bundle_synced_at, Some(noon()));
    assert_eq!(outcome.status.next_sync_at, Some(now + TimeDelta::seconds(600)));
    assert_eq!(condition(&outcome.status, SYNCED), is("False", "FetchFailed"));
    assert_eq!(condition(&outcome.status, TRUSTED), is("True", "BundleCurrent"));
    assert!(outcome.rotation.is_none());
    assert!(outcome.event.unwrap().is_ongoing);
}

#[test]
fn behind_a_redirect_a_fault_has_the_reason_that_it_has_without_one() {
    let behind = |cause: FetchError| {
        let redirected =
            FetchError::Redirected { to: "https://b.test/".to_owned(), cause: Box::new(cause) };
        Problem::Fetch(redirected).reason()
    };
    for cause in [
        FetchError::Bundle(BundleError::NoKeys),
        FetchError::NotText,
        FetchError::TooLong,
        FetchError::Refused,
        FetchError::NoSuchHost("b.test".to_owned()),
        FetchError::Status(500),
        FetchError::UnknownCa,
    ] {
        assert_eq!(behind(cause.clone()), Problem::Fetch(cause.clone()).reason(), "{cause}");
    }
    assert_eq!(behind(FetchError::Url(UrlError::NotHttps)), "EndpointNotVerified");
}

#[test]
fn without_a_bundle_a_failure_is_tried_again_soon_and_nothing_is_trusted() {
    let federation = federation("b.test", 1, web());
    let outcome = sync_at(&federation, Err(Problem::Fetch(FetchError::Refused)), noon());
    assert_eq!(outcome.status.next_sync_at, Some(noon() + TimeDelta::minutes(1)));
    assert_eq!(condition(&outcome.status, TRUSTED), is("False", "NoBundle"));
}

#[test]
fn a_failure_that_lasts_is_due_by_the_clock_and_not_at_once() {
    let before = federation("b.test", 1, web());
    let failed = after(before.clone(), &sync_at(&before, Err(Problem::Url), noon()));
    assert_eq!(due(&failed, true, &POLICY, noon()), Due::At(noon() + TimeDelta::minutes(1)));
}

#[test]
fn a_verified_bundle_without_keys_ends_trust_and_is_no_failure() {
    let federation = synced(&document(0, 1, 600));
    let empty = r#"{"keys":[],"spiffe_sequence":2,"spiffe_refresh_hint":600}"#;
    let outcome = sync_at(&federation, Ok(received(empty)), noon());
    assert_eq!(outcome.status.current_bundle.as_deref(), Some(empty));
    assert_eq!(condition(&outcome.status, SYNCED), is("True", "Synced"));
    assert_eq!(condition(&outcome.status, TRUSTED), is("False", "BundleEmpty"));
    let event = outcome.event.unwrap();
    assert_eq!((event.kind, event.reason), ("Warning", "TrustEnded"));
}

#[test]
fn a_lower_sequence_is_refused_and_told_and_the_last_bundle_stays() {
    let federation = synced(&document(0, 7, 600));
    let old = document(1, 6, 600);
    let outcome = sync_at(&federation, Ok(received(&old)), noon());
    assert_eq!(outcome.status.current_bundle, federation.status.current_bundle);
    assert_eq!(outcome.status.sequence.as_deref(), Some("7"));
    assert_eq!(condition(&outcome.status, SYNCED), is("False", "SequenceRefused"));
    let fingerprint = received(&old).bundle.fingerprint();
    assert_eq!(outcome.status.refused_fingerprint.as_deref(), Some(&*fingerprint));
    let note = outcome.event.unwrap().note;
    assert!(
        note.contains(&format!("trustplane spiffe accept b.test --fingerprint {fingerprint}")),
        "{note}"
    );
}

#[test]
fn an_accepted_fingerprint_is_taken_once_and_no_other() {
    let federation = synced(&document(0, 7, 600));
    let old = document(1, 6, 600);
    let refused = after(federation.clone(), &sync_at(&federation, Ok(received(&old)), noon()));
    let fingerprint = received(&old).bundle.fingerprint();
    let other = annotated(refused.clone(), ACCEPT_ANNOTATION, "0000:0000 now");
    assert!(matches!(due(&other, true, &POLICY, noon()), Due::At(_)));
    let accepted = annotated(refused, ACCEPT_ANNOTATION, &format!("{fingerprint} now"));
    assert_eq!(due(&accepted, true, &POLICY, noon()), Due::Now(SyncReason::Accepted));
    let taken = after(accepted.clone(), &sync_at(&accepted, Ok(received(&old)), noon()));
    assert_eq!(taken.status.sequence.as_deref(), Some("6"));
    assert_eq!(taken.status.refused_fingerprint, None);
    // The partner goes on, and somebody plays the old copy again.
    let newer = after(taken.clone(), &sync_at(&taken, Ok(received(&document(0, 9, 600))), noon()));
    let replayed = sync_at(&newer, Ok(received(&old)), noon());
    assert_eq!(condition(&replayed.status, SYNCED), is("False", "SequenceRefused"));
    assert!(matches!(due(&after(newer, &replayed), true, &POLICY, noon()), Due::At(_)));
}

#[test]
fn other_keys_under_the_same_sequence_are_taken_and_told() {
    let federation = synced(&document(0, 7, 600));
    let other = document(1, 7, 600);
    let outcome = sync_at(&federation, Ok(received(&other)), noon());
    assert_eq!(outcome.status.current_bundle.as_deref(), Some(&*other));
    let event = outcome.event.unwrap();
    assert_eq!((event.kind, event.reason), ("Warning", "SequenceNotRaised"));
    assert!(outcome.rotation.is_some());
}

#[test]
fn a_peer_that_leaves_its_sequence_out_does_not_get_a_lower_one_accepted_later() {
    let federation = synced(&document(0, 7, 600));
    let mut value: serde_json::Value = serde_json::from_str(&document(1, 7, 600)).unwrap();
    value.as_object_mut().unwrap().remove("spiffe_sequence");
    let without =
        after(federation.clone(), &sync_at(&federation, Ok(received(&value.to_string())), noon()));
    assert_eq!(condition(&without.status, SYNCED), is("True", "Synced"));
    let lower = sync_at(&without, Ok(received(&document(0, 6, 600))), noon());
    assert_eq!(condition(&lower.status, SYNCED), is("False", "SequenceRefused"));
}

#[test]
fn a_bundle_whose_authorities_have_all_expired_is_refused() {
    let federation = synced(&document(0, 1, 600));
    let late: DateTime<Utc> = "2036-01-01T00:00:00Z".parse().unwrap();
    let outcome = sync_at(&federation, Ok(received(&document(1, 2, 600))), late);
    assert_eq!(condition(&outcome.status, SYNCED), is("False", "NoValidAuthority"));
    assert_eq!(outcome.status.current_bundle, federation.status.current_bundle);
    assert_eq!(condition(&outcome.status, TRUSTED), is("False", "BundleExpired"));
}

#[test]
fn trust_ends_with_the_last_authority_though_nothing_was_fetched() {
    let federation = synced(&document(0, 1, 600));
    let end = expires_at(&federation.status).unwrap();
    assert_eq!(expired(&federation, end), None);
    let status = expired(&federation, end + TimeDelta::seconds(1)).unwrap();
    assert_eq!(condition(&status, TRUSTED), is("False", "BundleExpired"));
    assert_eq!(condition(&status, SYNCED), is("True", "Synced"));
}

#[test]
fn a_change_of_the_spec_and_each_request_are_carried_out_once() {
    let mut changed = synced(&document(0, 1, 600));
    changed.metadata.generation = Some(2);
    assert_eq!(due(&changed, true, &POLICY, noon()), Due::Now(SyncReason::SpecChanged));
    let asked = annotated(synced(&document(0, 1, 600)), REFRESH_ANNOTATION, "1");
    assert_eq!(due(&asked, true, &POLICY, noon()), Due::Now(SyncReason::Requested));
    let done = after(asked.clone(), &sync_at(&asked, Err(Problem::Url), noon()));
    assert!(matches!(due(&done, true, &POLICY, noon()), Due::At(_)));
}

#[test]
fn requests_in_a_loop_are_carried_out_every_ten_seconds_and_none_is_lost() {
    let asked = annotated(synced(&document(0, 1, 600)), REFRESH_ANNOTATION, "1");
    let done = after(asked.clone(), &sync_at(&asked, Err(Problem::Url), noon()));
    let again = annotated(done.clone(), REFRESH_ANNOTATION, "2");
    let soon = noon() + TimeDelta::seconds(10);
    assert_eq!(due(&again, true, &POLICY, noon()), Due::At(soon));
    assert_eq!(due(&again, true, &POLICY, soon), Due::Now(SyncReason::Requested));
    let ahead = noon() - TimeDelta::hours(1);
    assert_eq!(due(&again, true, &POLICY, ahead), Due::Now(SyncReason::Requested));
    // A sync without a new request does not put the next one off.
    let later = after(done.clone(), &sync_at(&done, Err(Problem::Url), soon));
    assert_eq!(later.status.observed_refresh_at, done.status.observed_refresh_at);
    // A static bundle is looked at again, too.
    let mut fixed = again;
    fixed.spec.bundle_source = crate::authority::decide::testing::fixed("{}");
    fixed.status.next_sync_at = None;
    assert_eq!(due(&fixed, true, &POLICY, noon()), Due::At(soon));
}

#[test]
fn a_static_bundle_is_taken_once_and_never_fetched() {
    let document = document(0, 1, 600);
    let before = federation("b.test", 1, fixed(&document));
    let outcome = sync_at(&before, Ok(received(&document)), noon());
    assert_eq!(outcome.status.next_sync_at, None);
    assert_eq!(
        due(&after(before, &outcome), true, &POLICY, noon() + TimeDelta::days(99)),
        Due::Never
    );
}

#[test]
fn a_federation_that_does_not_count_loses_its_bundle_and_gets_one_when_it_counts_again() {
    let federation = synced(&document(0, 1, 600));
    assert_eq!(due(&federation, false, &POLICY, noon()), Due::Now(SyncReason::EligibilityChanged));
    let problem = Problem::Duplicate { of: "a".to_owned() };
    let refused = after(federation.clone(), &sync_at(&federation, Err(problem), noon()));
    assert_eq!(refused.status.current_bundle, None);
    assert_eq!(condition(&refused.status, TRUSTED), is("False", "NoBundle"));
    assert_eq!(due(&refused, false, &POLICY, noon()), Due::Never);
    assert_eq!(due(&refused, true, &POLICY, noon()), Due::Now(SyncReason::EligibilityChanged));
}

#[test]
fn who_asks_for_a_federation_that_does_not_count_is_told_so() {
    let refused = |it: &SpiffeFederation| {
        let problem = Problem::Duplicate { of: "a".to_owned() };
        after(it.clone(), &sync_at(it, Err(problem), noon()))
    };
    let asked = annotated(refused(&federation("b.test", 1, web())), REFRESH_ANNOTATION, "1");
    assert_eq!(due(&asked, false, &POLICY, noon()), Due::Now(SyncReason::Requested));
    let told = refused(&asked);
    assert_eq!(told.status.observed_refresh.as_deref(), Some("1"));
    assert_eq!(due(&told, false, &POLICY, noon()), Due::Never);
    let again = annotated(told, REFRESH_ANNOTATION, "2");
    let soon = noon() + TimeDelta::seconds(10);
    assert_eq!(due(&again, false, &POLICY, noon()), Due::At(soon));
}

#[test]
fn an_unchanged_bundle_is_no_news() {
    let federation = synced(&document(0, 1, 600));
    let outcome =
        sync_at(&federation, Ok(received(&document(0, 1, 600))), noon() + TimeDelta::minutes(10));
    assert_eq!((outcome.event, outcome.rotation, outcome.result), (None, None, "unchanged"));
}

#[test]
fn a_rotation_names_the_keys_of_before_and_after() {
    let federation = synced(&document(0, 1, 600));
    let outcome = sync_at(&federation, Ok(received(&document(1, 2, 600))), noon());
    let rotation = outcome.rotation.unwrap();
    assert_eq!(rotation.old_sequence.as_deref(), Some("1"));
    assert_eq!(rotation.old_keys, key_ids(&document(0, 1, 600)));
    assert_eq!(rotation.new_keys, key_ids(&document(1, 2, 600)));
    assert_ne!(rotation.old_keys, rotation.new_keys);
}

#[test]
fn a_time_that_a_fast_clock_wrote_does_not_stop_the_syncs() {
    let mut federation = synced(&document(0, 1, 600));
    federation.status.next_sync_at = Some(noon() + TimeDelta::hours(24));
    assert_eq!(due(&federation, true, &POLICY, noon()), Due::Now(SyncReason::Due));
}

#[test]
fn a_document_that_grows_too_large_when_it_is_stored_is_refused() {
    let federation = synced(&document(0, 1, 600));
    let padding = "<".repeat(200 * 1024);
    let large = document(1, 2, 600).replacen('{', &format!("{{\"padding\":\"{padding}\","), 1);
    let outcome = sync_at(&federation, Ok(received(&large)), noon());
    assert_eq!(condition(&outcome.status, SYNCED), is("False", "InvalidBundle"));
    assert_eq!(outcome.status.current_bundle, federation.status.current_bundle);
}

#[test]
fn a_static_bundle_that_is_not_valid_yet_is_looked_at_again() {
    let document = document(0, 1, 600);
    let before = federation("b.test", 1, fixed(&document));
    let early: DateTime<Utc> = "2024-12-31T00:00:00Z".parse().unwrap();
    let outcome = sync_at(&before, Ok(received(&document)), early);
    assert_eq!(condition(&outcome.status, SYNCED), is("False", "NoValidAuthority"));
    assert!(outcome.status.next_sync_at.is_some());
}

#[test]
fn a_request_of_any_length_leaves_room_in_the_status() {
    let long = "\u{1}".repeat(120_000);
    let asked = annotated(synced(&document(0, 1, 300)), REFRESH_ANNOTATION, &long);
    let asked = annotated(asked, ACCEPT_ANNOTATION, &long);
    let is_asked = |it: &SpiffeFederation| due(it, true, &POLICY, noon());
    assert_eq!(is_asked(&asked), Due::Now(SyncReason::Requested));
    let outcome = sync_at(&asked, Ok(received(&document(0, 1, 300))), noon());
    let status = serde_json::to_string(&outcome.status).unwrap();
    assert!(status.len() < 5000, "{} bytes", status.len());
    assert!(matches!(is_asked(&after(asked, &outcome)), Due::At(_)), "it is carried out once");
}
