//! What a token is bound to goes, and the token with it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use testkit::{
    proxy::{Fault, Gate},
    review::{Account, Bound, Member, TokenOrder},
};

use super::stage::{Stage, credential, entry, is_authenticated, status};

/// Longer than an API server remembers that a token was good.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Reviews after the first that says no.
const AFTERWARDS: usize = 20;

/// What goes.
#[derive(Clone)]
enum Gone {
    Bound(Bound),
    Account,
    /// And comes back with the same name.
    AccountThatReturns,
}

async fn go(member: &Member, account: &Account, gone: &Gone) {
    match gone {
        Gone::Bound(bound) => member.delete(bound).await,
        Gone::Account => member.delete_account(account).await,
        Gone::AccountThatReturns => {
            member.delete_account(account).await;
            let new = member.account(&account.namespace, &account.name).await;
            assert_ne!(new.uid, account.uid);
        }
    }
}

fn order<'a>(account: &'a Account, gone: &Gone) -> TokenOrder<'a> {
    match gone {
        Gone::Bound(bound) => TokenOrder::of(account).bound_to(bound),
        _ => TokenOrder::of(account),
    }
}

/// An account for each, so that each goes alone.
async fn all_that_can_go(member: &Member, namespace: &str) -> Vec<(Account, Gone)> {
    let account = async |name: &str| member.account(namespace, name).await;
    let node = member.node(&format!("{namespace}-of-pod")).await;
    let [of_pod, of_secret, of_node] =
        [account("of-pod").await, account("of-secret").await, account("of-node").await];
    let pod = member.pod(&of_pod, "pod", &node).await;
    let secret = member.secret(&of_secret, "secret").await;
    let other_node = member.node(&format!("{namespace}-of-token")).await;
    vec![
        (of_pod, Gone::Bound(pod)),
        (of_secret, Gone::Bound(secret)),
        (of_node, Gone::Bound(other_node)),
        (account("goes").await, Gone::Account),
        (account("returns").await, Gone::AccountThatReturns),
    ]
}

async fn is_good(stage: &Stage, token: &str) -> bool {
    is_authenticated(&stage.review(token, &[]).await)
}

/// Reviews a token directly and then by us, until its cluster says no, and on.
async fn ends_no_later_than_directly(member: &Member, account: &Account, gone: &Gone) {
    let stage = Stage::get().await;
    let token = member.token_as(order(account, gone)).await;
    assert!(is_good(stage, &token).await);
    go(member, account, gone).await;
    let begin = Instant::now();
    while is_authenticated(&member.review(&token, &[]).await) {
        is_good(stage, &token).await;
        assert!(begin.elapsed() < REMEMBERED, "the cluster never says no");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for _ in 0..AFTERWARDS {
        assert!(!is_good(stage, &token).await, "{}: good after its cluster said no", member.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_its_cluster_said_no_a_token_is_never_good_again() {
    let stage = Stage::get().await;
    let cases = [&stage.a, &stage.b, &stage.c].map(async |member| {
        let all = all_that_can_go(member, "reviewed-before").await;
        let each =
            all.iter().map(|(account, gone)| ends_no_later_than_directly(member, account, gone));
        join_all(each).await;
    });
    join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_nobody_reviewed_before_ends_at_once_with_what_it_is_bound_to() {
    let stage = Stage::get().await;
    for member in [&stage.a, &stage.b, &stage.c] {
        for (account, gone) in all_that_can_go(member, "never-reviewed").await {
            let [ours, direct] = [order(&account, &gone), order(&account, &gone)];
            let [ours, direct] = [member.token_as(ours).await, member.token_as(direct).await];
            go(member, &account, &gone).await;
            assert!(!is_authenticated(&member.review(&direct, &[]).await));
            assert!(!is_good(stage, &ours).await, "{}", member.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_gets_the_new_verdict_although_an_older_one_of_the_same_token_hangs() {
    let stage = Stage::get().await;
    let account = stage.b.account("older-hangs", "app").await;
    let secret = stage.b.secret(&account, "secret").await;
    let token = stage.b.token_as(TokenOrder::of(&account).bound_to(&secret)).await;
    let gate = Gate::closed();
    let first = (gate.clone(), std::sync::atomic::AtomicBool::new(true));
    // The first answer is on its way for long.
    let b = stage.b.disturbed(move |request| {
        let is_review = request.path.ends_with("/tokenreviews");
        match is_review && first.1.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => Fault::HoldBeforeAnswer(first.0.clone()),
            false => Fault::Forward,
        }
    });
    let b = b.await;
    let credential = credential(&stage.b, 160 * 3600).await;
    let config = stage.config(&[entry(&stage.b, &b.recording.url(), &credential)]);
    let product = stage.another_ready("older-hangs", config).await;
    let older = product.review(&stage.caller, &token, &[]);
    let newer = async {
        gate.reached_by(1).await;
        stage.b.delete(&secret).await;
        // Not to find what the API server remembers of the older one.
        let begin = Instant::now();
        while is_authenticated(&stage.b.review(&token, &[]).await) {
            assert!(begin.elapsed() < REMEMBERED, "the cluster never says no");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let newer = status(&product.review(&stage.caller, &token, &[]).await);
        gate.open();
        newer
    };
    let (_, newer) = tokio::join!(older, newer);
    assert!(!is_authenticated(&newer), "{}", json!(newer["error"]));
}
