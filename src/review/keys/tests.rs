use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::review::{
    decide::{
        detect::{Detected, detect},
        testing::{Issuer, claims, noon},
        token::Token,
    },
    testing::{ApiServer, config},
};

struct Stage {
    servers: Vec<Arc<ApiServer>>,
    store: Arc<KeyStore>,
}

impl Stage {
    /// Clusters `c0`, `c1` and so on, of one issuer.
    async fn start(count: usize) -> Self {
        let servers: Vec<Arc<ApiServer>> = (0..count).map(|_| Arc::default()).collect();
        let named = servers
            .iter()
            .enumerate()
            .map(|(number, server)| (format!("c{number}").into(), config(), server.client()));
        let store = KeyStore::new(named, Duration::from_secs(300));
        for name in store.members.keys() {
            tokio::spawn(store.clone().keep(name.clone()));
        }
        while !store.missing().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        Self { servers, store }
    }

    fn detected(&self, text: &str) -> Detected {
        detect(&Token::read(text).ok().unwrap(), &self.store.directory(), noon())
    }

    async fn refresh(&self, cluster: &str) -> Refreshed {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.store.refresh(&[cluster.into()], deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_known_after_a_refresh() {
    let stage = Stage::start(1).await;
    let new = Issuer::p256("new");
    stage.servers[0].publish(&[&new]);
    let text = new.token(&claims());
    assert_eq!(stage.detected(&text), Detected::UnknownKey(vec!["c0".into()]));
    assert_eq!(stage.refresh("c0").await, Refreshed::All);
    assert_eq!(stage.detected(&text), Detected::Of("c0".into()));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_was_sent_before_somebody_asked_does_not_count() {
    let stage = Stage::start(1).await;
    *lock(&stage.servers[0].delay) = Duration::from_secs(2);
    let (store, c0) = (stage.store.clone(), [Arc::from("c0")]);
    let deadline = Instant::now() + Duration::from_secs(10);
    let early = tokio::spawn(async move { store.refresh(&c0, deadline).await });
    sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.servers[0].fetches(), 2, "one is under way");
    // Its answer is on the way without this key.
    let new = Issuer::p256("new");
    stage.servers[0].publish(&[&new]);
    assert_eq!(stage.refresh("c0").await, Refreshed::All);
    assert_eq!(early.await.unwrap(), Refreshed::All);
    assert_eq!(stage.detected(&new.token(&claims())), Detected::Of("c0".into()));
    assert_eq!(stage.servers[0].fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_last_good_keys_stay_through_an_outage() {
    let stage = Stage::start(1).await;
    let key = Issuer::p256("k");
    stage.servers[0].publish(&[&key]);
    assert_eq!(stage.refresh("c0").await, Refreshed::All);
    *lock(&stage.servers[0].code) = Some(503);
    assert_eq!(stage.refresh("c0").await, Refreshed::NotAll);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(stage.detected(&key.token(&claims())), Detected::Of("c0".into()));
    let state = stage.store.state("c0").unwrap();
    assert!(state.error.unwrap().contains("503"));
    // It is asked again without anybody's asking, and not often.
    let asked = stage.servers[0].fetches();
    assert!((300..600).contains(&asked), "{asked} fetches in an hour");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_unknown_keys_makes_one_fetch_a_second_of_each_cluster() {
    let stage = Stage::start(3).await;
    let begin = Instant::now();
    let mut asked = 0;
    while begin.elapsed() < Duration::from_secs(20) {
        let store = stage.store.clone();
        tokio::spawn(async move {
            let all = ["c0", "c1", "c2"].map(Arc::from);
            store.refresh(&all, Instant::now() + Duration::from_secs(10)).await
        });
        sleep(Duration::from_millis(5)).await;
        asked += 1;
    }
    assert!(asked > 3000);
    for server in &stage.servers {
        assert!((15..=23).contains(&server.fetches()), "{} fetches", server.fetches());
    }
}

#[tokio::test(start_paused = true)]
async fn all_clusters_together_are_asked_fifty_times_a_second_at_most() {
    let begin = Instant::now();
    let stage = Stage::start(200).await;
    assert!(begin.elapsed() >= Duration::from_millis(3900), "{:?}", begin.elapsed());
    let before: usize = stage.servers.iter().map(|it| it.fetches()).sum();
    let all: Vec<Arc<str>> = stage.store.members.keys().cloned().collect();
    let deadline = Instant::now() + Duration::from_secs(1);
    assert_eq!(stage.store.refresh(&all, deadline).await, Refreshed::NotAll);
    let after: usize = stage.servers.iter().map(|it| it.fetches()).sum();
    assert!((after - before) <= 51, "{}", after - before);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_delays_no_other() {
    let stage = Stage::start(2).await;
    *lock(&stage.servers[0].delay) = Duration::from_secs(60);
    let begin = Instant::now();
    let c0 = ["c0".into()];
    let hanging = stage.store.refresh(&c0, begin + Duration::from_secs(10));
    let (hung, well) =
        tokio::join!(hanging, async { (stage.refresh("c1").await, begin.elapsed()) });
    assert_eq!(hung, Refreshed::NotAll);
    assert_eq!(well.0, Refreshed::All);
    assert!(well.1 < Duration::from_secs(2), "{:?}", well.1);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_too_many_or_too_long_are_not_taken() {
    let stage = Stage::start(1).await;
    let key = Issuer::p256("k");
    stage.servers[0].publish(&[&key]);
    stage.refresh("c0").await;
    for keys in [vec![json!({ "n": "A".repeat(LONGEST) })], vec![key.jwk(); 65]] {
        *lock(&stage.servers[0].keys) = keys;
        assert_eq!(stage.refresh("c0").await, Refreshed::NotAll);
        assert_eq!(stage.detected(&key.token(&claims())), Detected::Of("c0".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_older_store_knows_is_not_fetched_again_before_its_time_or_somebody_asks() {
    let stage = Stage::start(2).await;
    let clients = ["c0", "c1"].iter().zip(&stage.servers);
    let clients = clients.map(|(name, it)| (Arc::from(*name), config(), it.client()));
    let newer = KeyStore::new(clients, Duration::from_secs(300));
    newer.adopt(&stage.store, |_| true);
    let before: Vec<_> = stage.servers.iter().map(|it| it.fetches()).collect();
    for name in ["c0", "c1"] {
        tokio::spawn(newer.clone().keep(name.into()));
    }
    let key = Issuer::p256("k");
    stage.servers[0].publish(&[&key]);
    sleep(Duration::from_secs(1)).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    assert_eq!(newer.refresh(&["c0".into()], deadline).await, Refreshed::All);
    let after: Vec<_> = stage.servers.iter().map(|it| it.fetches()).collect();
    assert_eq!(after, [before[0] + 1, before[1]]);
}
