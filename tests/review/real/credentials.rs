//! What we ask clusters with: renewed, used from then on, and never the one of another cluster.

use serde_json::{Value, json};
use testkit::{
    eventually,
    review::{Member, Product, TokenOrder},
    suite,
};

use super::stage::{SOON, Stage, credential, entry, is_authenticated, remote_account, status};

const HOUR: f64 = 3600.0;

/// Our Secret in a namespace.
async fn secret(local: &Member, namespace: &str) -> Option<Value> {
    local.find(&format!("/api/v1/namespaces/{namespace}/secrets/trustplane-review")).await
}

/// Waits until it is noted whose each key was first.
pub async fn until_noted(local: &Member, product: &Product) {
    eventually(SOON, "the owners of keys are noted", async || {
        secret(local, product.namespace()).await.map(drop).ok_or("no Secret")
    })
    .await;
}

async fn is_accepted(member: &Member, bearer: &str) -> bool {
    // A TokenReview, so that the API server judges the bearer itself.
    is_authenticated(&member.review(bearer, &[]).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_renewal_on_the_old_credential_is_not_used() {
    let stage = Stage::get().await;
    // It ends with a Secret, so that only the new one is good afterwards.
    let us = remote_account();
    let secret = stage.b.secret(&us, "renewed").await;
    let order = TokenOrder::of(&us).seconds(3600).bound_to(&secret);
    let old = stage.b.token_as(order).await;
    // It lives longer than that.
    let renewal = "renewal: {interval: 1s, token_duration: 30m, renew_before: 10m}\n";
    let proxy = stage.b.another_proxy().await;
    let config = format!("{}{renewal}", stage.config(&[entry(&stage.b, &proxy.url(), &old)]));
    let product = stage.another_ready("renewed", config).await;
    product.until_metric("renewals_total{cluster=\"b\",result=\"renewed\"}", 1.0).await;
    stage.b.delete(&secret).await;
    eventually(SOON, "the old one is refused", async || {
        if is_accepted(&stage.b, &old).await { Err("still good") } else { Ok(()) }
    })
    .await;
    let account = stage.b.account("renewed", "app").await;
    let token = stage.b.token(&account).await;
    let told = status(&product.review(&stage.caller, &token, &[]).await);
    assert!(is_authenticated(&told), "{}", told["error"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_of_a_year_is_replaced_at_once() {
    let stage = Stage::get().await;
    let year = credential(&stage.b, 365 * 24 * 3600).await;
    let config = stage.config(&[entry(&stage.b, &stage.b.proxy().url(), &year)]);
    let product = stage.another_ready("year", config).await;
    let now = chrono::Utc::now().timestamp() as f64;
    let series = "credential_expires_timestamp_seconds{cluster=\"b\"}";
    eventually(SOON, "it ends within token_duration", async || {
        let end = product.metric(series).await.unwrap_or_default();
        let hours = (end - now) / HOUR;
        if (1.0..=168.1).contains(&hours) { Ok(()) } else { Err(hours) }
    })
    .await;
    let kept = secret(&stage.a, product.namespace()).await.expect("it is kept");
    assert!(kept["data"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_credential_is_asked_nothing_and_never_sent_the_one_of_the_pod() {
    let stage = Stage::get().await;
    let proxy = stage.b.another_proxy().await;
    let path = entry(&stage.b, &proxy.url(), "");
    let config = stage.config(&[path]);
    let product = stage.another("no-credential", config).await;
    let account = stage.b.account("no-credential", "app").await;
    let token = stage.b.token(&account).await;
    let answer = eventually(SOON, "it answers", async || {
        match product.try_review(&stage.caller, &token, &[]).await {
            Ok(answer) if answer.code != 401 => Ok(answer),
            other => Err(other.map(|answer| answer.code).map_err(|error| error.to_string())),
        }
    })
    .await;
    assert_eq!((answer.code, answer.json()["reason"].clone()), (503, json!("ServiceUnavailable")));
    assert!(!proxy.was_sent([stage.pod_token()]), "the Pod's own token left its cluster");
    let of_a = stage.a.account("no-credential", "app").await;
    let told = product.review(&stage.caller, &stage.a.token(&of_a).await, &[]).await;
    assert!(is_authenticated(&status(&told)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_refused_is_told_as_an_outage_until_a_newer_one_is_in_its_file() {
    let stage = Stage::get().await;
    let us = remote_account();
    let secret = stage.c.secret(&us, "replaced").await;
    let order = || TokenOrder::of(&us).seconds(150 * 3600);
    let old = stage.c.token_as(order().bound_to(&secret)).await;
    let entry = entry(&stage.c, &stage.c.proxy().url(), &old);
    let product = stage.another_ready("replaced", stage.config(std::slice::from_ref(&entry))).await;
    let account = stage.c.account("replaced", "app").await;
    let token = stage.c.token(&account).await;
    let asked = async || product.review(&stage.caller, &token, &[]).await;
    assert!(is_authenticated(&status(&asked().await)));
    stage.c.delete(&secret).await;
    eventually(SOON, "the old one is refused", async || match asked().await {
        // Waiting does not help: somebody has to act.
        answer if answer.code == 503 && !answer.headers.contains_key("retry-after") => Ok(()),
        answer => Err(answer.code),
    })
    .await;
    let path = entry.lines().find_map(|line| line.trim().strip_prefix("token_path: "));
    // With a line's end, as people write files.
    let newer = format!("{}\n", stage.c.token_as(order()).await);
    suite::write_private(path.expect("the entry names it").as_ref(), &newer);
    let told = eventually(SOON, "the newer one is used", async || match asked().await {
        answer if answer.code == 201 => Ok(status(&answer)),
        answer => Err(answer.code),
    })
    .await;
    assert!(is_authenticated(&told), "{}", told["error"]);
}
