use std::sync::MutexGuard;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    names::{REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    review::{
        act::testing::{Call, HOUR, MINUTE, Manners, Remote, Replica, World},
        decide::testing::Issuer,
    },
};

const YEAR: TimeDelta = TimeDelta::days(365);
const ACCOUNT: &str = "trustplane-review";

/// Clusters `a` and `b`, whose files have a token for a year each, and a leader.
struct Stage {
    world: Arc<World>,
    first: [String; 2],
    leader: Replica,
}

impl Stage {
    fn new() -> Self {
        Self::with(YEAR)
    }

    fn with(life: TimeDelta) -> Self {
        let world = World::new(&["a", "b"]);
        let first = ["a", "b"].map(|name| world.remote(name).grant(ACCOUNT, life));
        let leader = world.replica(&[("a", &first[0]), ("b", &first[1])]);
        leader.leads(true);
        Self { world, first, leader }
    }

    fn standby(&self) -> Replica {
        self.world.replica(&[("a", &self.first[0]), ("b", &self.first[1])])
    }

    fn a(&self) -> &Remote {
        self.world.remote("a")
    }

    fn manners(&self) -> MutexGuard<'_, Manners> {
        lock(&self.world.remotes["a"].manners)
    }

    fn saved(&self) -> String {
        self.world.saved("a").unwrap_or_default()
    }

    /// Of cluster `a`: the reason, and the text.
    fn problem(&self) -> (String, String) {
        self.world.problem("a").unwrap_or_default()
    }
}

fn bearers(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| &*call.bearer).collect()
}

#[tokio::test(start_paused = true)]
async fn a_first_token_is_renewed_by_itself_tried_saved_and_then_used() {
    let stage = Stage::new();
    sleep(MINUTE).await;
    let calls = stage.a().calls();
    let saved = stage.saved();
    assert_eq!(bearers(&calls), [&stage.first[0], &saved]);
    let path = "/api/v1/namespaces/trustplane-review/serviceaccounts/trustplane-review/token";
    assert_eq!(calls[0].path, path);
    assert_eq!(calls[0].body["spec"], json!({ "expirationSeconds": 6000, "audiences": [] }));
    assert_eq!(calls[1].path, "/apis/authentication.k8s.io/v1/tokenreviews");
    assert_eq!(calls[1].body["spec"], json!({ "token": saved }));
    assert_eq!(stage.leader.sends("a"), saved);
    assert_eq!(stage.leader.sends("b"), stage.world.saved("b").unwrap());
    let labels = [("cluster", "a".to_owned()), ("result", "renewed".to_owned())];
    assert_eq!(stage.leader.counters.0.get_or_create(&labels).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_through_many_generations_and_nothing_else_is_written() {
    let stage = Stage::new();
    sleep(10 * MINUTE).await;
    assert_eq!(stage.a().asked(), 1);
    stage.world.writes();
    sleep(50 * MINUTE).await;
    assert_eq!(stage.world.writes(), [""; 0], "nothing changed");
    sleep(6 * 70 * MINUTE).await;
    // Each lives for a hundred minutes, and is renewed half an hour before its end.
    assert_eq!(stage.a().asked(), 1 + 6);
    assert_eq!(stage.leader.sends("a"), stage.saved());
    let secret = format!("PATCH {}", World::path("secrets", REVIEW_SECRET));
    let writes = stage.world.writes();
    let of_secret = writes.iter().filter(|it| **it == secret).count();
    assert!((6..=12).contains(&of_secret), "{writes:?}");
    // Their ends are told.
    assert!(writes.len() <= 3 * of_secret, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_standby_renews_nothing_and_follows_the_leader() {
    let stage = Stage::new();
    stage.leader.leads(false);
    let standby = stage.standby();
    assert!(standby.renewer.waiting_for().is_some());
    sleep(HOUR).await;
    assert_eq!((stage.a().asked(), stage.world.writes().len()), (0, 0));
    assert_eq!(standby.sends("a"), stage.first[0]);
    assert_eq!(standby.renewer.waiting_for(), None);
    stage.leader.leads(true);
    sleep(MINUTE).await;
    assert_eq!(stage.a().asked(), 1);
    assert_eq!(standby.sends("a"), stage.saved());
    // It takes over where the other left off.
    stage.leader.leads(false);
    standby.leads(true);
    sleep(HOUR).await;
    assert_eq!(stage.a().asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_uses_what_was_saved_and_renews_nothing() {
    let stage = Stage::new();
    sleep(MINUTE).await;
    let other = stage.standby();
    sleep(MINUTE).await;
    assert_eq!(other.sends("a"), stage.saved());
    assert_eq!(stage.a().asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_403_names_the_missing_rule_and_the_command_that_grants_it() {
    let stage = Stage::new();
    stage.manners().token_code = Some(403);
    sleep(HOUR).await;
    let expected = "serviceaccounts/token create for trustplane-review/trustplane-review is not allowed there. \
                    Grant it with: trustplane review register a";
    assert_eq!(stage.problem(), ("RenewalForbidden".to_owned(), expected.to_owned()));
    let events = stage.world.events();
    assert!(events.contains(&format!("cluster a: {expected}")), "{events:?}");
    assert_eq!(stage.leader.sends("a"), stage.first[0], "the old one stays in use");
    assert!(stage.a().asked() < 15, "{} times in an hour", stage.a().asked());
    let labels = [("cluster", "a".to_owned()), ("result", "forbidden".to_owned())];
    assert!(stage.leader.counters.0.get_or_create(&labels).get() > 2);
    // Once it is granted, the problem is over.
    stage.manners().token_code = None;
    sleep(2 * HOUR).await;
    assert_eq!(stage.leader.sends("a"), stage.saved());
    assert_eq!(stage.problem().0, "");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_no_cluster_serves_is_never_saved() {
    let stage = Stage::new();
    stage.manners().review_code = Some(401);
    sleep(HOUR).await;
    assert_eq!((&*stage.saved(), &*stage.problem().0), ("", "NewTokenRefused"));
    assert_eq!(stage.leader.sends("a"), stage.first[0]);
    stage.manners().review_code = Some(503);
    sleep(HOUR).await;
    assert_eq!((&*stage.saved(), &*stage.problem().0), ("", "RenewalFailed"));
    stage.manners().review_code = None;
    stage.manners().grants = Some("somebody-else");
    sleep(2 * HOUR).await;
    assert_eq!((&*stage.saved(), &*stage.problem().0), ("", "RenewalFailed"));
    assert_eq!(stage.leader.sends("a"), stage.first[0]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_knows_the_token_but_allows_no_reviews_is_told() {
    let stage = Stage::new();
    stage.manners().review_code = Some(403);
    sleep(MINUTE).await;
    assert_eq!(stage.leader.sends("a"), stage.saved());
    let (reason, text) = stage.problem();
    assert_eq!(reason, "ReviewsForbidden");
    assert!(text.contains("tokenreviews create") && text.ends_with("review register a"), "{text}");
    stage.manners().review_code = None;
    sleep(10 * MINUTE).await;
    assert_eq!((stage.problem().0.as_str(), stage.a().asked()), ("", 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_shortens_is_renewed_at_half_of_what_it_gave() {
    let stage = Stage::new();
    stage.manners().cap = Some(TimeDelta::minutes(20));
    sleep(5 * HOUR).await;
    assert!((29..=31).contains(&stage.a().asked()), "{} times in five hours", stage.a().asked());
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_tokens_have_ended_when_they_come_is_not_asked_without_end() {
    let stage = Stage::new();
    stage.manners().cap = Some(TimeDelta::seconds(1));
    sleep(HOUR).await;
    assert!(stage.a().asked() <= 61, "{} times in an hour", stage.a().asked());
}

#[tokio::test(start_paused = true)]
async fn a_newer_file_wins_and_is_renewed_in_its_turn() {
    let stage = Stage::new();
    let standby = stage.standby();
    sleep(MINUTE).await;
    let second = stage.saved();
    let newer = stage.a().grant(ACCOUNT, TimeDelta::hours(1));
    stage.leader.credentials.take_file("a", Ok(newer.clone()));
    assert_eq!(stage.leader.sends("a"), newer);
    assert_eq!(standby.sends("a"), second, "its file is not there yet");
    sleep(MINUTE).await;
    let third = stage.saved();
    assert_ne!(third, second);
    assert_eq!(stage.a().calls().iter().rfind(|call| call.asks()).unwrap().bearer, newer);
    assert_eq!((stage.leader.sends("a"), standby.sends("a")), (third.clone(), third));
    assert_eq!(stage.a().asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_without_us_the_first_token_is_good_again() {
    let mut stage = Stage::new();
    sleep(MINUTE).await;
    stage.leader.stop();
    sleep(5 * HOUR).await;
    stage.leader = stage.standby();
    stage.leader.leads(true);
    sleep(MINUTE).await;
    assert_eq!(stage.a().calls().iter().rfind(|call| call.asks()).unwrap().bearer, stage.first[0]);
    assert_eq!(stage.leader.sends("a"), stage.saved());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_could_not_be_saved_is_not_used() {
    let stage = Stage::new();
    *lock(&stage.world.refused) = Some("/secrets");
    sleep(HOUR).await;
    assert_eq!(stage.leader.sends("a"), stage.first[0]);
    let (reason, text) = stage.problem();
    assert_eq!(reason, "CredentialNotSaved");
    assert!(text.contains("Secret trustplane-review") && text.contains("forbidden"), "{text}");
    *lock(&stage.world.refused) = None;
    sleep(2 * HOUR).await;
    assert_eq!(stage.leader.sends("a"), stage.saved());
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_somebody_deletes_is_written_again_and_no_token_is_lost() {
    let stage = Stage::new();
    sleep(MINUTE).await;
    let saved = stage.saved();
    let path = World::path("secrets", REVIEW_SECRET);
    stage.world.home.request(http::Method::DELETE, &path, &Value::Null);
    sleep(MINUTE).await;
    assert_eq!((stage.saved(), stage.leader.sends("a")), (saved.clone(), saved));
    assert_eq!(stage.a().asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn entries_of_others_and_broken_ones_are_told_and_stay() {
    let stage = Stage::new();
    sleep(MINUTE).await;
    let path = World::path("secrets", REVIEW_SECRET);
    let entries =
        json!({ "data": { "mine": "AAAA", "cluster.gone": "AAAA", "keys.json": "AAAA" } });
    stage.world.home.request(http::Method::PATCH, &path, &entries);
    let saved = stage.saved();
    sleep(80 * MINUTE).await;
    assert_ne!(stage.saved(), saved, "it was renewed");
    let data = stage.world.secret().unwrap()["data"].take();
    for entry in ["mine", "cluster.gone", "keys.json"] {
        assert_eq!(data[entry], "AAAA");
        let events = stage.world.events();
        assert!(events.iter().any(|it| it.contains(entry)), "{entry}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_delays_no_other() {
    let stage = Stage::new();
    stage.manners().delay = HOUR;
    sleep(Duration::from_secs(45)).await;
    assert_eq!(stage.leader.sends("b"), stage.world.saved("b").unwrap());
    assert!(stage.world.saved("a").is_none());
}

#[tokio::test(start_paused = true)]
async fn two_that_write_at_once_lose_nothing_of_each_other() {
    let stage = Stage::new();
    // Both believe that they lead, as for a moment after a lease has ended.
    let other = stage.standby();
    other.leads(true);
    for _ in 0..6 {
        sleep(HOUR).await;
        for name in ["a", "b"] {
            let saved = stage.world.saved(name).unwrap();
            assert_eq!((stage.leader.sends(name), other.sends(name)), (saved.clone(), saved));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_says_how_it_stands_with_each_cluster() {
    let stage = Stage::new();
    sleep(MINUTE).await;
    let status = stage.world.status("a");
    assert_eq!((&status["reachable"], &status["keys"]), (&json!(true), &json!(1)));
    assert_eq!(status["credential"]["from"], "secret");
    let end = stage.leader.credentials.life("a").unwrap().expires;
    assert_eq!(status["credential"]["expires"].as_str().unwrap().parse(), Ok(end));
    assert!(!status.to_string().contains(&stage.saved()));
    // A change of the leader changes nothing in it.
    let other = stage.standby();
    stage.leader.leads(false);
    stage.world.writes();
    other.leads(true);
    sleep(HOUR).await;
    assert_eq!(stage.world.writes(), [""; 0]);
    // And what somebody else wrote is put right.
    let path = World::path("configmaps", REVIEW_STATUS_CONFIG_MAP);
    let lie = json!({ "data": { "a": "{}", "c": "{}" } });
    stage.world.home.request(http::Method::PATCH, &path, &lie);
    sleep(MINUTE).await;
    assert_eq!((stage.world.status("a"), stage.world.status("c")), (status, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_token_is_told() {
    let world = World::new(&["a"]);
    let leader = world.replica(&[]);
    leader.leads(true);
    sleep(MINUTE).await;
    let (reason, text) = world.problem("a").unwrap();
    assert_eq!(reason, "NoCredential");
    assert!(text.contains("/token") && text.contains("Secret trustplane-review"), "{text}");
    assert_eq!(world.remote("a").calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn whose_a_key_was_first_outlives_the_process() {
    let mut stage = Stage::new();
    sleep(MINUTE).await;
    let copied = stage.a().issuer.jwk();
    lock(&stage.world.remote("b").keys).push(copied);
    stage.leader = stage.standby();
    stage.leader.leads(true);
    sleep(MINUTE).await;
    let shared = stage.leader.keys.directory().shared.clone();
    assert_eq!(shared.len(), 1);
    assert_eq!(shared[0].owner.as_deref(), Some("a"));
    let standby = stage.standby();
    sleep(MINUTE).await;
    assert_eq!(standby.keys.directory().shared, shared);
    let (reason, text) = stage.problem();
    assert_eq!(reason, "KeyShared");
    assert!(text.contains("is published by b, too, and counts as a key of a"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_two_clusters_publish_from_the_start_is_noted_for_neither() {
    let world = World::new(&["a", "b"]);
    let key = Issuer::p256("k").jwk();
    for name in ["a", "b"] {
        *lock(&world.remote(name).keys) = vec![key.clone()];
    }
    // The one whose copy it may be answers first.
    lock(&world.remote("a").manners).delay = 8 * Duration::from_secs(1);
    let leader = world.replica(&[]);
    leader.leads(true);
    sleep(HOUR).await;
    assert_eq!(leader.keys.directory().shared[0].owner, None);
}

#[tokio::test(start_paused = true)]
async fn no_token_is_in_a_status_an_event_or_a_metric() {
    let stage = Stage::new();
    let mut tokens = stage.first.to_vec();
    for code in [None, Some(403), Some(401), Some(500)] {
        stage.manners().token_code = code;
        stage.manners().review_code = code;
        sleep(2 * HOUR).await;
        tokens.push(stage.saved());
    }
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register("renewals", "Renewals", stage.leader.counters.0.clone());
    let mut shown = String::new();
    prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
    shown += &stage.world.status("a").to_string();
    shown += &stage.world.events().join("\n");
    assert!(shown.contains("renewed") && shown.contains("cluster a: "), "{shown}");
    for token in tokens.iter().filter(|it| !it.is_empty()) {
        let (_, signature) = token.rsplit_once('.').unwrap();
        assert!(!shown.contains(signature));
    }
}
