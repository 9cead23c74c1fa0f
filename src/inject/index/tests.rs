//! What the index answers to what the watches may bring, in whatever order.

use super::*;
use crate::{
    inject::facts::tests::Draft,
    kit::watch::Unseen,
    tls::{PairFacts, Validity},
};

fn at(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new(namespace, name)
}

fn shop() -> ObjectRef {
    at("web", "shop")
}

fn secret() -> ObjectRef {
    at("web", "shop-tls")
}

fn route(version: &str) -> Draft {
    Draft::edge().annotated("shop-tls").version(version)
}

/// As `route`, but with something in it that only this version has.
fn changed(version: &str) -> Draft {
    route(version).holding("certificate of", version)
}

fn pair(key: &str) -> PairFacts {
    let time: chrono::DateTime<chrono::Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    let validity = Validity { not_before: time, not_after: time };
    PairFacts::pretended(("certificate", key), &[], validity)
}

fn usable(serial: &str) -> SecretSeen {
    SecretSeen::Usable(pair(serial))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// An index that knows these Routes, and the time at which it got to know them.
fn knowing(drafts: &[Draft]) -> (Index, Instant) {
    let (mut index, now) = (Index::default(), Instant::now());
    for draft in drafts {
        assert!(index.route_applied(draft.facts(), now).is_some(), "a new Route is to be decided");
    }
    (index, now)
}

fn sorted(mut places: Vec<ObjectRef>) -> Vec<ObjectRef> {
    places.sort();
    places
}

fn version(index: &Index, at: &ObjectRef) -> String {
    index.route(at).unwrap().version.into()
}

#[test]
fn a_secret_that_a_hundred_routes_share_concerns_each_of_them_and_no_namesake_elsewhere() {
    let routes: Vec<_> =
        (0..100).map(|number| route("1").named("web", &format!("shop-{number:02}"))).collect();
    let (mut index, now) = knowing(&routes);
    index.route_applied(route("1").named("other", "shop").facts(), now);
    index.route_applied(route("1").named("web", "aside").annotated("aside-tls").facts(), now);

    let expected: Vec<_> = routes.iter().map(|draft| draft.facts().at).collect();
    assert_eq!(sorted(index.secret_applied(secret(), usable("1"), None)), expected);
    assert_eq!(sorted(index.secret_applied(secret(), usable("2"), None)), expected);
    assert_eq!(sorted(index.secret_gone(&secret())), expected);
    let elsewhere = index.secret_applied(at("other", "shop-tls"), usable("1"), None);
    assert_eq!(elsewhere, [at("other", "shop")]);
    assert_eq!(index.all().len(), 102);
}

#[test]
fn a_secret_that_nobody_asks_for_concerns_nobody() {
    let (mut index, _) = knowing(&[route("1")]);
    assert_eq!(index.secret_applied(at("web", "aside-tls"), usable("1"), None), []);
    assert_eq!(index.secret_gone(&at("web", "aside-tls")), []);
    assert_eq!(index.secret_gone(&at("web", "never-seen")), []);
}

#[test]
fn a_change_of_labels_alone_concerns_nobody() {
    let (mut index, _) = knowing(&[route("1")]);
    assert_eq!(index.secret_applied(secret(), usable("1"), None), [shop()]);
    assert_eq!(index.secret_applied(secret(), usable("1"), Some(Instant::now())), []);
    assert_eq!(index.secret(&secret()), Some(&usable("1")));
}

#[test]
fn a_route_that_moves_to_another_secret_hears_of_that_one_only() {
    let (mut index, now) = knowing(&[route("1")]);
    assert!(index.route_applied(route("2").annotated("new-tls").facts(), now).is_some());
    assert_eq!(index.secret_applied(secret(), usable("1"), None), []);
    assert_eq!(index.secret_applied(at("web", "new-tls"), usable("1"), None), [shop()]);
    assert!(index.route_applied(route("3").annotated("").facts(), now).is_some());
    assert_eq!(index.secret_applied(at("web", "new-tls"), usable("2"), None), []);
}

#[test]
fn a_route_that_changes_in_nothing_that_matters_is_not_decided_anew() {
    let (mut index, now) = knowing(&[route("1")]);
    let labelled = route("2").with("/metadata", "labels", serde_json::json!({ "a": "b" }));
    assert!(index.route_applied(labelled.facts(), now).is_none());
    assert_eq!(version(&index, &shop()), "2", "the next write carries the new version");
}

#[test]
fn a_route_that_is_gone_is_forgotten_with_what_it_asked_for() {
    let (mut index, _) = knowing(&[route("1")]);
    index.route_gone(&shop());
    index.route_gone(&shop());
    assert_eq!(index.route(&shop()), None);
    assert_eq!(index.secret_applied(secret(), usable("1"), None), []);
    assert_eq!(index.all(), []);
}

#[test]
fn a_route_that_was_made_anew_under_the_same_name_starts_afresh() {
    let (mut index, now) = knowing(&[route("5")]);
    index.settled(&shop(), Some(State::Managed), Reason::SecretInjected);
    assert_eq!(index.states().len(), 1);
    assert!(index.route_applied(route("9").uid("4712").facts(), now).is_some());
    assert_eq!(index.states().len(), 0, "what the old one was says nothing of the new one");
    assert_eq!(index.secret_applied(secret(), usable("1"), None), [shop()]);
}

#[test]
fn the_answer_to_a_write_does_not_bring_a_deleted_or_an_older_incarnation_back() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_applied(route("9").uid("4712").facts(), now);
    index.route_written(changed("6").facts(), now);
    assert_eq!(&*index.route(&shop()).unwrap().uid, "4712");
    index.route_gone(&shop());
    index.route_written(changed("10").uid("4712").facts(), now);
    assert_eq!(index.route(&shop()), None);
}

#[test]
fn deletes_that_a_relist_swallowed_are_found_in_all_namespaces() {
    let (mut index, _) =
        knowing(&[route("1"), route("1").named("web", "lost"), route("1").named("other", "lost")]);
    index.secret_applied(secret(), usable("1"), None);
    let mut unseen = Unseen::default();
    unseen.expect(index.routes_of(&None));
    unseen.came(&shop());
    let lost = unseen.rest();
    assert_eq!(lost, [at("other", "lost"), at("web", "lost")]);
    for at in &lost {
        index.route_gone(at);
    }
    assert_eq!(index.all(), [shop()]);
    assert_eq!(index.secret_gone(&secret()), [shop()], "the lost ask no longer");
}

#[test]
fn a_relist_of_one_namespace_says_nothing_of_the_others() {
    let (mut index, _) = knowing(&[route("1"), route("1").named("other", "shop")]);
    index.secret_applied(secret(), usable("1"), None);
    index.secret_applied(at("other", "shop-tls"), usable("1"), None);
    let web: Scope = Some("web".into());
    let secrets: Vec<_> = index.secrets_of(&web).collect();
    assert_eq!(secrets, [secret()]);
    assert_eq!(index.secrets_listed(&web, &secrets), [shop()]);
    assert_eq!(index.secret(&at("other", "shop-tls")), Some(&usable("1")));
    assert_eq!(index.routes_of(&web).collect::<Vec<_>>(), [shop()]);
}

#[test]
fn a_secret_that_a_relist_does_not_bring_concerns_its_routes_and_one_that_it_brings_does_not() {
    let (mut index, _) = knowing(&[route("1"), route("1").annotated("kept").named("web", "kept")]);
    index.secret_applied(secret(), usable("1"), None);
    index.secret_applied(at("web", "kept"), usable("2"), None);
    assert_eq!(index.secrets_listed(&None, &[secret()]), [shop()]);
    assert_eq!(index.secret(&secret()), None);
}

#[test]
fn a_secret_that_came_and_went_while_its_watch_was_down_concerns_its_routes() {
    let (mut index, _) = knowing(&[route("1")]);
    // No event told of it, but a turn that asked the API server may have injected its pair.
    assert_eq!(index.secrets_listed(&None, &[]), [shop()]);
    assert_eq!(index.secret_gone(&secret()), [shop()], "and so does a word of its end");
}

#[test]
fn a_route_that_was_read_again_and_comes_back_as_it_was_before_is_a_change() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_looked_at(changed("6").facts(), now);
    assert!(
        index.route_applied(route("7").facts(), now).is_some(),
        "decided from 6, and 7 is not 6"
    );
}

#[test]
fn a_route_that_was_read_before_the_watch_brought_something_newer_is_not_kept() {
    let (mut index, now) = knowing(&[route("9")]);
    index.route_looked_at(changed("6").facts(), now);
    assert_eq!(version(&index, &shop()), "9");
}

#[test]
fn what_stood_there_before_our_own_write_is_not_decided_from_when_the_watch_brings_it_late() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), now);
    for late in ["5", "6", "8"] {
        assert!(index.route_applied(changed(late).facts(), now).is_none(), "version {late}");
        assert_eq!(version(&index, &shop()), "9");
    }
    assert!(index.route_applied(changed("9").facts(), now).is_none(), "our own write comes back");
}

#[test]
fn our_own_write_and_what_was_before_it_are_known_without_being_read() {
    let (mut index, now) = knowing(&[route("5")]);
    let uid = index.route(&shop()).unwrap().uid;
    let mut echo = |version: &str, now| index.is_echo(&shop(), &uid, version, now);
    assert!(!echo("5", now), "nothing was written: whatever comes is to be read");
    index.route_written(changed("9").facts(), now);
    let mut echo = |version: &str, now| index.is_echo(&shop(), &uid, version, now);
    assert!(!echo("9", now + seconds(30)), "too late to be sure");
    assert!(echo("6", now));
    assert!(!echo("10", now), "somebody else wrote after us");
    assert!(echo("9", now));
    assert!(!echo("9", now), "our own write comes back once");
}

#[test]
fn a_route_that_was_made_anew_is_read_whatever_its_version() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), now);
    assert!(!index.is_echo(&shop(), "another uid", "9", now));
    assert!(!index.is_echo(&at("web", "unknown"), "4711", "9", now));
}

#[test]
fn a_route_and_its_secret_share_the_text_of_the_name_whichever_comes_first() {
    let shared = |index: &Index| {
        let wanted = index.route(&shop()).unwrap().secret().unwrap();
        let (known, _) = index.secrets.get_key_value(&secret()).unwrap();
        Arc::ptr_eq(&wanted.name, &known.name) && Arc::ptr_eq(&wanted.namespace, &known.namespace)
    };
    let (mut index, now) = knowing(&[route("1")]);
    index.secret_applied(secret(), usable("1"), None);
    assert!(shared(&index));
    index.route_applied(changed("2").facts(), now);
    assert!(shared(&index), "and still do when the Route changes");

    let mut index = Index::default();
    index.secret_applied(secret(), usable("1"), None);
    index.route_applied(route("1").facts(), now);
    assert!(shared(&index));
}

#[test]
fn what_is_in_one_namespace_shares_its_name_until_nothing_is_in_it() {
    let (mut index, now) = knowing(&[route("1"), route("1").named("web", "blog").annotated("")]);
    index.secret_applied(at("web", "aside-tls"), usable("1"), None);
    let [one, other] = ["shop", "blog"].map(|name| index.route(&at("web", name)).unwrap().at);
    let (aside, _) = index.secrets.get_key_value(&at("web", "aside-tls")).unwrap();
    assert!(Arc::ptr_eq(&one.namespace, &other.namespace));
    assert!(Arc::ptr_eq(&one.namespace, &aside.namespace));
    drop((one, other));

    for name in ["shop", "blog"] {
        index.route_gone(&at("web", name));
    }
    index.tidy(now);
    assert_eq!(index.namespaces.len(), 1, "there is a Secret in it");
    index.secret_gone(&at("web", "aside-tls"));
    index.tidy(now);
    assert!(index.namespaces.is_empty());
}

#[test]
fn a_route_keeps_the_text_of_its_uid_while_it_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    let uid = index.route(&shop()).unwrap().uid;
    index.route_applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), now);
    assert!(Arc::ptr_eq(&uid, &index.route(&shop()).unwrap().uid));
}

#[test]
fn a_route_that_has_to_be_decided_is_named_with_the_texts_that_are_kept_anyway() {
    let (mut index, now) = knowing(&[route("1")]);
    let (kept, _) = index.routes.get_key_value(&shop()).unwrap();
    let kept = kept.clone();
    let changed = index.route_applied(changed("2").facts(), now).unwrap();
    let renewed = index.secret_applied(secret(), usable("1"), None);
    for named in [&changed, &renewed[0]] {
        assert!(Arc::ptr_eq(&named.name, &kept.name), "{named}");
        assert!(Arc::ptr_eq(&named.namespace, &kept.namespace), "{named}");
    }
}

#[test]
fn versions_are_compared_as_numbers_not_as_texts() {
    let (mut index, now) = knowing(&[route("98")]);
    index.route_written(changed("100").facts(), now);
    assert!(index.route_applied(changed("99").facts(), now).is_none());
    assert!(index.route_applied(changed("1000").facts(), now).is_some());
}

#[test]
fn a_newer_version_wins_over_our_own_write() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), now);
    assert!(index.route_applied(changed("10").facts(), now).is_some());
    assert_eq!(version(&index, &shop()), "10");
}

#[test]
fn once_our_own_write_came_back_whatever_the_watch_says_holds() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), now);
    index.route_applied(changed("9").facts(), now);
    assert!(
        index.route_applied(changed("3").facts(), now).is_some(),
        "a restored etcd counts from before"
    );
}

#[test]
fn versions_that_are_no_numbers_are_taken_as_the_watch_brings_them() {
    let (mut index, now) = knowing(&[route("a")]);
    index.route_written(changed("c").facts(), now);
    assert!(index.route_applied(changed("b").facts(), now).is_some());
    assert_eq!(version(&index, &shop()), "b");
}

#[test]
fn after_half_a_minute_an_older_version_is_taken_for_a_restored_etcd() {
    let (mut index, now) = knowing(&[route("500")]);
    index.route_written(changed("900").facts(), now);
    let soon = now + seconds(30) - Duration::from_millis(1);
    assert!(index.route_applied(changed("7").facts(), soon).is_none());
    assert!(index.route_applied(changed("7").facts(), now + seconds(30)).is_some());
    assert_eq!(version(&index, &shop()), "7");
}

#[test]
fn another_incarnation_is_never_taken_for_an_echo() {
    let (mut index, now) = knowing(&[route("500")]);
    index.route_written(changed("900").facts(), now);
    assert!(index.route_applied(route("7").uid("4712").facts(), now).is_some());
}

#[test]
fn a_secret_is_missing_since_it_was_first_found_to_be_until_it_is_seen() {
    let (mut index, noon) = knowing(&[route("1")]);
    assert_eq!(index.secret_missing(&secret(), noon), seconds(0));
    assert_eq!(index.secret_missing(&secret(), noon + seconds(7)), seconds(7));
    index.secret_found(&secret());
    assert_eq!(
        index.secret_missing(&secret(), noon + seconds(7)),
        seconds(0),
        "of another type, say"
    );
    index.secret_applied(secret(), usable("1"), None);
    index.secret_gone(&secret());
    let again = index.secret_missing(&secret(), noon + seconds(14));
    assert_eq!(again, seconds(0), "deleted again: a new grace");
}

#[test]
fn a_missing_secret_that_nobody_asks_for_any_more_is_forgotten() {
    let (mut index, noon) = knowing(&[route("1")]);
    index.secret_missing(&secret(), noon);
    index.route_gone(&shop());
    assert!(index.missing.is_empty());
}

#[test]
fn the_states_count_routes_and_forget_those_that_are_gone() {
    let (mut index, _) = knowing(&[
        route("1"),
        route("1").named("web", "second"),
        Draft::plain().named("web", "plain"),
    ]);
    assert!(index.states().is_empty(), "nothing is known before the first decision");
    index.settled(&shop(), Some(State::Managed), Reason::SecretInjected);
    index.settled(&at("web", "second"), Some(State::Managed), Reason::SecretInjected);
    index.settled(&at("web", "plain"), None, Reason::RouteNotSecured);
    index.settled(&at("web", "unknown"), None, Reason::RouteNotSecured);
    let managed = (Some(State::Managed), Reason::SecretInjected);
    let expected = HashMap::from([(managed, 2), ((None, Reason::RouteNotSecured), 1)]);
    assert_eq!(index.states(), expected);
    index.route_gone(&at("web", "second"));
    assert_eq!(index.states()[&managed], 1);
}

#[test]
fn what_a_route_was_stays_known_while_it_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    index.settled(&shop(), Some(State::Managed), Reason::SecretInjected);
    index.route_applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), now);
    assert_eq!(index.states().len(), 1);
}

#[test]
fn what_is_to_be_told_of_a_route_is_kept_while_it_changes_and_not_for_its_successor() {
    let (mut index, now) = knowing(&[route("1")]);
    let untold = Untold { deed: Deed::Cleared, since: now };
    index.keep_untold(&shop(), "another uid", untold);
    assert!(!index.has_untold(&shop()));
    index.keep_untold(&shop(), "4711", untold);
    index.route_applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), now);
    assert!(index.has_untold(&shop()));
    assert_eq!(index.take_untold(&shop(), "4711"), Some(untold));
    assert_eq!(index.take_untold(&shop(), "4711"), None, "it is told once");

    index.keep_untold(&shop(), "4711", untold);
    index.route_applied(route("9").uid("4712").facts(), now);
    assert!(!index.has_untold(&shop()));
}

#[test]
fn what_could_not_be_told_for_an_hour_is_no_news() {
    let (mut index, now) = knowing(&[route("1")]);
    index.keep_untold(&shop(), "4711", Untold { deed: Deed::Cleared, since: now });
    index.tidy(now + seconds(3_600));
    assert!(index.has_untold(&shop()));
    index.tidy(now + seconds(3_601));
    assert!(!index.has_untold(&shop()));
}

#[test]
fn managed_routes_come_with_the_end_of_the_certificate_that_stands_in_them() {
    let time = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let (begins, ends) = (time("2026-01-01T00:00:00Z"), time("2026-06-01T00:00:00Z"));
    let holding = |name: &str| {
        let validity = Validity { not_before: begins, not_after: ends };
        RouteFacts { validity: Some(validity), ..route("1").named("web", name).facts() }
    };
    let mut index = Index::default();
    for name in ["shop", "kept", "custom"] {
        index.route_applied(holding(name), Instant::now());
    }
    assert_eq!(index.managed().count(), 0, "nothing is known before the first decision");
    index.settled(&shop(), Some(State::Managed), Reason::SecretInjected);
    index.settled(&at("web", "kept"), Some(State::Managed), Reason::SecretInvalidKeepingLast);
    index.settled(&at("web", "custom"), Some(State::Custom), Reason::CertificateInRoute);

    let mut managed: Vec<_> = index.managed().map(|(at, ends)| (at.clone(), ends)).collect();
    managed.sort();
    assert_eq!(managed, [(at("web", "kept"), ends), (shop(), ends)]);
}

#[test]
fn what_the_api_server_said_otherwise_makes_the_watchs_next_word_a_change() {
    let (mut index, now) = knowing(&[route("1")]);
    index.secret_applied(secret(), usable("1"), None);
    index.secret_looked_at(&secret(), Some(&usable("1")), now);
    assert!(index.secret_applied(secret(), usable("1"), None).is_empty(), "they agreed");
    index.secret_looked_at(&secret(), Some(&usable("2")), now);
    assert_eq!(index.secret_applied(secret(), usable("1"), None), [shop()]);
    index.secret_looked_at(&secret(), None, now);
    assert_eq!(index.secret_applied(secret(), usable("1"), None), [shop()]);
}

#[test]
fn a_secret_counts_as_read_for_a_route_until_one_of_the_two_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    let facts = route("1").facts();
    index.secret_applied(secret(), usable("1"), None);
    assert!(!index.secret_was_read_for(&facts), "only the watch told of it");
    index.secret_looked_at(&secret(), Some(&usable("1")), now + seconds(1));
    index.secret_looked_at(&secret(), Some(&usable("1")), now);
    assert!(index.secret_was_read_for(&facts));
    index.route_applied(changed("2").facts(), now + seconds(2));
    assert!(!index.secret_was_read_for(&facts), "who mended it first must not hear of it");
    index.secret_looked_at(&secret(), Some(&usable("1")), now + seconds(2));
    assert!(index.secret_was_read_for(&facts));
    index.secret_applied(secret(), usable("2"), None);
    assert!(!index.secret_was_read_for(&facts));
}

#[test]
fn a_change_is_timed_from_the_secret_only_if_the_route_did_not_change_after_it() {
    let (mut index, now) = knowing(&[route("1")]);
    let facts = || route("1").facts();
    index.secret_applied(secret(), usable("1"), None);
    assert_eq!(index.caused_by_secret(&facts()), None, "a list is no change");
    index.secret_applied(secret(), usable("2"), Some(now + seconds(1)));
    assert_eq!(index.caused_by_secret(&facts()), Some(now + seconds(1)));
    index.route_written(changed("2").facts(), now + seconds(2));
    assert_eq!(index.caused_by_secret(&facts()), None);
    assert_eq!(index.caused_by_secret(&Draft::edge().facts()), None);
}

/// We patch (version 9), a user changes the Route right after (version 10), and the watch brings
/// both before our own answer is worked off. Nothing will bring version 10 a second time, so the
/// user's change is not seen until the next relist; a resync decides from the same stale facts.
#[test]
fn the_answer_to_our_own_write_does_not_hide_a_newer_version_that_the_watch_brought_before_it() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_applied(changed("9").facts(), now);
    index.route_applied(route("10").annotated("").facts(), now);
    index.route_written(changed("9").facts(), now);
    assert_eq!(version(&index, &shop()), "10");
}

#[test]
fn a_route_that_changes_while_its_secret_is_missing_does_not_start_a_new_grace() {
    let (mut index, now) = knowing(&[route("1")]);
    index.secret_missing(&secret(), now);
    index.route_applied(changed("2").facts(), now);
    assert_eq!(index.secret_missing(&secret(), now + seconds(4)), seconds(4));
}

#[test]
fn a_missing_secret_is_not_remembered_for_a_route_that_went_meanwhile() {
    let (mut index, now) = knowing(&[route("1")]);
    index.route_gone(&shop());
    index.secret_missing(&secret(), now);
    assert!(index.missing.is_empty());
}

#[test]
fn the_grace_of_a_secret_counts_from_its_own_deletion_and_not_from_an_earlier_one() {
    let start = Instant::now();
    let mut index = Index::default();
    index.route_applied(Draft::edge().annotated("shop-tls").facts(), start);
    index.secret_applied(secret(), usable("1"), None);

    // Deleted and created anew at once. A GET that was answered 404 in between arrives after the
    // watch has brought the new Secret.
    index.secret_gone(&secret());
    index.secret_applied(secret(), usable("1"), None);
    assert_eq!(index.secret_missing(&secret(), start), Duration::ZERO);
    // The next turns find the cache and the Route in agreement and ask nobody.

    // A day later it is deleted again, to be created anew within the grace.
    let tomorrow = start + Duration::from_secs(86_400);
    index.secret_gone(&secret());
    let missing_for = index.secret_missing(&secret(), tomorrow);
    assert_eq!(missing_for, Duration::ZERO, "so it is cleared without any grace");
}

/// Two Routes ask for the Secret. The first asked the server before it was made, and the answer
/// (404) is late; meanwhile the watch brought the Secret, the second Route got its pair, and the
/// first asks for another. Then the Secret is replaced in a gap of the watch.
#[test]
fn a_secret_that_goes_unseen_has_a_grace_of_its_own_whatever_a_late_answer_said_long_ago() {
    let blog = Draft::edge().annotated("shop-tls").named("web", "blog");
    let (mut index, now) = knowing(&[route("1"), blog]);
    index.secret_applied(secret(), usable("1"), Some(now));
    index.secret_found(&secret());
    index.route_applied(Draft::edge().annotated("other-tls").version("2").facts(), now);
    index.secret_looked_at(&secret(), None, now);
    index.secret_missing(&secret(), now);
    let later = now + seconds(3_600);
    let concerned = index.secrets_listed(&None, &[]);
    assert!(concerned.contains(&at("web", "blog")));
    let missing_for = index.secret_missing(&secret(), later);
    assert_eq!(missing_for, Duration::ZERO, "the grace of a Secret that was just deleted is over");
}
