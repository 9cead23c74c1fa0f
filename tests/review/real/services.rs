//! Services that use client-go, with nothing changed but where they ask.

use serde_json::{Value, json};
use testkit::review::{Account, Bound, Caller, Encoding, Member, TokenOrder};

use super::stage::Stage;

/// What Kubernetes says about an account's users, with our name of the cluster, and a prefix for names.
fn expected(member: &Member, prefix: &str, account: &Account, extra: &[(&str, &str)]) -> Value {
    let mut user = json!({
        "username": format!("{prefix}{}", account.user()),
        "uid": account.uid,
        "groups": [
            format!("{prefix}system:serviceaccounts"),
            format!("{prefix}system:serviceaccounts:{}", account.namespace),
            format!("{prefix}system:authenticated"),
        ],
        "extra": { "authentication.kubernetes.io/cluster-name": [member.name()] },
    });
    for (name, value) in extra {
        user["extra"][format!("authentication.kubernetes.io/{name}")] = json!([value]);
    }
    user
}

/// The status without what no other token has.
fn without_credential_id(status: &Value) -> Value {
    let mut user = status["user"].clone();
    let id = user["extra"]
        .as_object_mut()
        .and_then(|extra| extra.remove("authentication.kubernetes.io/credential-id"));
    let id = id.unwrap_or_else(|| panic!("no credential-id in {status}"));
    assert!(id[0].as_str().is_some_and(|it| it.starts_with("JTI=")), "{id}");
    user
}

async fn objects(member: &Member, account: &Account) -> [Bound; 3] {
    let node = member.node(&format!("{}-node", account.namespace)).await;
    let pod = member.pod(account, "pod", &node).await;
    [pod, member.secret(account, "secret").await, node]
}

/// The design's code, asked about a token bound to each kind of object, in JSON and in protobuf.
async fn every_token_is_told(member: &Member, prefix: &str) {
    let stage = Stage::get().await;
    let caller = Caller::new(&stage.product.address.access(&stage.caller), &stage.a);
    let account = member.account("services", "app").await;
    let [pod, secret, node] = objects(member, &account).await;
    let of_node = [("node-name", &*node.name), ("node-uid", &*node.uid)];
    let of_pod = [("pod-name", &*pod.name), ("pod-uid", &*pod.uid)];
    let of_pod = [of_pod, of_node].concat();
    let order = || TokenOrder::of(&account).audiences(&["shop", "till"]);
    for (order, extra) in [
        (order(), &[][..]),
        (order().bound_to(&pod), &of_pod),
        (order().bound_to(&secret), &[]),
        (order().bound_to(&node), &of_node),
    ] {
        let token = member.token_as(order).await;
        for encoding in Encoding::ALL {
            let answer = caller.review(encoding, &token, &["till", "else"]).await;
            assert_eq!(answer["protocol"], "h2");
            let status = &answer["status"];
            assert_eq!(status["authenticated"], true, "{encoding:?}: {answer}");
            assert_eq!(status["audiences"], json!(["till"]));
            assert_eq!(without_credential_id(status), expected(member, prefix, &account, extra));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_designs_code_learns_whose_a_token_of_the_local_cluster_is() {
    every_token_is_told(&Stage::get().await.a, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_designs_code_learns_whose_a_token_of_a_cluster_with_the_same_issuer_is() {
    every_token_is_told(&Stage::get().await.b, "b:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_designs_code_learns_whose_a_token_of_a_cluster_with_another_issuer_is() {
    every_token_is_told(&Stage::get().await.c, "c:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_audiences_a_token_for_the_api_server_is_told_as_the_api_server_tells_it() {
    let stage = Stage::get().await;
    for (member, prefix) in [(&stage.a, ""), (&stage.b, "b:"), (&stage.c, "c:")] {
        let account = member.account("without-audiences", "app").await;
        let token = member.token(&account).await;
        let (ours, direct) = (stage.review(&token, &[]).await, member.review(&token, &[]).await);
        assert_eq!(ours["audiences"], direct["audiences"]);
        assert_eq!(ours["user"]["uid"], direct["user"]["uid"]);
        assert_eq!(without_credential_id(&ours), expected(member, prefix, &account, &[]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_others_is_refused_in_the_words_of_its_cluster() {
    let stage = Stage::get().await;
    let caller = Caller::new(&stage.product.address.access(&stage.caller), &stage.a);
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("for-others", "app").await;
        let token = member.token_as(TokenOrder::of(&account).audiences(&["shop"])).await;
        for audiences in [&["till"][..], &[]] {
            let direct = member.review(&token, audiences).await;
            let ours = caller.review(Encoding::Json, &token, audiences).await;
            let ours = &ours["status"];
            assert_eq!((&ours["authenticated"], &ours["user"]), (&Value::Null, &json!({})));
            assert_eq!(ours["error"], direct["error"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clusters_are_asked_by_http_2() {
    let stage = Stage::get().await;
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("http-2", "app").await;
        stage.review(&member.token(&account).await, &[]).await;
    }
    for member in stage.remotes() {
        let protocols: Vec<_> = member.proxy().protocols().into_iter().collect();
        assert_eq!(protocols, ["h2"], "{}", member.name());
    }
    // Everything else is asked of the local cluster by another client.
    assert!(stage.a.proxy().protocols().contains("h2"));
}
