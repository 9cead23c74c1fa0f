//! A cluster that signs with another key from now on, while it is asked all the time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::review::{KeptCaller, KeyKind, Member, Product, Profile, RawAnswer, SigningKey};
use tokio::task::JoinSet;

use super::stage::{Stage, credential, entry, install_remote, is_authenticated, status};

const CALLERS: usize = 8;
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// How reviews of valid tokens went.
type Outcomes = BTreeMap<&'static str, usize>;

fn outcome(answer: kube::Result<RawAnswer>) -> &'static str {
    match answer.map(|answer| (answer.code, answer.json())) {
        Ok((201, review)) if review["status"]["authenticated"] == true => "good",
        Ok((201, _)) => "called invalid",
        Ok((429, _)) => "429",
        Ok((503, _)) => "503",
        Ok(_) => "another code",
        Err(_) => "no answer",
    }
}

/// Callers that ask about tokens until this is dropped.
struct Load {
    tokens: Arc<Mutex<Vec<String>>>,
    outcomes: Arc<Mutex<Outcomes>>,
    callers: JoinSet<()>,
}

impl Load {
    /// Each caller asks one question every so often, or one after the other.
    async fn start(product: &Product, token: &str, every: Duration) -> Self {
        let tokens = Arc::new(Mutex::new(vec![token.to_owned()]));
        let outcomes = Arc::default();
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let caller = product.caller(&Stage::get().await.caller).await;
            callers.spawn(ask(caller, Arc::clone(&tokens), Arc::clone(&outcomes), every));
        }
        Self { tokens, outcomes, callers }
    }

    fn add(&self, token: &str) {
        self.tokens.lock().expect("nobody panics with it").push(token.to_owned());
    }

    async fn end(mut self) -> Outcomes {
        self.callers.shutdown().await;
        self.outcomes.lock().expect("nobody panics with it").clone()
    }
}

async fn ask(
    caller: KeptCaller,
    tokens: Arc<Mutex<Vec<String>>>,
    outcomes: Arc<Mutex<Outcomes>>,
    every: Duration,
) {
    loop {
        let begin = Instant::now();
        let token = {
            let tokens = tokens.lock().expect("nobody panics with it");
            tokens[fastrand::usize(..tokens.len())].clone()
        };
        let outcome = outcome(caller.review(&token).await);
        *outcomes.lock().expect("nobody panics with it").entry(outcome).or_default() += 1;
        tokio::time::sleep(every.saturating_sub(begin.elapsed())).await;
    }
}

/// With two keys to rotate to, of which the first is published before it is used.
async fn rotating() -> (Member, [SigningKey; 2]) {
    let stage = Stage::get().await;
    let next = [SigningKey::new(KeyKind::Rsa), SigningKey::new(KeyKind::P256)];
    let profile = Profile {
        name: "rotating",
        issuer: "https://rotating.clusters.test".to_owned(),
        signing: SigningKey::new(KeyKind::P384),
        public_keys: vec![next[0].public_pem()],
        flags: Vec::new(),
    };
    let member = Member::start(&stage.etcd, profile).await.unwrap_or_else(|why| panic!("{why}"));
    install_remote(&member).await;
    (member, next)
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_cluster_rotates_its_keys_no_valid_token_is_called_invalid() {
    let stage = Stage::get().await;
    let (member, keys) = rotating().await;
    let of_member = entry(&member, &member.proxy().url(), &credential(&member, 160 * 3600).await);
    let product = stage.another_ready("rotation", stage.config(&[of_member])).await;
    let account = member.account("rotation", "app").await;
    let old = member.token(&account).await;
    let load = Load::start(&product, &old, Duration::ZERO).await;
    tokio::time::sleep(MEASURED_FOR).await;
    let measured = load.end().await["good"];

    // At half of that rate.
    let every = MEASURED_FOR * 2 * CALLERS as u32 / measured as u32;
    let load = Load::start(&product, &old, every).await;
    // Published first, and not.
    for key in keys {
        member.rotate(&stage.etcd, &key).await;
        let new = member.token(&account).await;
        let told = status(&product.review(&stage.caller, &new, &[]).await);
        assert!(is_authenticated(&told), "{}", told["error"]);
        load.add(&new);
    }
    tokio::time::sleep(MEASURED_FOR).await;
    let outcomes = load.end().await;
    println!("{measured} reviews in {MEASURED_FOR:?}; at half of that rate: {outcomes:?}");
    for wrong in ["called invalid", "another code", "no answer"] {
        assert_eq!(outcomes.get(wrong), None, "{}", json!(outcomes));
    }
    assert!(outcomes["good"] > 0);
}
