//! A cluster that is away is told as that, never as a no, and takes nothing from the others.

use serde_json::json;
use testkit::review::{Member, Product, RawAnswer, RecordingProxy, Traffic};

use super::stage::{Stage, credential, entry, is_authenticated, status};

/// A `trustplane review` whose way to C is the test's own.
async fn with_own_way_to_c(name: &'static str) -> (Product, RecordingProxy) {
    let stage = Stage::get().await;
    let proxy = stage.c.another_proxy().await;
    let of_c = entry(&stage.c, &proxy.url(), &credential(&stage.c, 160 * 3600).await);
    let of_b = entry(&stage.b, &stage.b.proxy().url(), &credential(&stage.b, 160 * 3600).await);
    let product = stage.another_ready(name, stage.config(&[of_b, of_c])).await;
    (product, proxy)
}

async fn token(member: &Member, namespace: &str) -> String {
    let account = member.account(namespace, &format!("app-{}", fastrand::u32(..))).await;
    member.token(&account).await
}

async fn ask_for_a_second(product: &Product, token: &str) -> RawAnswer {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews?timeout=1s";
    let caller = &Stage::get().await.caller;
    product.post(caller, path, &json!({ "spec": { "token": token } })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_never_told_as_a_no() {
    let stage = Stage::get().await;
    let (product, way_to_c) = with_own_way_to_c("outage").await;
    let (of_a, of_b) = (token(&stage.a, "outage").await, token(&stage.b, "outage").await);
    let (of_c, other) = (token(&stage.c, "outage").await, token(&stage.c, "outage").await);
    let ask = async |token: &str| status(&product.review(&stage.caller, token, &[]).await);
    assert!(is_authenticated(&ask(&of_c).await));
    for traffic in [Traffic::Breaks, Traffic::Stalls] {
        way_to_c.set(traffic);
        for token in [&of_c, &other] {
            let answer = ask_for_a_second(&product, token).await;
            let told = answer.json();
            assert_eq!((answer.code, &told["kind"]), (503, &json!("Status")), "{traffic:?}");
            assert_eq!(told["reason"], "ServiceUnavailable");
            assert_eq!(answer.headers["retry-after"], "1");
            // Nothing of how it failed, and nothing of the token.
            let message = told["message"].as_str().expect("a message");
            assert!(!message.contains("127.0.0.1") && !message.contains(&**token), "{message}");
        }
        for token in [&of_a, &of_b] {
            assert!(is_authenticated(&ask(token).await));
        }
    }
    way_to_c.set(Traffic::Flows);
    testkit::eventually(super::stage::SOON, "C answers again", async || {
        let answer = ask_for_a_second(&product, &other).await;
        if answer.code == 201 { Ok(status(&answer)) } else { Err(answer.code) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_never_there_makes_no_other_token_an_error() {
    let stage = Stage::get().await;
    let way_to_c = stage.c.another_proxy().await;
    way_to_c.set(Traffic::Breaks);
    let of_c = entry(&stage.c, &way_to_c.url(), &credential(&stage.c, 160 * 3600).await);
    let product = stage.another("never-there", stage.config(&[of_c])).await;
    let of_a = token(&stage.a, "never-there").await;
    testkit::eventually(super::stage::SOON, "it answers for A", async || {
        match product.try_review(&stage.caller, &of_a, &[]).await {
            Ok(answer) if answer.code == 201 => {
                assert!(is_authenticated(&status(&answer)));
                Ok(())
            }
            other => Err(other.map(|answer| answer.code).map_err(|error| error.to_string())),
        }
    })
    .await;
    // Of an issuer that nobody has, and of A's issuer with a key that nobody has.
    let nobodys = format!("{}x", token(&stage.b, "never-there").await);
    for token in ["no.such.token", &nobodys] {
        let told = status(&product.review(&stage.caller, token, &[]).await);
        assert!(!is_authenticated(&told));
    }
    let answer = ask_for_a_second(&product, &token(&stage.c, "never-there").await).await;
    assert_eq!(answer.code, 503, "{}", answer.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_another_ca_is_sent_no_token() {
    let stage = Stage::get().await;
    let proxy = stage.c.another_proxy().await;
    // B's CA in the entry of C.
    let of_c = entry(&stage.c, &proxy.url(), &credential(&stage.c, 160 * 3600).await);
    let ca = of_c.lines().find_map(|line| line.trim().strip_prefix("ca_cert: "));
    let other = stage.c.file("ca.crt", &stage.b.ca().root());
    let of_c = of_c.replace(ca.expect("the entry names it"), &other.display().to_string());
    let product = stage.another("other-ca", stage.config(&[of_c])).await;
    let token = token(&stage.c, "other-ca").await;
    let code = testkit::eventually(super::stage::SOON, "it answers", async || {
        match product.try_review(&stage.caller, &token, &[]).await {
            Ok(answer) if answer.code != 401 => Ok(answer.code),
            other => Err(other.map(|answer| answer.code).map_err(|error| error.to_string())),
        }
    })
    .await;
    assert_eq!(code, 503);
    assert!(!proxy.was_sent([&*token]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_nothing_is_answered() {
    let stage = Stage::get().await;
    let access = stage.product.address.access(&stage.caller);
    let plain = access.through(&access.url.replace("https://", "http://"));
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
    let answer = testkit::review::ask(&plain, request).await;
    assert!(answer.is_err(), "{}", answer.map(|it| it.code).unwrap_or_default());
}
