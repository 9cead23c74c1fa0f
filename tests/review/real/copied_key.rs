//! A cluster that publishes the public key of another. It can sign nothing with it, but its tokens could be sent
//! there.

use serde_json::json;
use testkit::review::{KeyKind, Member, Profile, SigningKey};

use super::stage::{ISSUER, Stage, credential, entry, install_remote, is_authenticated, status};

/// Says that A's key is its own: kube-apiserver publishes what it is configured with.
async fn copier(name: &'static str) -> Member {
    let stage = Stage::get().await;
    let profile = Profile {
        name,
        issuer: ISSUER.to_owned(),
        signing: SigningKey::new(KeyKind::P256),
        public_keys: vec![stage.a.first_key().public_pem()],
        flags: Vec::new(),
    };
    let member = Member::start(&stage.etcd, profile).await.unwrap_or_else(|why| panic!("{why}"));
    install_remote(&member).await;
    member
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_key_stays_with_the_cluster_that_was_first_and_is_nobodys_if_none_was() {
    let stage = Stage::get().await;
    let copier = copier("copier").await;
    let copiers_entry =
        entry(&copier, &copier.proxy().url(), &credential(&copier, 160 * 3600).await);
    let account = stage.a.account("copied", "app").await;
    let token = stage.a.token(&account).await;
    let own_account = copier.account("copied", "app").await;
    let own = copier.token(&own_account).await;

    // A was there first.
    let first = stage.another_ready("copied", stage.config(&[])).await;
    assert!(is_authenticated(&status(&first.review(&stage.caller, &token, &[]).await)));
    super::credentials::until_noted(&stage.a, &first).await;
    first.configure(&stage.config(std::slice::from_ref(&copiers_entry)));
    first.until_metric("keys_contested{cluster=\"copier\"}", 1.0).await;
    for (cluster, token) in [("a", &token), ("copier", &own)] {
        let told = status(&first.review(&stage.caller, token, &[]).await);
        let extra = &told["user"]["extra"]["authentication.kubernetes.io/cluster-name"];
        assert_eq!(extra, &json!([cluster]), "{}", told["error"]);
    }
    drop(first);

    // Both at once: nobody's, until somebody says whose.
    let both = stage.config(&[copiers_entry]);
    let kids = format!("  a:\n    issuer: {ISSUER}\n    kids: [{}]\n", stage.a.first_key().kid());
    let claimed = both.replace(&format!("  a:\n    issuer: {ISSUER}\n"), &kids);
    // Callers are accounts of A as well, so one of the copier's asks.
    let asks_too =
        |config: &str| config.replace("\"a/callers/*\"", "\"a/callers/*\", \"copier/copied/*\"");
    let second = stage.another_ready("contested", asks_too(&both)).await;
    second.until_metric("keys_contested{cluster=\"a\"}", 1.0).await;
    let told = status(&second.review(&own, &token, &[]).await);
    assert!(!is_authenticated(&told));
    second.configure(&asks_too(&claimed));
    testkit::eventually(super::stage::SOON, "the configuration says whose it is", async || {
        let told = status(&second.review(&own, &token, &[]).await);
        if is_authenticated(&told) { Ok(()) } else { Err(told) }
    })
    .await;
    assert!(!copier.proxy().was_sent([&*token]), "the copier was sent A's token");
}
