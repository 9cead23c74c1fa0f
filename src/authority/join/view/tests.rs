use serde_json::json;

use super::*;
use crate::{
    authority::{
        act::signer::{LocalSigner, make_ca},
        decide::ca::{self, Policy},
    },
    spiffe::testing::{Ca, document, noon},
};

const SECOND: Duration = Duration::from_secs(1);

fn issuer(read_at: Instant) -> Issuer {
    let hours = TimeDelta::hours;
    let made = make_ca("ours.test", hours(24), noon()).unwrap();
    let policy = Policy { refresh_hint: hours(1), ca_ttl: hours(24), svid_ttl: hours(1) };
    let state = ca::first("ours.test", made.ca, ca::Before::default(), &policy, noon());
    let signer = LocalSigner::new("ours.test", &state.cas[0], &made.key).unwrap();
    Issuer { signer: Arc::new(signer), ttl: hours(1), read_at }
}

fn token(name: &str, uid: &str, version: &str) -> JoinToken {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": uid, "resourceVersion": version },
        "spec": { "roles": ["Bot"], "botName": "ci", "joinMethod": "spiffe", "spiffe": { "allow": [] } },
    }))
    .unwrap()
}

fn known_version(view: &View, name: &str) -> Option<String> {
    view.token(name).and_then(|it| it.token.metadata.resource_version.clone())
}

#[test]
fn nobody_joins_where_a_watch_or_our_ca_was_not_heard_of_for_a_minute() {
    let (view, start) = (View::default(), Instant::now());
    let ready = |at: Instant| view.check_ready(at).map(|_| ());
    assert_eq!(ready(start), Err(Unready::Tokens));
    view.heard_of(Watched::Tokens, start);
    assert_eq!(ready(start), Err(Unready::Federations));
    view.heard_of(Watched::Federations, start + SECOND);
    assert_eq!(ready(start + SECOND), Err(Unready::Authority));
    view.set_issuer(Some(issuer(start + 2 * SECOND)));
    assert_eq!(ready(start + LONGEST_SILENCE), Ok(()));

    assert_eq!(ready(start + LONGEST_SILENCE + SECOND), Err(Unready::Tokens));
    view.heard_of(Watched::Tokens, start + LONGEST_SILENCE);
    assert_eq!(ready(start + LONGEST_SILENCE + SECOND), Ok(()));
    assert_eq!(ready(start + LONGEST_SILENCE + 2 * SECOND), Err(Unready::Federations));
    view.heard_of(Watched::Federations, start + LONGEST_SILENCE);
    assert_eq!(ready(start + LONGEST_SILENCE + 3 * SECOND), Err(Unready::Authority));
    view.set_issuer(None);
    assert_eq!(ready(start + LONGEST_SILENCE), Err(Unready::Authority));
}

#[test]
fn an_event_that_is_older_than_our_own_write_changes_nothing() {
    let view = View::default();
    view.learn_token(token("ci", "a", "7"));
    view.learn_token(token("ci", "a", "5"));
    assert_eq!(known_version(&view, "ci").as_deref(), Some("7"));
    view.learn_token(token("ci", "a", "10"));
    assert_eq!(known_version(&view, "ci").as_deref(), Some("10"));
    view.learn_token(token("ci", "b", "4"));
    assert_eq!(known_version(&view, "ci").as_deref(), Some("4"), "another object of that name");
}

#[test]
fn what_a_call_was_answered_is_news_of_tokens_that_are_known_and_of_no_others() {
    let view = View::default();
    assert!(!view.update_token(&token("ci", "a", "7")));
    assert_eq!(known_version(&view, "ci"), None, "it may have been deleted since");
    view.learn_token(token("ci", "a", "7"));
    assert!(view.update_token(&token("ci", "a", "9")));
    assert_eq!(known_version(&view, "ci").as_deref(), Some("9"));
    assert!(view.update_token(&token("ci", "a", "8")));
    assert!(!view.update_token(&token("ci", "b", "12")));
    assert_eq!(known_version(&view, "ci").as_deref(), Some("9"), "older, and of another object");
}

#[test]
fn tokens_that_a_list_does_not_have_are_gone() {
    let view = View::default();
    view.learn_token(token("a", "a", "1"));
    view.learn_token(token("b", "b", "2"));
    view.keep_tokens(&BTreeSet::from(["b"]));
    assert_eq!((known_version(&view, "a"), known_version(&view, "b")), (None, Some("2".into())));
    view.forget_token("b");
    assert_eq!(known_version(&view, "b"), None);
}

#[test]
fn followers_hear_of_bundles_that_changed_and_of_no_others() {
    let view = View::default();
    let name = |text: &str| TrustDomain::parse(text).unwrap();
    let text = |ca: &Ca| Arc::<str>::from(document(&[ca]).to_string());
    let (one, two) = (text(&Ca::new("one.test")), text(&Ca::new("two.test")));
    let mut follower = view.follow_trusted();
    assert!(follower.has_changed().unwrap(), "the first message comes at once");
    follower.mark_unchanged();

    let both = BTreeMap::from([(name("one.test"), one.clone()), (name("two.test"), two)]);
    view.set_trusted(both.clone());
    assert!(follower.has_changed().unwrap());
    assert_eq!(follower.borrow_and_update().message().bundles.len(), 2);
    let before = view.trusted().bundle(&name("one.test")).unwrap();

    view.set_trusted(both);
    assert!(!follower.has_changed().unwrap(), "nothing is new");
    view.set_trusted(BTreeMap::from([(name("one.test"), one)]));
    assert!(follower.has_changed().unwrap());
    let message = follower.borrow_and_update().message();
    assert_eq!(message.bundles.keys().collect::<Vec<_>>(), ["one.test"]);
    let after = view.trusted().bundle(&name("one.test")).unwrap();
    assert!(Arc::ptr_eq(&before, &after), "what did not change is not parsed again");
    assert!(view.trusted().bundle(&name("two.test")).is_none());
}

#[test]
fn all_followers_share_one_copy_of_the_message() {
    let view = View::default();
    let text: Arc<str> = document(&[&Ca::new("one")]).to_string().into();
    view.set_trusted([(TrustDomain::parse("one.test").unwrap(), text)].into());
    let (one, other) = (view.trusted().framed(), view.trusted().framed());
    assert_eq!(one.as_ptr(), other.as_ptr());
    let (head, message) = one.split_at(5);
    assert_eq!(head, [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..]].concat());
    let payload = Some(ResponsePayload::TrustBundles(view.trusted().message()));
    assert_eq!(prost::Message::decode(message), Ok(Response { payload }));
    view.set_trusted(BTreeMap::new());
    assert_ne!(view.trusted().framed(), one);
}
