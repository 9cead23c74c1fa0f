//! What the index answers to what the watches may bring, in whatever order.

mod secrets;

use super::*;
use crate::{
    inject::{
        cache::secret_reads::SecretRead,
        decide::facts::{Description, HeldCertificate, tests::Draft},
    },
    k8s::watch::Unlisted,
    tls::Validity,
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

/// One version of the Secret.
fn revision(version: &str) -> Revision {
    Revision::of("s-1", version)
}

/// A read of that version, with this content.
fn read(version: &str, state: SecretState) -> SecretRead {
    SecretRead { state, revision: Some(revision(version)), pair: None }
}

fn usable() -> SecretState {
    SecretState::Usable(Fingerprint::of("certificate", "key"))
}

fn opaque() -> SecretState {
    SecretState::WrongType("Opaque".into())
}

impl Index {
    /// A list or a watch brings a Route.
    fn applied(&mut self, facts: RouteFacts, now: Instant) -> Option<ObjectRef> {
        self.route_applied(facts, Origin::Server, now)
    }

    /// The watch brings a version of a Secret.
    fn event(&mut self, at: &ObjectRef, version: &str, now: Instant) -> Vec<ObjectRef> {
        self.secret_applied(at, revision(version), Arrival::Event, now)
    }

    /// The API server answers 404; answers for how long it has.
    fn missing(&mut self, at: &ObjectRef, now: Instant) -> Option<Duration> {
        self.secret_read(at, None, now, now);
        self.missing_since(at).map(|since| now - since)
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// An index that knows these Routes, and the time at which it got to know them.
fn knowing(drafts: &[Draft]) -> (Index, Instant) {
    let (mut index, now) = (Index::default(), Instant::now());
    for draft in drafts {
        assert!(index.applied(draft.facts(), now).is_some(), "a new Route is to be decided");
    }
    (index, now)
}

fn sorted(mut places: Vec<ObjectRef>) -> Vec<ObjectRef> {
    places.sort();
    places
}

/// What is known of the Secret to this Route.
fn known(index: &Index, route: &Draft) -> KnownSecret {
    index.known_secret(&route.facts(), &secret())
}

fn version(index: &Index, at: &ObjectRef) -> String {
    index.route(at).unwrap().version.into()
}

#[test]
fn a_secret_that_a_hundred_routes_share_concerns_each_of_them_and_no_namesake_elsewhere() {
    let routes: Vec<_> =
        (0..100).map(|number| route("1").named("web", &format!("shop-{number:02}"))).collect();
    let (mut index, now) = knowing(&routes);
    index.applied(route("1").named("other", "shop").facts(), now);
    index.applied(route("1").named("web", "aside").annotated("aside-tls").facts(), now);

    let expected: Vec<_> = routes.iter().map(|draft| draft.facts().at).collect();
    assert_eq!(sorted(index.event(&secret(), "1", now)), expected);
    assert_eq!(sorted(index.event(&secret(), "2", now)), expected);
    assert_eq!(sorted(index.secret_gone(&secret(), now)), expected);
    let elsewhere = index.event(&at("other", "shop-tls"), "1", now);
    assert_eq!(elsewhere, [at("other", "shop")]);
    assert_eq!(index.all().len(), 102);
}

#[test]
fn a_secret_that_no_route_names_concerns_nobody_and_is_not_remembered() {
    let (mut index, now) = knowing(&[route("1")]);
    assert_eq!(index.event(&at("web", "aside-tls"), "1", now), []);
    assert_eq!(index.secret_gone(&at("web", "aside-tls"), now), []);
    assert_eq!(index.secret_gone(&at("web", "never-seen"), now), []);
    assert_eq!(index.sizes(), (1, 1));
}

#[test]
fn a_version_that_one_routes_read_brought_first_is_news_to_the_others_once() {
    let (mut index, now) = knowing(&[route("1")]);
    assert_eq!(index.event(&secret(), "1", now), [shop()]);
    assert_eq!(index.event(&secret(), "1", now), []);
    index.secret_read(&secret(), Some(&read("2", usable())), now, now);
    assert_eq!(index.event(&secret(), "2", now), [shop()]);
    assert_eq!(index.event(&secret(), "2", now), []);
    assert_eq!(known(&index, &route("1")), KnownSecret::State(usable()));
    assert_eq!(index.event(&secret(), "3", now), [shop()], "its labels may be all that changed");
    assert_eq!(known(&index, &route("1")), KnownSecret::Unread);
}

#[test]
fn a_route_that_moves_to_another_secret_hears_of_that_one_only() {
    let (mut index, now) = knowing(&[route("1")]);
    assert!(index.applied(route("2").annotated("new-tls").facts(), now).is_some());
    assert_eq!(index.event(&secret(), "1", now), []);
    assert_eq!(index.event(&at("web", "new-tls"), "1", now), [shop()]);
    assert!(index.applied(route("3").annotated("").facts(), now).is_some());
    assert_eq!(index.event(&at("web", "new-tls"), "2", now), []);
}

#[test]
fn a_route_that_changes_in_nothing_that_matters_is_not_decided_anew() {
    let (mut index, now) = knowing(&[route("1")]);
    let labelled = route("2").with("/metadata", "labels", serde_json::json!({ "a": "b" }));
    assert!(index.applied(labelled.facts(), now).is_none());
    assert_eq!(version(&index, &shop()), "2", "the next write carries the new version");
}

#[test]
fn a_route_that_is_gone_is_forgotten_with_what_it_asked_for() {
    let (mut index, now) = knowing(&[route("1")]);
    index.route_gone(&shop());
    index.route_gone(&shop());
    assert_eq!(index.route(&shop()), None);
    assert_eq!(index.event(&secret(), "1", now), []);
    assert_eq!(index.all(), []);
}

#[test]
fn a_route_that_was_made_anew_under_the_same_name_starts_afresh() {
    let (mut index, now) = knowing(&[route("5")]);
    index.set_last_state(&shop(), Some(State::Managed), Reason::SecretInjected);
    assert_eq!(index.states().len(), 1);
    assert!(index.applied(route("9").uid("4712").facts(), now).is_some());
    assert_eq!(index.states().len(), 0, "what the old one was says nothing of the new one");
    assert_eq!(index.event(&secret(), "1", now), [shop()]);
}

#[test]
fn the_answer_to_a_write_does_not_bring_a_deleted_or_an_older_incarnation_back() {
    let (mut index, now) = knowing(&[route("5")]);
    index.applied(route("9").uid("4712").facts(), now);
    index.route_written(changed("6").facts(), Origin::OwnPair, now);
    assert_eq!(&*index.route(&shop()).unwrap().uid, "4712");
    index.route_gone(&shop());
    index.route_written(changed("10").uid("4712").facts(), Origin::OwnPair, now);
    assert_eq!(index.route(&shop()), None);
}

#[test]
fn deletes_that_a_relist_swallowed_are_found_in_all_namespaces() {
    let (mut index, now) =
        knowing(&[route("1"), route("1").named("web", "lost"), route("1").named("other", "lost")]);
    index.event(&secret(), "1", now);
    let mut unlisted = Unlisted::default();
    unlisted.expect(index.routes_of(&None));
    unlisted.seen(&shop());
    let lost = unlisted.finish();
    assert_eq!(lost, [at("other", "lost"), at("web", "lost")]);
    for at in &lost {
        index.route_gone(at);
    }
    assert_eq!(index.all(), [shop()]);
    assert_eq!(index.secret_gone(&secret(), now), [shop()], "the lost ask no longer");
}

#[test]
fn a_relist_of_one_namespace_says_nothing_of_the_others() {
    let (mut index, now) = knowing(&[route("1"), route("1").named("other", "shop")]);
    index.secret_read(&at("other", "shop-tls"), Some(&read("1", usable())), now, now);
    let web: Scope = Some("web".into());
    let secrets: Vec<_> = index.secrets_of(&web).collect();
    assert_eq!(secrets, [secret()]);
    assert_eq!(index.secrets_listed(&secrets, now), [shop()]);
    let other = route("1").named("other", "shop").facts();
    let known = index.known_secret(&other, &at("other", "shop-tls"));
    assert_eq!(known, KnownSecret::State(usable()));
    assert_eq!(index.routes_of(&web).collect::<Vec<_>>(), [shop()]);
}

#[test]
fn a_secret_that_a_relist_does_not_bring_concerns_its_routes_unless_it_was_known_to_be_missing() {
    let (mut index, now) =
        knowing(&[route("1"), route("1").annotated("gone").named("web", "gone")]);
    index.secret_read(&secret(), Some(&read("1", usable())), now, now);
    index.missing(&at("web", "gone"), now);
    index.secret_read(&at("web", "gone"), None, now, now);
    let unlisted = [secret(), at("web", "gone")];
    assert_eq!(index.secrets_listed(&unlisted, now), [shop()]);
    assert_eq!(known(&index, &route("1")), KnownSecret::Unread);
}

#[test]
fn a_secret_that_came_and_went_while_its_watch_was_down_concerns_its_routes() {
    let (mut index, now) = knowing(&[route("1")]);
    // No event told of it, but a reconcile that asked the API server may have injected its pair.
    assert_eq!(index.secrets_listed(&[secret()], now), [shop()]);
    assert_eq!(index.secret_gone(&secret(), now), [shop()], "and so does a word of its end");
}

#[test]
fn a_route_that_was_read_again_and_comes_back_as_it_was_before_is_a_change() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_read(changed("6").facts(), now);
    assert!(index.applied(route("7").facts(), now).is_some(), "decided from 6, and 7 is not 6");
}

#[test]
fn a_route_that_was_read_before_the_watch_brought_something_newer_is_not_kept() {
    let (mut index, now) = knowing(&[route("9")]);
    index.route_read(changed("6").facts(), now);
    assert_eq!(version(&index, &shop()), "9");
}

#[test]
fn what_stood_there_before_our_own_write_is_not_decided_from_when_the_watch_brings_it_late() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    for late in ["5", "6", "8"] {
        assert!(index.applied(changed(late).facts(), now).is_none(), "version {late}");
        assert_eq!(version(&index, &shop()), "9");
    }
    assert!(index.applied(changed("9").facts(), now).is_none(), "our own write comes back");
}

#[test]
fn our_own_write_and_what_was_before_it_are_known_without_being_read() {
    let (mut index, now) = knowing(&[route("5")]);
    let uid = index.route(&shop()).unwrap().uid;
    let mut echo = |version: &str, now| index.is_own_write(&shop(), &uid, version, now);
    assert!(!echo("5", now), "nothing was written: whatever comes is to be read");
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    let mut echo = |version: &str, now| index.is_own_write(&shop(), &uid, version, now);
    assert!(!echo("9", now + seconds(30)), "too late to be sure");
    assert!(echo("6", now));
    assert!(!echo("10", now), "somebody else wrote after us");
    assert!(echo("9", now));
    assert!(!echo("9", now), "our own write comes back once");
}

#[test]
fn a_route_that_was_made_anew_is_read_whatever_its_version() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    assert!(!index.is_own_write(&shop(), "another uid", "9", now));
    assert!(!index.is_own_write(&at("web", "unknown"), "4711", "9", now));
}

#[test]
fn a_route_and_its_secret_share_the_text_of_the_name() {
    let shared = |index: &Index| {
        let wanted = index.route(&shop()).unwrap().secret().unwrap();
        let (known, _) = index.secrets.get_key_value(&secret()).unwrap();
        Arc::ptr_eq(&wanted.name, &known.name) && Arc::ptr_eq(&wanted.namespace, &known.namespace)
    };
    let (mut index, now) = knowing(&[route("1")]);
    index.event(&secret(), "1", now);
    assert!(shared(&index));
    index.applied(changed("2").facts(), now);
    assert!(shared(&index), "and still do when the Route changes");

    let mut index = Index::default();
    index.applied(route("1").named("web", "blog").facts(), now);
    index.applied(route("1").facts(), now);
    assert!(shared(&index), "and so do two Routes");
}

#[test]
fn what_is_in_one_namespace_shares_its_name_until_nothing_is_in_it() {
    let (mut index, now) = knowing(&[route("1"), route("1").named("web", "blog").annotated("")]);
    let [one, other] = ["shop", "blog"].map(|name| index.route(&at("web", name)).unwrap().at);
    let (named, _) = index.secrets.get_key_value(&secret()).unwrap();
    assert!(Arc::ptr_eq(&one.namespace, &other.namespace));
    assert!(Arc::ptr_eq(&one.namespace, &named.namespace));
    drop((one, other));

    index.route_gone(&at("web", "blog"));
    index.tidy(now);
    assert_eq!(index.namespaces.len(), 1, "there is a Route in it");
    index.route_gone(&shop());
    index.tidy(now);
    assert!(index.namespaces.is_empty());
}

#[test]
fn a_route_keeps_the_text_of_its_uid_while_it_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    let uid = index.route(&shop()).unwrap().uid;
    index.applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), Origin::OwnPair, now);
    assert!(Arc::ptr_eq(&uid, &index.route(&shop()).unwrap().uid));
}

#[test]
fn a_route_that_has_to_be_decided_is_named_with_the_texts_that_are_kept_anyway() {
    let (mut index, now) = knowing(&[route("1")]);
    let (kept, _) = index.routes.get_key_value(&shop()).unwrap();
    let kept = kept.clone();
    let changed = index.applied(changed("2").facts(), now).unwrap();
    let renewed = index.event(&secret(), "1", now);
    for named in [&changed, &renewed[0]] {
        assert!(Arc::ptr_eq(&named.name, &kept.name), "{named}");
        assert!(Arc::ptr_eq(&named.namespace, &kept.namespace), "{named}");
    }
}

#[test]
fn versions_are_compared_as_numbers_not_as_texts() {
    let (mut index, now) = knowing(&[route("98")]);
    index.route_written(changed("100").facts(), Origin::OwnPair, now);
    assert!(index.applied(changed("99").facts(), now).is_none());
    assert!(index.applied(changed("1000").facts(), now).is_some());
}

#[test]
fn a_newer_version_wins_over_our_own_write() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    assert!(index.applied(changed("10").facts(), now).is_some());
    assert_eq!(version(&index, &shop()), "10");
}

#[test]
fn once_our_own_write_came_back_whatever_the_watch_says_holds() {
    let (mut index, now) = knowing(&[route("5")]);
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    index.applied(changed("9").facts(), now);
    let restored = index.applied(changed("3").facts(), now);
    assert!(restored.is_some(), "a restored etcd counts from before");
}

#[test]
fn versions_that_are_no_numbers_are_taken_as_the_watch_brings_them() {
    let (mut index, now) = knowing(&[route("a")]);
    index.route_written(changed("c").facts(), Origin::OwnPair, now);
    assert!(index.applied(changed("b").facts(), now).is_some());
    assert_eq!(version(&index, &shop()), "b");
}

#[test]
fn after_half_a_minute_an_older_version_is_taken_for_a_restored_etcd() {
    let (mut index, now) = knowing(&[route("500")]);
    index.route_written(changed("900").facts(), Origin::OwnPair, now);
    let soon = now + seconds(30) - Duration::from_millis(1);
    assert!(index.applied(changed("7").facts(), soon).is_none());
    assert!(index.applied(changed("7").facts(), now + seconds(30)).is_some());
    assert_eq!(version(&index, &shop()), "7");
}

#[test]
fn another_incarnation_is_never_taken_for_an_echo() {
    let (mut index, now) = knowing(&[route("500")]);
    index.route_written(changed("900").facts(), Origin::OwnPair, now);
    assert!(index.applied(route("7").uid("4712").facts(), now).is_some());
}

#[test]
fn a_secret_is_missing_since_it_was_first_found_to_be_until_it_is_seen() {
    let (mut index, now) = knowing(&[route("1")]);
    assert_eq!(index.missing(&secret(), now), Some(seconds(0)));
    assert_eq!(index.missing(&secret(), now + seconds(7)), Some(seconds(7)));
    index.secret_read(&secret(), Some(&read("1", opaque())), now, now);
    let missing = index.missing(&secret(), now + seconds(7));
    assert_eq!(missing, Some(seconds(0)), "of another type, say");
    index.event(&secret(), "2", now);
    index.secret_gone(&secret(), now);
    let again = index.missing(&secret(), now + seconds(14));
    assert_eq!(again, Some(seconds(0)), "deleted again: a new grace");
}

#[test]
fn a_secret_that_no_route_names_any_more_is_forgotten() {
    let (mut index, now) = knowing(&[route("1")]);
    index.missing(&secret(), now);
    index.route_gone(&shop());
    assert_eq!(index.missing(&secret(), now), None, "not even by a late answer");
    assert_eq!(index.sizes(), (0, 0));
}

#[test]
fn the_states_count_routes_and_forget_those_that_are_gone() {
    let (mut index, _) = knowing(&[
        route("1"),
        route("1").named("web", "second"),
        Draft::plain().named("web", "plain"),
    ]);
    assert!(index.states().is_empty(), "nothing is known before the first decision");
    index.set_last_state(&shop(), Some(State::Managed), Reason::SecretInjected);
    index.set_last_state(&at("web", "second"), Some(State::Managed), Reason::SecretInjected);
    index.set_last_state(&at("web", "plain"), None, Reason::RouteNotSecured);
    index.set_last_state(&at("web", "unknown"), None, Reason::RouteNotSecured);
    let managed = (Some(State::Managed), Reason::SecretInjected);
    let expected = HashMap::from([(managed, 2), ((None, Reason::RouteNotSecured), 1)]);
    assert_eq!(index.states(), expected);
    index.route_gone(&at("web", "second"));
    assert_eq!(index.states()[&managed], 1);
}

#[test]
fn what_a_route_was_stays_known_while_it_changes() {
    let (mut index, now) = knowing(&[route("1")]);
    index.set_last_state(&shop(), Some(State::Managed), Reason::SecretInjected);
    index.applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), Origin::OwnPair, now);
    assert_eq!(index.states().len(), 1);
}

fn cleared(since: Instant) -> PendingEvent {
    PendingEvent { write: CompletedWrite::Cleared, since }
}

#[test]
fn what_is_to_be_told_of_a_route_is_kept_while_it_changes_and_not_for_its_successor() {
    let (mut index, now) = knowing(&[route("1")]);
    let pending = cleared(now);
    index.keep_pending(&shop(), "another uid", pending);
    assert!(!index.has_pending(&shop()));
    index.keep_pending(&shop(), "4711", pending);
    index.applied(changed("2").facts(), now);
    index.route_written(changed("3").facts(), Origin::OwnPair, now);
    assert!(index.has_pending(&shop()));
    assert_eq!(index.take_pending(&shop(), "4711"), Some(pending));
    assert_eq!(index.take_pending(&shop(), "4711"), None, "it is told once");

    index.keep_pending(&shop(), "4711", pending);
    index.applied(route("9").uid("4712").facts(), now);
    assert!(!index.has_pending(&shop()));
}

#[test]
fn what_could_not_be_told_for_an_hour_is_no_news() {
    let (mut index, now) = knowing(&[route("1")]);
    index.keep_pending(&shop(), "4711", cleared(now));
    index.tidy(now + seconds(3_600));
    assert!(index.has_pending(&shop()));
    index.tidy(now + seconds(3_601));
    assert!(!index.has_pending(&shop()));
}

#[test]
fn managed_routes_come_with_the_end_of_the_certificate_that_stands_in_them() {
    let time = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let (begins, ends) = (time("2026-01-01T00:00:00Z"), time("2026-06-01T00:00:00Z"));
    let holding = |name: &str| {
        let validity = Validity { not_before: begins, not_after: ends, intermediates_until: None };
        let description = Description { serial: "1".into(), validity, warnings: Box::default() };
        let certificate = HeldCertificate::Read(Box::new(description));
        RouteFacts { certificate, ..route("1").named("web", name).facts() }
    };
    let mut index = Index::default();
    for name in ["shop", "kept", "custom"] {
        index.applied(holding(name), Instant::now());
    }
    assert_eq!(index.managed().count(), 0, "nothing is known before the first decision");
    for (name, state, reason) in [
        ("shop", State::Managed, Reason::SecretInjected),
        ("kept", State::Managed, Reason::SecretInvalidKeepingLast),
        ("custom", State::Custom, Reason::CertificateInRoute),
    ] {
        index.set_last_state(&at("web", name), Some(state), reason);
    }

    let mut managed: Vec<_> = index.managed().map(|(at, ends)| (at.clone(), ends)).collect();
    managed.sort();
    assert_eq!(managed, [(at("web", "kept"), ends), (shop(), ends)]);
}

/// We patch (version 9), a user changes the Route right after (version 10), and the watch brings
/// both before our own answer is worked off. Nothing will bring version 10 a second time, so the
/// user's change is not seen until the next relist; a resync decides from the same stale facts.
#[test]
fn the_answer_to_our_own_write_does_not_hide_a_newer_version_that_the_watch_brought_before_it() {
    let (mut index, now) = knowing(&[route("5")]);
    index.applied(changed("9").facts(), now);
    index.applied(route("10").annotated("").facts(), now);
    index.route_written(changed("9").facts(), Origin::OwnPair, now);
    assert_eq!(version(&index, &shop()), "10");
}

#[test]
fn a_route_that_changes_while_its_secret_is_missing_does_not_start_a_new_grace() {
    let (mut index, now) = knowing(&[route("1")]);
    index.missing(&secret(), now);
    index.applied(changed("2").facts(), now);
    assert_eq!(index.missing(&secret(), now + seconds(4)), Some(seconds(4)));
}

#[test]
fn the_grace_of_a_secret_counts_from_its_own_deletion_and_not_from_an_earlier_one() {
    let (mut index, now) = knowing(&[route("1")]);
    index.event(&secret(), "1", now);
    // Deleted and created again at once. A GET that was answered 404 in between arrives after the
    // watch has brought the new Secret.
    index.secret_gone(&secret(), now);
    index.event(&secret(), "2", now);
    assert_eq!(index.missing(&secret(), now), Some(Duration::ZERO));

    // A day later it is deleted again, to be created again within the grace.
    let tomorrow = now + seconds(86_400);
    index.secret_gone(&secret(), tomorrow);
    let missing_for = index.missing(&secret(), tomorrow);
    assert_eq!(missing_for, Some(Duration::ZERO), "so it is cleared without any grace");
}
