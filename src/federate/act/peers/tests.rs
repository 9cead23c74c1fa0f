mod telling;

use chrono::TimeDelta;

use super::*;
use crate::spiffe::{
    bundle::Authority,
    testing::{self, Ca, noon},
};

fn bundle(authorities: &[&Ca], sequence: u64) -> Bundle {
    Bundle {
        sequence: Some(sequence),
        refresh_hint: Some(Duration::from_secs(60)),
        ..testing::bundle(authorities)
    }
}

fn recorded(outcomes: Vec<(i64, Result<Bundle, PeerError>)>) -> PeerState {
    let mut known = PeerState::default();
    for (minutes, outcome) in outcomes {
        known.record(outcome.into(), noon() + TimeDelta::minutes(minutes));
    }
    known
}

fn no_bootstrap() -> PeerError {
    PeerError::NoBootstrap { trust_domain: "td-b.test".to_owned() }
}

#[test]
fn a_bundle_is_as_old_as_its_keys_and_not_as_its_last_fetch() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let known = recorded(vec![
        (0, Ok(bundle(&[&old], 1))),
        (5, Ok(bundle(&[&old], 1))),
        (10, Ok(bundle(&[&old, &new], 2))),
        (15, Ok(bundle(&[&old, &new], 2))),
    ]);
    let status = known.status("td-b.test");
    assert_eq!(status.last_success_time, Some(noon() + TimeDelta::minutes(15)));
    assert_eq!(status.bundle_since, Some(noon() + TimeDelta::minutes(10)));
    assert_eq!((status.sequence, status.x509_authorities), (Some(2), Some(2)));
    assert!(status.reachable && status.profile_verified && status.last_error.is_none());
}

#[test]
fn a_peer_that_went_dark_keeps_its_bundle_and_says_what_is_wrong() {
    let known = recorded(vec![(0, Ok(bundle(&[&Ca::new("a")], 1))), (5, Err(no_bootstrap()))]);
    let status = known.status("td-b.test");
    assert!(!status.reachable && !status.profile_verified);
    assert_eq!((status.sequence, status.last_success_time), (Some(1), Some(noon())));
    assert!(status.last_error.unwrap().contains("trustplane federation bootstrap"));
}

#[test]
fn a_peer_is_asked_four_times_a_hint_and_within_bounds() {
    let hint = |seconds| {
        let bundle = Bundle { refresh_hint: seconds, ..testing::bundle(&[&Ca::new("a")]) };
        recorded(vec![(0, Ok(bundle))]).interval()
    };
    assert_eq!(hint(Some(Duration::from_secs(300))), Duration::from_secs(75));
    assert_eq!(hint(None), Duration::from_secs(75), "five minutes where there is no hint");
    assert_eq!(hint(Some(Duration::from_secs(1))), Duration::from_secs(15));
    assert_eq!(hint(Some(Duration::from_secs(10_000_000))), Duration::from_secs(6 * 3_600));
    assert_eq!(PeerState::default().interval(), Duration::from_secs(75));
}

fn written(existing: Option<&PeerStatus>, known: Option<&PeerState>) -> PeerStatus {
    worth_writing(existing, known, "td-b.test")
}

#[test]
fn a_success_is_written_once_a_hint_and_everything_else_at_once() {
    let ca = Ca::new("a");
    let first = written(None, Some(&recorded(vec![(0, Ok(bundle(&[&ca], 1)))])));
    let after = |seconds: i64, sequence| {
        let mut known = recorded(vec![(0, Ok(bundle(&[&ca], 1)))]);
        known.record(Ok(bundle(&[&ca], sequence)).into(), noon() + TimeDelta::seconds(seconds));
        written(Some(&first), Some(&known))
    };
    assert_eq!(after(59, 1), first);
    assert_eq!(after(60, 1).last_success_time, Some(noon() + TimeDelta::seconds(60)));
    assert_eq!(after(15, 2).sequence, Some(2));
}

#[test]
fn a_success_that_a_wrong_clock_dated_into_the_future_does_not_stand_there_until_then() {
    let ca = Ca::new("a");
    // The leader's clock was a day ahead; it was set right, or another replica leads now.
    let ahead = recorded(vec![(24 * 60, Ok(bundle(&[&ca], 1)))]).status("td-b.test");
    let known = recorded(vec![(0, Ok(bundle(&[&ca], 1)))]);
    let told = written(Some(&ahead), Some(&known));
    assert_eq!(told.last_success_time, Some(noon()), "a peer can't have answered tomorrow");
}

#[test]
fn a_peer_that_never_answered_is_news_once() {
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let peers = federating_with(&b);
    let is_news = || peers.news.notified().now_or_never().is_some();
    peers.hears(&b, Err(no_bootstrap()));
    assert!(is_news());
    peers.hears(&b, Err(no_bootstrap()));
    assert!(!is_news(), "each of fifty such peers has all objects read again with every try");
}

#[test]
fn a_new_process_neither_forgets_nor_repeats_what_an_earlier_one_saw() {
    let ca = Ca::new("a");
    let existing = recorded(vec![(0, Ok(bundle(&[&ca], 7)))]).status("td-b.test");
    assert_eq!(written(Some(&existing), None), existing, "nobody was asked yet");
    let fresh = recorded(vec![(0, Ok(bundle(&[&ca], 7)))]);
    assert_eq!(written(Some(&existing), Some(&fresh)), existing);
    let failing = recorded(vec![(1, Err(no_bootstrap()))]);
    let told = written(Some(&existing), Some(&failing));
    assert_eq!((told.sequence, told.last_success_time), (Some(7), Some(noon())));
    assert!(!told.reachable && told.last_error.is_some());
}

fn peer(trust_domain: &str, profile: Profile) -> Peer {
    Peer {
        trust_domain: trust_domain.to_owned(),
        bundle_endpoint_url: "https://127.0.0.1:1".to_owned(),
        bundle_endpoint_profile: profile,
        endpoint_spiffe_id: Some(format!("spiffe://{trust_domain}/spire/server")),
    }
}

impl Peers {
    /// Records this outcome of a fetch.
    pub(in crate::federate) fn hears(&self, peer: &Peer, outcome: Result<Bundle, PeerError>) {
        let asked = self.target(peer, &lock(&self.bootstrap_bundles).clone());
        self.record(&asked, outcome.into());
    }

    fn known(&self) -> BTreeMap<String, PeerState> {
        lock(&self.states).clone()
    }
}

fn peers() -> Arc<Peers> {
    peers_behind(Gate::open())
}

fn peers_behind(gate: Gate) -> Arc<Peers> {
    Peers::new(Clock::from_fn(noon), gate, Arc::new(RootCertStore::empty()))
}

/// Some that federate with this peer.
fn federating_with(peer: &Peer) -> Arc<Peers> {
    let peers = peers();
    peers.set_peers(std::slice::from_ref(peer));
    peers
}

/// The bundle of td-b.test that an administrator brought.
fn brought(ca: &Ca) -> BootstrapBundles {
    BootstrapBundles::from([("td-b.test".to_owned(), Arc::new(testing::bundle(&[ca])))])
}

/// The authorities that a peer's server is verified with.
fn trusted(peers: &Peers, peer: &Peer) -> Vec<Authority> {
    match peers.endpoint(peer).unwrap().trust {
        Trust::Spiffe { bundle, .. } => bundle.x509.clone(),
        Trust::Web { .. } => panic!("another profile"),
    }
}

/// Reports every error at once, with all details.
fn open_peers(gate: Gate) -> Arc<Peers> {
    let roots = Arc::new(RootCertStore::empty());
    Peers::with_detail(ErrorDetail::All, Clock::from_fn(noon), gate, roots)
}

#[test]
fn a_server_is_known_by_the_bundle_that_was_fetched_last_and_before_that_by_the_administrators() {
    let (first, fetched) = (Ca::new("brought"), Ca::new("fetched"));
    let peers = peers();
    let peer = peer("td-b.test", Profile::HttpsSpiffe);
    assert!(matches!(peers.endpoint(&peer), Err(PeerError::NoBootstrap { .. })));
    peers.set_bootstrap_bundles(brought(&first));
    assert_eq!(trusted(&peers, &peer), testing::bundle(&[&first]).x509);
    peers.set_peers(std::slice::from_ref(&peer));
    peers.hears(&peer, Ok(testing::bundle(&[&fetched])));
    assert_eq!(trusted(&peers, &peer), testing::bundle(&[&fetched]).x509);
}

#[test]
fn who_is_no_longer_a_peer_is_forgotten_and_who_changed_is_known_anew() {
    let peers = peers();
    let (b, c) = (peer("td-b.test", Profile::HttpsSpiffe), peer("td-c.test", Profile::HttpsWeb));
    peers.set_peers(&[b.clone(), c.clone()]);
    for it in [&b, &c] {
        peers.hears(it, Ok(testing::bundle(&[&Ca::new("a")])));
    }
    peers.set_peers(std::slice::from_ref(&b));
    assert_eq!(peers.known().keys().collect::<Vec<_>>(), ["td-b.test"]);
    let elsewhere = Peer { bundle_endpoint_url: "https://other.test".to_owned(), ..b };
    peers.set_peers(std::slice::from_ref(&elsewhere));
    assert!(peers.known()["td-b.test"].bundle.is_none());
}

#[test]
fn a_bundle_that_an_administrator_brings_anew_counts_more_than_the_one_that_was_fetched() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let (peers, b) = (peers(), peer("td-b.test", Profile::HttpsSpiffe));
    peers.set_bootstrap_bundles(brought(&old));
    peers.set_peers(std::slice::from_ref(&b));
    peers.hears(&b, Ok(testing::bundle(&[&old])));
    peers.set_bootstrap_bundles(brought(&new));
    assert_eq!(trusted(&peers, &b), testing::bundle(&[&new]).x509);
}

#[test]
fn what_was_asked_for_with_a_bundle_that_an_administrator_took_back_counts_no_more() {
    let (stolen, new) = (Ca::new("stolen"), Ca::new("new"));
    let (peers, b) = (peers(), peer("td-b.test", Profile::HttpsSpiffe));
    peers.set_bootstrap_bundles(brought(&stolen));
    peers.set_peers(std::slice::from_ref(&b));
    // The holder of a stolen key is being polled when the administrator imports another bundle; the
    // answer comes in before the task that asks is ended.
    let asked = peers.targets().remove(0);
    peers.set_bootstrap_bundles(brought(&new));
    peers.record(&asked, Ok(testing::bundle(&[&stolen])).into());
    assert_eq!(
        trusted(&peers, &b),
        testing::bundle(&[&new]).x509,
        "the stolen key is trusted again"
    );
    assert!(peers.to_cache().is_empty(), "and kept, as if the new bundle had led to it");
}

#[test]
fn what_comes_in_after_a_peer_was_taken_out_is_not_remembered() {
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let peers = federating_with(&b);
    peers.set_peers(&[]);
    peers.hears(&b, Ok(testing::bundle(&[&Ca::new("a")])));
    assert!(peers.known().is_empty());
}

#[test]
fn a_new_process_still_knows_a_server_whose_authorities_were_replaced_since_the_bootstrap() {
    let (first, rotated) = (Ca::new("brought"), Ca::new("rotated"));
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let start = || {
        let peers = federating_with(&b);
        peers.set_bootstrap_bundles(brought(&first));
        peers
    };
    let before = start();
    assert!(before.to_cache().is_empty());
    before.hears(&b, Ok(bundle(&[&first], 1)));
    assert!(before.to_cache().is_empty(), "what was brought is there already");
    before.hears(&b, Ok(bundle(&[&rotated], 2)));
    let existing = before.statuses(std::slice::from_ref(&b), &[]);

    // A restart, or the other replica takes the lead.
    let after = start();
    after.set_cached(before.to_cache());
    assert_eq!(after.to_cache().len(), 1, "it is not forgotten before the peer is asked");
    assert_eq!(after.statuses(std::slice::from_ref(&b), &existing), existing);
    let known = trusted(&after, &b).contains(&testing::bundle(&[&rotated]).x509[0]);
    assert!(known, "the SPIRE server goes on, and we report that its peer can't be verified");
}

#[test]
fn figures_of_a_dead_peer_outlive_the_process_that_last_reached_it() {
    // Of a peer by https_web nothing is kept but its status.
    let b = [peer("td-b.test", Profile::HttpsWeb)];
    let before = peers();
    before.set_peers(&b);
    before.hears(&b[0], Ok(bundle(&[&Ca::new("a")], 2)));
    let existing = before.statuses(&b, &[]);

    // A restart, or the other replica takes the lead, while b is dead.
    let after = peers();
    after.set_peers(&b);
    after.hears(&b[0], Err(no_bootstrap()));
    after.statuses(&b, &existing);
    let figures = |peers: Arc<Peers>| {
        let mut registry = prometheus_client::registry::Registry::default();
        crate::federate::metrics::Metrics::register(&mut registry, peers, Clock::from_fn(noon));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let text = figures(after.clone());
    for figure in ["up", "bundle_age_seconds", "bundle_expiry_timestamp_seconds"] {
        let line = format!("trustplane_federation_peer_{figure}{{trust_domain=\"td-b.test\"}} ");
        assert!(text.contains(&line), "the status still has it, no {figure} in:\n{text}");
    }
    after.set_peers(&[]);
    let text = figures(after);
    assert!(!text.contains("td-b.test"), "whoever is no peer any more has none:\n{text}");
}

#[test]
fn what_is_remembered_is_kept_while_nobody_knows_what_was_brought() {
    let (first, rotated) = (Ca::new("brought"), Ca::new("rotated"));
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let kept = CachedBundle {
        brought: testing::bundle(&[&first]).fingerprint(),
        bundle: Arc::new(testing::bundle(&[&rotated])),
    };
    let peers = federating_with(&b);
    peers.set_cached(BundleCache::from([("td-b.test".to_owned(), kept)]));
    // The version of the CRD is not served just now, during an upgrade say.
    assert_eq!(peers.to_cache().len(), 1, "the authorities that b is known by are gone for good");
    assert!(peers.endpoint(&b).is_err(), "without what was brought nothing is known of it");
    peers.set_bootstrap_bundles(brought(&first));
    assert_eq!(trusted(&peers, &b), testing::bundle(&[&rotated]).x509);
}

#[test]
fn what_is_remembered_does_not_count_once_an_administrator_brought_another_bundle() {
    let (old, rotated, new) = (Ca::new("old"), Ca::new("rotated"), Ca::new("new"));
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let peers = peers();
    peers.set_bootstrap_bundles(brought(&old));
    peers.set_peers(std::slice::from_ref(&b));
    peers.hears(&b, Ok(bundle(&[&rotated], 2)));
    let memory = peers.to_cache();
    peers.forget();
    peers.set_cached(memory);
    peers.set_peers(std::slice::from_ref(&b));
    peers.set_bootstrap_bundles(brought(&new));
    assert_eq!(trusted(&peers, &b), testing::bundle(&[&new]).x509);
    assert!(peers.to_cache().is_empty());
}

#[test]
fn what_comes_in_after_another_replica_took_the_lead_is_not_remembered() {
    let lease = tokio::sync::watch::Sender::new(None);
    let peers = peers_behind(Gate::until(lease.subscribe()));
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    peers.set_peers(std::slice::from_ref(&b));
    peers.forget();
    // It was asked while this replica led, and took its time to answer.
    peers.hears(&b, Ok(testing::bundle(&[&Ca::new("a")])));
    assert!(peers.known().is_empty(), "a standby would show a bundle that ages for ever");
}

/// A peer at a port of this machine.
async fn listening(profile: Profile) -> (tokio::net::TcpListener, Peer) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bundle_endpoint_url = format!("https://{}", listener.local_addr().unwrap());
    (listener, Peer { bundle_endpoint_url, ..peer("td-b.test", profile) })
}

fn leading() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(3_600))
}

#[tokio::test]
async fn a_replica_that_leads_again_asks_nobody_before_it_knows_what_the_other_kept_meanwhile() {
    let (listener, b) = listening(Profile::HttpsSpiffe).await;
    let lease = tokio::sync::watch::Sender::new(None);
    let peers = peers_behind(Gate::until(lease.subscribe()));
    let first = Ca::new("brought");
    peers.set_bootstrap_bundles(brought(&first));
    // It led once: this is what b had then.
    let bundle = Arc::new(testing::bundle(&[&Ca::new("of last week")]));
    let kept = CachedBundle { brought: testing::bundle(&[&first]).fingerprint(), bundle };
    peers.set_cached(BundleCache::from([("td-b.test".to_owned(), kept)]));
    peers.set_peers(std::slice::from_ref(&b));
    let asking = tokio::spawn(peers.clone().run());
    // The other replica led for a week, and b has other authorities by now.
    peers.forget();
    lease.send_replace(leading());
    let asked = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
    asking.abort();
    assert!(asked.is_err(), "b was asked with authorities of last week");
}

#[test]
fn a_standby_shows_no_figures() {
    let b = [peer("td-b.test", Profile::HttpsWeb)];
    let lease = tokio::sync::watch::Sender::new(leading());
    let peers = peers_behind(Gate::until(lease.subscribe()));
    peers.set_peers(&b);
    peers.hears(&b[0], Ok(bundle(&[&Ca::new("a")], 1)));
    peers.statuses(&b, &[]);
    assert_eq!(peers.figures().len(), 1);
    lease.send_replace(None);
    assert!(peers.figures().is_empty(), "before it has noticed, too");
}

#[tokio::test]
async fn after_the_lease_was_lost_for_a_moment_peers_are_asked_at_once() {
    let (listener, b) = listening(Profile::HttpsWeb).await;
    let lease = tokio::sync::watch::Sender::new(leading());
    let gate = Gate::until(lease.subscribe());
    let peers = open_peers(gate);
    peers.set_peers(std::slice::from_ref(&b));
    let asking = tokio::spawn(peers.clone().run());
    drop(listener.accept().await.unwrap());
    peers.news.notified().await;
    assert!(!peers.known().is_empty());

    // The API server did not answer for a quarter of a minute; nobody else took the lead.
    lease.send_replace(None);
    peers.forget();
    lease.send_replace(leading());
    peers.set_peers(std::slice::from_ref(&b));
    let asked = tokio::time::timeout(Duration::from_secs(10), listener.accept()).await;
    asking.abort();
    assert!(asked.is_ok(), "nothing tells of b for a quarter of its hint, six hours at most");
}

#[test]
fn a_peer_whose_endpoint_changed_is_not_verified_before_it_is_asked() {
    let b = peer("td-b.test", Profile::HttpsSpiffe);
    let peers = federating_with(&b);
    peers.hears(&b, Ok(bundle(&[&Ca::new("a")], 1)));
    let existing = peers.statuses(std::slice::from_ref(&b), &[]);
    assert!(existing[0].profile_verified);
    let elsewhere = [Peer { bundle_endpoint_url: "https://other.test".to_owned(), ..b }];
    peers.set_peers(&elsewhere);
    let told = peers.statuses(&elsewhere, &existing);
    assert!(!told[0].profile_verified, "nobody has asked the new endpoint: {:?}", told[0]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_is_heard_although_somebody_keeps_changing_the_bundle_of_another() {
    // It accepts connections, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let b = Peer {
        bundle_endpoint_url: format!("https://{}", silent.local_addr().unwrap()),
        ..peer("td-b.test", Profile::HttpsWeb)
    };
    let peers = federating_with(&b);
    let asking = tokio::spawn(peers.clone().run());
    for _ in 0..24 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let another = Arc::new(testing::bundle(&[&Ca::new("c")]));
        peers.set_bootstrap_bundles(BootstrapBundles::from([("td-c.test".to_owned(), another)]));
    }
    asking.abort();
    let known = peers.known();
    assert!(known.contains_key("td-b.test"), "two hints went by, and nothing is known of it");
}

#[test]
fn a_bundle_without_a_number_whose_jwt_key_was_replaced_is_as_old_as_the_new_key() {
    let ca = Ca::new("a");
    let with_key = |kid: &str| {
        let mut document = testing::document(&[&ca]);
        document["keys"].as_array_mut().unwrap().push(testing::jwt_key(kid));
        Bundle::parse(document.to_string().as_bytes()).unwrap()
    };
    let mut known = recorded(vec![(0, Ok(with_key("old")))]);
    let existing = written(None, Some(&known));
    known.record(Ok(with_key("new")).into(), noon() + TimeDelta::minutes(10));
    let told = written(Some(&existing), Some(&known));
    assert_eq!(told.bundle_since, Some(noon() + TimeDelta::minutes(10)));
}

#[test]
fn whoever_brings_bundles_and_whoever_keeps_them_never_wait_for_each_other() {
    let (peers, b) = (peers(), peer("td-b.test", Profile::HttpsSpiffe));
    let cas = [Ca::new("a"), Ca::new("b")];
    peers.set_peers(std::slice::from_ref(&b));
    peers.hears(&b, Ok(bundle(&[&cas[0]], 1)));
    let (done, ended) = std::sync::mpsc::channel();
    let other = peers.clone();
    std::thread::spawn(move || {
        for _ in 0..2_000 {
            other.set_cached(other.to_cache());
            other.known();
        }
        done.send(()).ok();
    });
    for ca in cas.iter().cycle().take(2_000) {
        peers.set_bootstrap_bundles(brought(ca));
        peers.hears(&b, Ok(bundle(&[ca], 2)));
    }
    assert!(ended.recv_timeout(Duration::from_secs(60)).is_ok());
}

#[test]
fn what_an_administrator_brings_of_a_peer_by_https_web_changes_nothing() {
    let b = peer("td-b.test", Profile::HttpsWeb);
    let peers = federating_with(&b);
    peers.hears(&b, Ok(bundle(&[&Ca::new("a")], 1)));
    peers.set_bootstrap_bundles(brought(&Ca::new("b")));
    assert!(peers.known()["td-b.test"].bundle.is_some());
}
