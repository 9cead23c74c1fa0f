use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    review::{
        decide::testing::{Issuer, claims, noon},
        testing::{ApiServer, Stage, config, honest},
    },
    runtime::lock::lock,
};

impl Stage {
    async fn review(&self, token: &str) -> Result<Reviewed, Failure> {
        review(&self.reviewer, token, &[]).await
    }

    /// In the words that a caller reads; none if the token is good.
    async fn refused(&self, token: &str) -> Option<String> {
        match self.review(token).await.ok().unwrap().answer {
            Answer::Authenticated(_) => None,
            Answer::NotAuthenticated(words) => Some(words),
        }
    }

    async fn code(&self, token: &str) -> (u16, Option<u32>) {
        let failure = self.review(token).await.err().unwrap();
        assert!(!failure.message.contains(token));
        (failure.code, failure.retry_after)
    }

    /// How many tokens reached each cluster.
    fn received(&self) -> (usize, usize) {
        (self.a.reviews().len(), self.b.reviews().len())
    }
}

async fn review(reviewer: &Reviewer, token: &str, audiences: &[&str]) -> Result<Reviewed, Failure> {
    let audiences: Vec<_> = audiences.iter().map(|it| (*it).to_owned()).collect();
    let asked = Asked {
        token,
        audiences: &audiences,
        audit_id: None,
        deadline: Instant::now() + Duration::from_secs(10),
        purpose: Purpose::Review,
        among: None,
    };
    reviewer.review(asked).await
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_to_its_own_cluster_and_to_no_other() {
    let stage = Stage::start().await;
    let reviewed = stage.review(&stage.of_b.token(&claims())).await.ok().unwrap();
    let Answer::Authenticated(accepted) = reviewed.answer else { panic!("not accepted") };
    let extra = accepted.user.extra.unwrap();
    assert_eq!(extra["authentication.kubernetes.io/cluster-name"], ["b"]);
    assert_eq!(reviewed.cluster.as_deref(), Some("b"));
    assert_eq!(stage.received(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_nobody_is_sent_to_nobody() {
    let stage = Stage::start().await;
    let good = stage.of_a.token(&claims());
    let mut foreign = claims();
    foreign["iss"] = json!("https://elsewhere.test");
    let mut ended = claims();
    ended["exp"] = json!(noon().timestamp() - 301);
    for token in [
        format!(" {good}"),
        format!("{good}\n"),
        "x".to_owned(),
        Issuer::p256("a").token(&claims()),
        stage.of_a.token(&foreign),
        stage.of_a.token_with(&json!({ "alg": "none" }), &claims()),
    ] {
        assert_eq!(stage.refused(&token).await.as_deref(), Some(INVALID), "{token}");
    }
    assert_eq!(stage.refused(&stage.of_a.token(&ended)).await.as_deref(), Some(EXPIRED));
    assert_eq!(stage.received(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_is_refused_though_it_was_good_a_moment_ago() {
    let stage = Stage::start().await;
    let token = stage.of_a.token(&claims());
    assert_eq!(stage.refused(&token).await, None);
    let words = "[invalid bearer token, service account token has been invalidated]";
    *lock(&stage.a.lie) = Some(Box::new(move |_| json!({ "user": {}, "error": words })));
    assert_eq!(stage.refused(&token).await.as_deref(), Some(words));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_is_never_older_than_its_question() {
    let stage = Stage::start().await;
    let token = stage.of_a.token(&claims());
    *lock(&stage.a.delay) = Duration::from_secs(5);
    let (reviewer, text) = (stage.reviewer.clone(), token.clone());
    let older = tokio::spawn(async move { review(&reviewer, &text, &[]).await });
    sleep(Duration::from_secs(1)).await;
    // The account is deleted while the older review hangs.
    *lock(&stage.a.delay) = Duration::ZERO;
    *lock(&stage.a.lie) = Some(Box::new(|_| json!({ "user": {} })));
    assert_eq!(stage.refused(&token).await.as_deref(), Some(INVALID));
    let older = older.await.unwrap().ok().unwrap();
    assert!(matches!(older.answer, Answer::Authenticated(_)), "it was asked before");
}

#[tokio::test(start_paused = true)]
async fn one_audiences_verdict_does_not_answer_for_another() {
    let stage = Stage::start().await;
    let token = stage.of_a.token(&claims());
    let good = review(&stage.reviewer, &token, &["shop"]).await.ok().unwrap();
    assert!(matches!(good.answer, Answer::Authenticated(_)));
    let other = review(&stage.reviewer, &token, &["bank"]).await.ok().unwrap();
    assert!(matches!(other.answer, Answer::NotAuthenticated(_)));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_lies_about_who_its_token_is_makes_nobody_somebody() {
    let stage = Stage::start().await;
    let lies: [fn(&mut Value); 4] = [
        |status| status["user"]["username"] = json!("system:admin"),
        |status| status["user"]["groups"] = json!(["system:masters", "system:authenticated"]),
        |status| status["user"]["uid"] = json!("u-2"),
        |status| status["audiences"] = json!(["bank"]),
    ];
    for lie in lies {
        *lock(&stage.a.lie) = Some(Box::new(move |spec| {
            let mut status = honest(spec);
            lie(&mut status);
            status
        }));
        let reviewed = stage.review(&stage.of_a.token(&claims())).await.ok().unwrap();
        assert!(matches!(&reviewed.answer, Answer::NotAuthenticated(words) if words == INVALID));
        assert!(matches!(reviewed.refused, Some(RefusedReason::Mismatch(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_new_key_waits_for_the_keys_of_its_clusters() {
    let stage = Stage::start().await;
    let new = Issuer::p384("new");
    stage.b.publish(&[&stage.of_b, &new]);
    assert_eq!(stage.refused(&new.token(&claims())).await, None);
    assert_eq!(stage.received(), (0, 1));
    // One that nobody publishes is nobody's, after everybody was asked.
    let unknown = Issuer::p384("unknown").token(&claims());
    assert_eq!(stage.refused(&unknown).await.as_deref(), Some(INVALID));
    assert_eq!(stage.received(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_never_told_as_a_no() {
    let stage = Stage::start().await;
    let token = stage.of_a.token(&claims());
    for (code, expected) in [
        (503, (503, Some(1))),
        (500, (503, Some(1))),
        (429, (429, Some(1))),
        (401, (503, None)),
        (403, (503, None)),
    ] {
        *lock(&stage.a.code) = Some(code);
        assert_eq!(stage.code(&token).await, expected, "{code}");
    }
    // However often it was asked.
    for _ in 0..10 {
        assert_eq!(stage.code(&token).await, (503, None));
    }
    *lock(&stage.a.code) = None;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.refused(&token).await, None);
    // Where the keys can't be fetched, it is not known whose an unknown key is.
    *lock(&stage.b.code) = Some(503);
    let unknown = Issuer::p256("unknown").token(&claims());
    assert_eq!(stage.code(&unknown).await, (503, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_cluster_that_was_away_from_the_start_is_not_nobodys() {
    let server: Arc<ApiServer> = Arc::default();
    *lock(&server.code) = Some(503);
    let keys = KeyStore::new([("a".into(), config(), server.client())], Duration::from_secs(300));
    let forwarder = Arc::new(Forwarder::new([("a".into(), server.client())]));
    let reviewer = Reviewer::new(keys.clone(), forwarder, Clock::from_fn(noon));
    let of_a = Issuer::p256("a");
    let token = of_a.token(&claims());
    tokio::spawn(keys.clone().keep("a".into()));
    for _ in 0..3 {
        let code = review(&reviewer, &token, &[]).await.err().map(|it| it.code);
        assert_eq!(code, Some(503), "its keys were never known");
    }
    server.publish(&[&of_a]);
    *lock(&server.code) = None;
    assert!(review(&reviewer, &token, &[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn reviews_that_wait_for_keys_are_bounded_and_hold_up_no_others() {
    let stage = Stage::start().await;
    *lock(&stage.b.delay) = Duration::from_secs(30);
    let waiting: Vec<_> = (0..WAITING)
        .map(|number| {
            let reviewer = stage.reviewer.clone();
            let token = Issuer::p256(&format!("unknown {number}")).token(&claims());
            tokio::spawn(async move { review(&reviewer, &token, &[]).await })
        })
        .collect();
    sleep(Duration::from_secs(2)).await;
    let one_more = Issuer::p256("one more").token(&claims());
    assert_eq!(stage.code(&one_more).await, (429, Some(1)));
    // Whose key is known waits for nobody, and a caller's own token has a place of its own.
    let begin = Instant::now();
    assert_eq!(stage.refused(&stage.of_a.token(&claims())).await, None);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let asked = Asked {
        token: &one_more,
        audiences: &[],
        audit_id: None,
        deadline: Instant::now() + Duration::from_secs(1),
        purpose: Purpose::Caller,
        among: None,
    };
    assert_eq!(stage.reviewer.review(asked).await.err().unwrap().code, 503);
    for review in waiting {
        assert_eq!(review.await.unwrap().err().unwrap().code, 503);
    }
    assert!(stage.keys.state("b").unwrap().fetched_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_before_it_is_known_whose_each_key_was_first() {
    let stage = Stage::start().await;
    stage.keys.await_notes();
    let token = stage.of_a.token(&claims());
    assert_eq!(stage.code(&token).await, (503, Some(1)));
    assert_eq!(stage.received(), (0, 0));
    stage.keys.note(BTreeMap::new());
    assert_eq!(stage.refused(&token).await, None);
}

mod remembered {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    async fn stage() -> (Stage, Reviewer) {
        let stage = Stage::start().await;
        let reviewer = stage.another_reviewer().remembering(Some(TTL));
        (stage, reviewer)
    }

    fn is_good(reviewed: Result<Reviewed, Failure>) -> bool {
        matches!(reviewed.ok().unwrap().answer, Answer::Authenticated(_))
    }

    #[tokio::test(start_paused = true)]
    async fn a_yes_counts_for_its_time_and_for_its_audiences_alone() {
        let (stage, reviewer) = stage().await;
        let token = stage.of_a.token(&claims());
        for _ in 0..3 {
            assert!(is_good(review(&reviewer, &token, &["shop"]).await));
        }
        assert_eq!(stage.received(), (1, 0));
        let other = review(&reviewer, &token, &["till"]).await.ok().unwrap();
        let Answer::Authenticated(other) = other.answer else { panic!("not accepted") };
        assert_eq!(other.audiences, ["till"]);
        assert!(is_good(review(&reviewer, &token, &["till", "shop"]).await));
        assert!(is_good(review(&reviewer, &token, &[]).await));
        assert_eq!(stage.received(), (4, 0));
        tokio::time::advance(TTL).await;
        assert!(is_good(review(&reviewer, &token, &["shop"]).await));
        assert_eq!(stage.received(), (5, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_no_and_an_outage_are_never_remembered() {
        let (stage, reviewer) = stage().await;
        let token = stage.of_a.token(&claims());
        *lock(&stage.a.lie) = Some(Box::new(|_| json!({ "user": {}, "error": "deleted" })));
        assert!(!is_good(review(&reviewer, &token, &[]).await));
        *lock(&stage.a.lie) = None;
        *lock(&stage.a.code) = Some(503);
        assert!(review(&reviewer, &token, &[]).await.is_err());
        *lock(&stage.a.code) = None;
        assert!(is_good(review(&reviewer, &token, &[]).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_ends_sooner_is_forgotten_sooner() {
        let (stage, reviewer) = stage().await;
        let mut claims = claims();
        claims["exp"] = json!(noon().timestamp() + 5);
        let token = stage.of_a.token(&claims);
        assert!(is_good(review(&reviewer, &token, &[]).await));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(is_good(review(&reviewer, &token, &[]).await));
        assert_eq!(stage.received(), (2, 0));
    }
}
