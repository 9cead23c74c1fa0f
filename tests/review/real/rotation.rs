//! A cluster that signs with another key from now on.

use testkit::review::{KeyKind, Member, Profile, SigningKey};

use super::stage::{Stage, credential, entry, install_remote, is_authenticated, status};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_new_key_is_good_at_once_and_one_of_the_old_key_still() {
    let stage = Stage::get().await;
    let profile = Profile {
        name: "rotating",
        issuer: "https://rotating.clusters.test".to_owned(),
        signing: SigningKey::new(KeyKind::P384),
        public_keys: Vec::new(),
        flags: Vec::new(),
    };
    let member = Member::start(&stage.etcd, profile).await.unwrap_or_else(|why| panic!("{why}"));
    install_remote(&member).await;
    let credential = credential(&member, 160 * 3600).await;
    let config = stage.config(&[entry(&member, &member.proxy().url(), &credential)]);
    let product = stage.another_ready("rotation", config).await;
    let account = member.account("rotation", "app").await;
    let old = member.token(&account).await;
    let is_good = async |token: &str| {
        let told = status(&product.review(&stage.caller, token, &[]).await);
        if is_authenticated(&told) { Ok(()) } else { Err(told["error"].clone()) }
    };
    assert_eq!(is_good(&old).await, Ok(()));
    // Not published first: nobody knows it before the first token.
    member.rotate(&stage.etcd, &SigningKey::new(KeyKind::Rsa)).await;
    let new = member.token(&account).await;
    assert_eq!(is_good(&new).await, Ok(()));
    assert_eq!(is_good(&old).await, Ok(()));
}
