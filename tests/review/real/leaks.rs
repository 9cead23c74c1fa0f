//! A token is shown to its own cluster, and to nobody else.

use serde_json::json;
use testkit::{
    kubectl,
    review::{Caller, Encoding, leaks},
    suite,
};

use super::stage::{Stage, is_authenticated};

/// Has it reviewed in every way that there is.
async fn ask_in_every_way(stage: &Stage, token: &str) {
    let access = stage.product.address.access(&stage.caller);
    let caller = Caller::new(&access, &stage.a);
    for encoding in Encoding::ALL {
        caller.review(encoding, token, &[]).await;
    }
    stage.review(token, &["shop"]).await;
    // As its own caller, who may not ask.
    stage.product.review(token, token, &[]).await;
    // By the webhook.
    let kubeconfig = stage.d.kubeconfig(&stage.d.admin().with_token(String::new()));
    let _ = kubectl(&kubeconfig, &["--token", token, "auth", "whoami"]).await;
    // Damaged, so that all of the issuer's keys are fetched again.
    let mut unknown = token.to_owned();
    unknown.insert(unknown.find('.').expect("three parts") - 3, 'A');
    stage.review(&unknown, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_in_what_another_cluster_was_sent_nor_in_any_log_event_metric_or_error() {
    let stage = Stage::get().await;
    let mut tokens = Vec::new();
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("leaks", "app").await;
        let token = member.token(&account).await;
        ask_in_every_way(stage, &token).await;
        assert!(member.proxy().was_sent([&*token]), "{} was not asked", member.name());
        tokens.push(token);
    }
    keep_what_everybody_may_read(stage).await;
    // D was sent them by kubectl, as it should be.
    for (at, member) in [&stage.a, &stage.b, &stage.c].into_iter().enumerate() {
        let others = tokens.iter().enumerate().filter(|(of, _)| *of != at);
        assert!(!member.proxy().was_sent(others.map(|(_, token)| &**token)), "{}", member.name());
    }
    let found = leaks::leaks(suite::folder());
    assert!(found.is_empty(), "{found:#?}");
}

/// Events, ConfigMaps and metrics, for this test and for tests/suite_audit.rs.
async fn keep_what_everybody_may_read(stage: &Stage) {
    for member in [&stage.a, &stage.b, &stage.c] {
        let all = ["get", "events,configmaps", "-A", "-o", "json"];
        let found = member.kubectl(&all).await.expect("the administrator may");
        let name = format!("review-{}-{}.json", member.name(), suite::next_number());
        suite::write_private(&suite::subfolder("events").join(name), &found);
    }
    let metrics = stage.product.metrics().await;
    let name = format!("review-{}.prom", suite::next_number());
    suite::write_private(&suite::subfolder("metrics").join(name), &metrics);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_sent_to_another_cluster_on_purpose_is_found() {
    let stage = Stage::get().await;
    let account = stage.c.account("planted", "app").await;
    // As a bearer in a header of HTTP/2, and in bodies of both formats.
    for encoding in Encoding::ALL {
        let way = stage.b.another_proxy().await;
        // Not registered: the leak is on purpose.
        let token = stage.c.unregistered_token(&account).await;
        let access = stage.b.admin().through(&way.url());
        let answer = Caller::new(&access, &stage.b).review(encoding, &token, &[]).await;
        assert!(!is_authenticated(&answer["status"]));
        assert!(way.was_sent([&*token]), "in a body, {encoding:?}");
        let way = stage.b.another_proxy().await;
        let as_bearer =
            Caller::new(&access.through(&way.url()).with_token(token.clone()), &stage.b);
        let answer = as_bearer.review(encoding, "no.such.token", &[]).await;
        assert_eq!((&answer["protocol"], &answer["failure"]["code"]), (&json!("h2"), &json!(401)));
        assert!(way.was_sent([&*token]), "in a header, {encoding:?}");
    }
}
