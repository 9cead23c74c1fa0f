use chrono::TimeDelta;
use serde_json::json;

use super::{
    super::testing::{Issuer, claims, legacy_claims, noon},
    *,
};

const CONFIG: &str = "clusters:\n  local:\n    issuer: \"https://kubernetes.default.svc\"\n";
const ISSUER: &str = "https://kubernetes.default.svc";

fn wanted() -> Registration {
    Registration {
        cluster: "b".into(),
        api_server: "https://b.example.com:6443".into(),
        ca: Some("a CA".into()),
        issuers: vec![],
        ca_cert: "/etc/trustplane/clusters/b/ca.crt".into(),
        token_path: "/etc/trustplane/clusters/b/token".into(),
    }
}

/// Of our account there, for an hour from [`noon`].
fn credential(uid: &str, minutes: i64) -> IssuedToken {
    let mut claims = claims();
    claims["sub"] = json!("system:serviceaccount:trustplane-review:trustplane-review");
    claims["kubernetes.io"] = json!({
        "namespace": "trustplane-review",
        "serviceaccount": { "name": "trustplane-review", "uid": uid },
    });
    claims["exp"] = json!((noon() + TimeDelta::minutes(minutes)).timestamp());
    IssuedToken::read(&Issuer::p256("k").token(&claims)).unwrap()
}

/// Nothing was done yet.
fn facts() -> Facts {
    let objects = objects::objects().unwrap().into_iter().map(|it| (it, None)).collect();
    Facts {
        objects,
        issuer: Some(ISSUER.into()),
        has_our_keys: false,
        stored: Stored { config: Some(CONFIG.into()), ..Stored::default() },
        now: noon(),
    }
}

/// After everything was done.
fn registered() -> Facts {
    let mut facts = facts();
    for (object, found) in &mut facts.objects {
        let mut stored = object.content.clone();
        stored["metadata"]["uid"] = json!("u-1");
        *found = Some(stored);
    }
    let EntryPlan::Write(config) = entry_plan(&wanted(), Some(CONFIG), ISSUER).unwrap() else {
        panic!("no entry");
    };
    facts.stored = Stored {
        config: Some(config),
        ca: Some("a CA".into()),
        credential: Some((credential("u-1", 60), Acceptance::Accepted)),
        has_token: true,
    };
    facts
}

fn actions(facts: &Facts) -> Vec<(Action, String)> {
    let places = Places { credential: "Secret s".into(), config: "ConfigMap c".into() };
    let wanted = wanted();
    let steps = plan(&wanted, facts).unwrap().steps(&wanted, facts, &places);
    steps.into_iter().map(|it| (it.action, it.object)).collect()
}

fn why(facts: &Facts) -> &'static str {
    match token_plan(facts) {
        TokenPlan::Request(why) => why,
        TokenPlan::Keep(_) => "kept",
    }
}

#[test]
fn a_new_cluster_gets_account_rights_token_and_entry_in_this_order() {
    let all = actions(&facts());
    let (last, made) = all.split_last().unwrap();
    assert!(made.iter().all(|(action, _)| *action == Action::Create), "{all:?}");
    assert_eq!(made.first().unwrap().1, "Namespace trustplane-review");
    assert_eq!(made[made.len() - 2].1, TOKEN);
    assert_eq!(made.last().unwrap().1, "Secret s");
    assert_eq!(*last, (Action::Change, "ConfigMap c".to_owned()));
}

#[test]
fn a_second_run_changes_nothing() {
    let all = actions(&registered());
    assert!(all.iter().all(|(action, _)| *action == Action::Nothing), "{all:?}");
}

#[test]
fn a_first_run_without_a_configuration_makes_one() {
    let mut facts = facts();
    facts.stored.config = None;
    let all = actions(&facts);
    assert_eq!(all.last(), Some(&(Action::Create, "ConfigMap c".to_owned())));
}

#[test]
fn a_token_that_is_good_is_kept_and_any_other_is_replaced() {
    let mut facts = registered();
    assert_eq!(why(&facts), "kept");
    facts.now = noon() + TimeDelta::minutes(30);
    assert_eq!(why(&facts), "half of its life is over");
    facts.now = noon();
    facts.stored.credential = Some((credential("u-1", 60), Acceptance::Refused));
    assert_eq!(why(&facts), "the API server refuses it");
    // An API server that can't be asked has refused nothing.
    facts.stored.credential = Some((credential("u-1", 60), Acceptance::Unknown));
    assert_eq!(why(&facts), "kept");
    facts.issuer = Some("https://new.test".into());
    assert_eq!(why(&facts), "the issuer of the cluster has changed");
    facts.issuer = None;
    assert_eq!(why(&facts), "kept");
    facts.stored.credential = Some((credential("u-0", 60), Acceptance::Unknown));
    assert_eq!(why(&facts), "it was for another account, or for one that was deleted");
    facts.stored.credential = None;
    assert_eq!(why(&facts), "what is there is no token");
    facts.stored.has_token = false;
    assert_eq!(why(&facts), "there is none");
}

#[test]
fn a_token_that_ends_sooner_never_replaces_a_good_one() {
    let facts = registered();
    assert!(!facts.takes(&credential("u-1", 59)));
    assert!(!facts.takes(&credential("u-1", 60)));
    assert!(facts.takes(&credential("u-1", 61)));
    assert!(facts.takes(&credential("u-2", 10)), "the old account is gone");
    let mut refused = facts;
    refused.stored.credential = Some((credential("u-1", 60), Acceptance::Refused));
    assert!(refused.takes(&credential("u-1", 10)));
}

#[test]
fn another_ca_is_written_without_another_token() {
    let mut facts = registered();
    facts.stored.ca = Some("an old CA".into());
    assert_eq!(why(&facts), "kept");
    assert_eq!(actions(&facts)[9], (Action::Change, "Secret s".to_owned()));
}

#[test]
fn an_issuer_that_is_not_known_yet_is_read_from_the_token() {
    let mut facts = facts();
    facts.issuer = None;
    assert_eq!(plan(&wanted(), &facts).unwrap().entry, EntryPlan::Later);
}

#[test]
fn further_issuers_are_named_beside_that_of_the_token() {
    let mut wanted = wanted();
    wanted.issuers = vec![ISSUER.into(), "https://old.test".into()];
    assert_eq!(wanted.entry(ISSUER).additional_issuers, ["https://old.test"]);
}

#[test]
fn the_cluster_that_we_run_in_is_not_registered_as_another_one() {
    let facts = Facts { has_our_keys: true, ..facts() };
    assert_eq!(plan(&wanted(), &facts), Err(Refusal::SameCluster));
}

#[test]
fn an_entry_that_says_otherwise_stops_it_before_anything_is_done() {
    let mut facts = registered();
    let config = facts.stored.config.take().unwrap();
    facts.stored.config = Some(config.replace("b.example.com", "c.example.com"));
    assert!(matches!(plan(&wanted(), &facts), Err(Refusal::Entry(EditError::Different(_)))));
}

#[test]
fn a_legacy_token_is_no_credential_because_it_can_not_be_renewed() {
    let token = Issuer::rsa("k").token(&legacy_claims());
    assert_eq!(IssuedToken::read(&token), Err(IssuedTokenError::Endless));
    assert!(matches!(IssuedToken::read("a.b.c"), Err(IssuedTokenError::Token(_))));
}
