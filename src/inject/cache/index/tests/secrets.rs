//! What is known of a Secret without a read.

use super::*;

#[test]
fn where_watch_and_server_differ_and_nobody_knows_who_is_behind_the_secret_is_read_again() {
    let (mut index, now) = knowing(&[route("1")]);
    let (asked, shops) = (now + seconds(1), route("1"));
    index.event(&secret(), "1", now);
    index.secret_read(&secret(), Some(&read("2", usable())), asked, asked);
    assert_eq!(known(&index, &shops), KnownSecret::State(usable()), "it asked later");
    assert_eq!(index.event(&secret(), "1", asked), [shop()], "whatever the watch says is news");
    // The watch brings 3 while a read is under way that was asked before and answers with 2.
    index.event(&secret(), "3", asked + seconds(1));
    index.secret_read(&secret(), Some(&read("2", usable())), asked, asked + seconds(2));
    assert_eq!(known(&index, &shops), KnownSecret::Unread);
    index.event(&secret(), "3", asked + seconds(3));
    index.secret_read(&secret(), None, asked, asked + seconds(3));
    assert_eq!(known(&index, &shops), KnownSecret::Unread, "a late 404 is none");
    index.secret_read(&secret(), None, asked, asked + seconds(4));
    assert_eq!(known(&index, &shops), KnownSecret::Unread, "nor is a second one");
}

#[test]
fn an_unusable_secret_is_known_to_a_route_until_one_of_the_two_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    let shops = route("1");
    index.event(&secret(), "1", now);
    assert_eq!(known(&index, &shops), KnownSecret::Unread, "only the watch told of it");
    index.secret_read(&secret(), Some(&read("1", opaque())), now + seconds(1), now + seconds(1));
    assert_eq!(known(&index, &shops), KnownSecret::State(opaque()));
    index.route_written(route("2").facts(), Origin::OwnPair, now + seconds(2));
    assert_eq!(known(&index, &shops), KnownSecret::State(opaque()), "that was us");
    index.applied(changed("3").facts(), now + seconds(2));
    let fixed = known(&index, &changed("3"));
    assert_eq!(fixed, KnownSecret::Unread, "a user who fixed it first must not hear of it");
}

#[test]
fn a_change_is_timed_from_the_secret_only_if_the_route_did_not_change_after_it() {
    let (mut index, now) = knowing(&[route("1")]);
    let facts = || route("1").facts();
    index.secret_applied(&secret(), revision("1"), Arrival::FirstList, now + seconds(1));
    assert_eq!(index.caused_by_secret(&facts()), None, "a list is no change");
    index.event(&secret(), "2", now + seconds(1));
    assert_eq!(index.caused_by_secret(&facts()), Some(now + seconds(1)));
    index.applied(changed("2").facts(), now + seconds(2));
    assert_eq!(index.caused_by_secret(&facts()), None);
    assert_eq!(index.caused_by_secret(&Draft::edge().facts()), None);
}

/// A Route with the pair of this version of the Secret, as we leave it.
fn injected(secret_version: &str, route_version: &str) -> Draft {
    route(route_version).holding("certificate", "key").marked().from("s-1", secret_version)
}

#[test]
fn a_route_that_was_listed_with_the_secrets_version_is_up_to_date_without_a_read() {
    let now = Instant::now();
    let mut index = Index::default();
    index.route_applied(injected("7", "1").facts(), Origin::FirstList, now);
    let known = |index: &Index| known(index, &injected("7", "1"));
    assert_eq!(known(&index), KnownSecret::Unread, "nobody has told of the Secret yet");
    let concerned = index.secret_applied(&secret(), revision("7"), Arrival::FirstList, now);
    assert_eq!(concerned, [shop()]);
    assert_eq!(known(&index), KnownSecret::State(usable()));
    index.event(&secret(), "8", now);
    assert_eq!(known(&index), KnownSecret::Unread);
    index.secret_applied(&secret(), Revision::of("s-2", "7"), Arrival::Event, now);
    assert_eq!(known(&index), KnownSecret::Unread, "another Secret of the same name");
}

#[test]
fn a_foreign_change_of_pair_note_or_annotations_costs_a_read_and_our_own_write_does_not() {
    let start = |change: &Draft, origin| {
        let now = Instant::now();
        let mut index = Index::default();
        index.route_applied(injected("6", "1").facts(), Origin::FirstList, now);
        index.event(&secret(), "7", now);
        match origin {
            Origin::OwnPair => index.route_written(change.facts(), origin, now),
            _ => drop(index.applied(change.facts(), now)),
        }
        known(&index, change)
    };
    // An editor of the Route could fit all of it to a pair of their own.
    let forged = injected("7", "2");
    assert_eq!(start(&forged, Origin::Server), KnownSecret::Unread);
    assert_eq!(start(&forged, Origin::OwnPair), KnownSecret::State(usable()));

    let (mut index, now) = knowing(&[injected("7", "1")]);
    index.event(&secret(), "7", now);
    let later = known(&index, &injected("7", "1"));
    assert_eq!(later, KnownSecret::Unread, "a Route that turns up later may have been edited");
}

#[test]
fn what_does_not_touch_the_pair_leaves_a_route_as_trusted_as_it_was() {
    let now = Instant::now();
    let mut index = Index::default();
    index.route_applied(injected("7", "1").facts(), Origin::FirstList, now);
    index.event(&secret(), "7", now);
    let moved = injected("7", "2").with("/spec", "host", serde_json::json!("other.example.com"));
    assert!(index.applied(moved.facts(), now).is_some());
    assert_eq!(known(&index, &moved), KnownSecret::State(usable()));
}

#[test]
fn every_secret_is_doubted_in_one_part_of_the_day_and_read_before_it_is_believed_again() {
    let routes: Vec<_> = (0..50)
        .map(|number| {
            route("1").named("web", &format!("shop-{number}")).annotated(&format!("tls-{number}"))
        })
        .collect();
    let (mut index, now) = knowing(&routes);
    for draft in &routes {
        let at = draft.facts().secret().unwrap();
        index.secret_read(&at, Some(&read("1", usable())), now, now);
    }
    let mut doubted: Vec<_> = (0..10).flat_map(|part| index.mark_unverified(part, 10)).collect();
    for draft in &routes {
        let facts = draft.facts();
        assert_eq!(index.known_secret(&facts, &facts.secret().unwrap()), KnownSecret::Unread);
    }
    doubted.sort();
    let all: Vec<_> = sorted(routes.iter().map(|draft| draft.facts().at).collect());
    assert_eq!(doubted, all, "each once");
}

#[test]
fn a_pair_is_checked_with_the_routes_own_ca_certificate_once() {
    let with_ca = |version: &str, ca: &str| {
        route(version).with("/spec/tls", "caCertificate", serde_json::json!(ca)).facts()
    };
    let (mut index, now) = knowing(&[route("1")]);
    let pair = Fingerprint::of("certificate", "key");
    assert_eq!(index.ca_problems(&route("1").facts(), pair), Some(Box::default()), "no such text");
    index.applied(with_ca("2", "one"), now);
    assert_eq!(index.ca_problems(&with_ca("2", "one"), pair), None);
    let problems: Box<[_]> = Box::new([Problem::KeyMismatch]);
    index.ca_checked(&with_ca("2", "one"), pair, problems.clone());
    assert_eq!(index.ca_problems(&with_ca("2", "one"), pair), Some(problems));
    assert_eq!(index.ca_problems(&with_ca("2", "one"), Fingerprint::of("other", "key")), None);
    index.applied(with_ca("3", "two"), now);
    assert_eq!(index.ca_problems(&with_ca("3", "two"), pair), None);
}
