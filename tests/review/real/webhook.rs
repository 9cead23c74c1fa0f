//! A cluster that lets in accounts of others, because it asks us about their tokens.

use serde_json::{Value, json};
use testkit::{
    Access, kubectl,
    review::{Member, TokenOrder},
};

use super::stage::Stage;

/// Whom an API server takes the owner of a token for, or kubectl's error.
async fn whoami(stage: &Stage, server: &Access, token: &str) -> Result<Value, String> {
    let kubeconfig = stage.d.kubeconfig(&server.with_token(String::new()));
    let printed = kubectl(&kubeconfig, &["--token", token, "auth", "whoami", "-o", "json"]).await;
    let printed = printed.map_err(|why| why.replace(token, "TOKEN"))?;
    let review: Value = serde_json::from_str(&printed).map_err(|error| error.to_string())?;
    Ok(review["status"]["userInfo"].clone())
}

async fn names_are_prefixed_and_others_refused(server: &Access) {
    let stage = Stage::get().await;
    for member in stage.remotes() {
        let name = member.name();
        let account = member.account("webhook", &format!("app-{}", fastrand::u32(..))).await;
        let token = member.token_for(&account, stage.d.issuer()).await;
        let user = whoami(stage, server, &token).await.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(user["username"], json!(format!("{name}:{}", account.user())));
        assert_eq!(user["uid"], json!(account.uid));
        let groups = [
            format!("{name}:system:serviceaccounts"),
            format!("{name}:system:serviceaccounts:webhook"),
            format!("{name}:system:authenticated"),
            // Added by D itself.
            "system:authenticated".to_owned(),
        ];
        assert_eq!(user["groups"], json!(groups));
        let cluster = &user["extra"]["authentication.kubernetes.io/cluster-name"];
        assert_eq!(cluster, &json!([name]));
    }
    // A has no prefix: its admin would be D's.
    let account = stage.a.account("webhook", &format!("app-{}", fastrand::u32(..))).await;
    let token = stage.a.token_for(&account, stage.d.issuer()).await;
    let refused = whoami(stage, server, &token).await.expect_err("its names are not told apart");
    assert!(refused.contains("Unauthorized"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_webhooks_first_version_a_cluster_lets_accounts_in_by_their_prefixed_names() {
    let stage = Stage::get().await;
    names_are_prefixed_and_others_refused(stage.d.admin()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_webhooks_second_version_a_cluster_lets_accounts_in_by_their_prefixed_names() {
    let stage = Stage::get().await;
    let flags = ["--authentication-token-webhook-version=v1".to_owned()];
    let (_server, access) = stage.d.another_server(&stage.etcd, &flags).await;
    names_are_prefixed_and_others_refused(&access).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_given_to_the_prefixed_name_and_reach_no_account_of_the_same_name() {
    let stage = Stage::get().await;
    let path = "/api/v1/namespaces";
    stage.d.create(path, &json!({ "metadata": { "name": "prefixed-rights" } })).await;
    let role = ["create", "role", "reader", "--verb=list", "--resource=configmaps"];
    let user = "--user=b:system:serviceaccount:prefixed-rights:app";
    let bind = ["create", "rolebinding", "reader", "--role=reader", user];
    for command in [role, bind] {
        let command = [&command[..], &["-n", "prefixed-rights"]].concat();
        stage.d.kubectl(&command).await.expect("it is accepted");
    }
    let get = |token: String| async move {
        let kubeconfig = stage.d.kubeconfig(&stage.d.admin().with_token(String::new()));
        let get = ["--token", &token, "get", "configmaps", "-n", "prefixed-rights", "-o", "name"];
        kubectl(&kubeconfig, &get).await.map_err(|why| why.replace(&token, "TOKEN"))
    };
    let token = async |member: &Member| {
        let account = member.account("prefixed-rights", "app").await;
        member.token_for(&account, stage.d.issuer()).await
    };
    let of_b = token(&stage.b).await;
    testkit::eventually(super::stage::SOON, "the right is in force", || get(of_b.clone())).await;
    let refused = get(token(&stage.c).await).await.expect_err("the right is of B's account");
    assert!(
        refused.contains("Forbidden") && refused.contains("c:system:serviceaccount"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_asks_us_about_a_token_of_its_own_is_not_asked_back() {
    // It would wait for us while we wait for it: an API server asks about one token once at a time.
    let stage = Stage::get().await;
    let account = stage.d.account("own", "app").await;
    let secret = stage.d.secret(&account, "secret").await;
    let token = stage.d.token_as(TokenOrder::of(&account).bound_to(&secret)).await;
    stage.d.delete(&secret).await;
    let refused = whoami(stage, stage.d.admin(), &token).await.expect_err("it is bound to nothing");
    assert!(refused.contains("Unauthorized"), "{refused}");
    assert!(!stage.d.proxy().was_sent([&*token]));
}
