//! With `cache.ttl`, which is off unless somebody asks for it.

use testkit::review::TokenOrder;

use super::stage::{Stage, is_authenticated, status};

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_for_one_audience_answers_for_no_other() {
    let stage = Stage::get().await;
    let config = format!("{}cache: {{ttl: 5m}}\n", stage.config(&[]));
    let product = stage.another_ready("cached", config).await;
    let account = stage.a.account("cached", "app").await;
    let token = stage.a.token_as(TokenOrder::of(&account).audiences(&["shop", "till"])).await;
    let is_good = async |audiences: &[&str]| {
        let told = status(&product.review(&stage.caller, &token, audiences).await);
        is_authenticated(&told).then(|| told["audiences"].clone())
    };
    for _ in 0..2 {
        assert_eq!(is_good(&["shop"]).await, Some(serde_json::json!(["shop"])));
        assert_eq!(is_good(&["vault"]).await, None);
        assert_eq!(is_good(&["till", "vault"]).await, Some(serde_json::json!(["till"])));
        // Neither is one for two audiences that read alike one after the other.
        assert_eq!(is_good(&["sho", "p"]).await, None);
        assert_eq!(is_good(&[]).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_verdict_is_of_one_token_alone() {
    let stage = Stage::get().await;
    let config = format!("{}cache: {{ttl: 5m}}\n", stage.config(&[]));
    let product = stage.another_ready("cached-tokens", config).await;
    let account = stage.a.account("cached-tokens", "app").await;
    let secret = stage.a.secret(&account, "secret").await;
    let kept = stage.a.token(&account).await;
    let lost = stage.a.token_as(TokenOrder::of(&account).bound_to(&secret)).await;
    let is_good = async |token: &str| {
        is_authenticated(&status(&product.review(&stage.caller, token, &[]).await))
    };
    // The account's own verdict does not speak for another token of it.
    assert!(is_good(&kept).await);
    stage.a.delete(&secret).await;
    assert!(!is_good(&lost).await);
    assert!(is_good(&kept).await);
}
