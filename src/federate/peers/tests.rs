use chrono::TimeDelta;

use super::*;
use crate::spiffe::testing::{self, Ca};

fn noon() -> DateTime<Utc> {
    testing::noon()
}

fn bundle(authorities: &[&Ca], sequence: u64) -> Bundle {
    Bundle {
        sequence: Some(sequence),
        refresh_hint: Some(Duration::from_secs(60)),
        ..testing::bundle(authorities)
    }
}

fn learned(outcomes: Vec<(i64, Result<Bundle, PeerError>)>) -> Known {
    let mut known = Known::default();
    for (minutes, outcome) in outcomes {
        known.learn(outcome, noon() + TimeDelta::minutes(minutes));
    }
    known
}

fn dark() -> PeerError {
    PeerError::NoBootstrap { trust_domain: "td-b.test".to_owned() }
}

#[test]
fn a_bundle_is_as_old_as_its_keys_and_not_as_its_last_fetch() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let known = learned(vec![
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
    let known = learned(vec![(0, Ok(bundle(&[&Ca::new("a")], 1))), (5, Err(dark()))]);
    let status = known.status("td-b.test");
    assert!(!status.reachable && !status.profile_verified);
    assert_eq!((status.sequence, status.last_success_time), (Some(1), Some(noon())));
    assert!(status.last_error.unwrap().contains("trustplane federation bootstrap"));
}

#[test]
fn a_peer_is_asked_four_times_a_hint_and_within_bounds() {
    let hint = |seconds| {
        let bundle = Bundle { refresh_hint: seconds, ..testing::bundle(&[&Ca::new("a")]) };
        learned(vec![(0, Ok(bundle))]).interval()
    };
    assert_eq!(hint(Some(Duration::from_secs(300))), Duration::from_secs(75));
    assert_eq!(hint(None), Duration::from_secs(75), "five minutes where there is no hint");
    assert_eq!(hint(Some(Duration::from_secs(1))), Duration::from_secs(15));
    assert_eq!(hint(Some(Duration::from_secs(10_000_000))), Duration::from_secs(6 * 3_600));
    assert_eq!(Known::default().interval(), Duration::from_secs(75));
}

fn written(standing: Option<&PeerStatus>, known: Option<&Known>) -> PeerStatus {
    let now = known.cloned().unwrap_or_default().status("td-b.test");
    worth_writing(standing, known, now)
}

#[test]
fn a_success_is_written_once_a_hint_and_everything_else_at_once() {
    let ca = Ca::new("a");
    let first = written(None, Some(&learned(vec![(0, Ok(bundle(&[&ca], 1)))])));
    let after = |seconds: i64, sequence| {
        let mut known = learned(vec![(0, Ok(bundle(&[&ca], 1)))]);
        known.learn(Ok(bundle(&[&ca], sequence)), noon() + TimeDelta::seconds(seconds));
        written(Some(&first), Some(&known))
    };
    assert_eq!(after(59, 1), first);
    assert_eq!(after(60, 1).last_success_time, Some(noon() + TimeDelta::seconds(60)));
    assert_eq!(after(15, 2).sequence, Some(2));
}

#[test]
fn a_new_process_neither_forgets_nor_repeats_what_an_earlier_one_saw() {
    let ca = Ca::new("a");
    let standing = learned(vec![(0, Ok(bundle(&[&ca], 7)))]).status("td-b.test");
    assert_eq!(written(Some(&standing), None), standing, "nobody was asked yet");
    let fresh = learned(vec![(0, Ok(bundle(&[&ca], 7)))]);
    assert_eq!(written(Some(&standing), Some(&fresh)), standing);
    let failing = learned(vec![(1, Err(dark()))]);
    let told = written(Some(&standing), Some(&failing));
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

fn peers() -> Arc<Peers> {
    let clock = Clock::from_fn(noon);
    Peers::new(clock, Gate::open(), Arc::new(RootCertStore::empty()))
}

#[test]
fn a_server_is_known_by_the_bundle_that_was_fetched_last_and_before_that_by_the_administrators() {
    let (brought, fetched) = (Ca::new("brought"), Ca::new("fetched"));
    let peers = peers();
    let peer = peer("td-b.test", Profile::HttpsSpiffe);
    assert!(matches!(peers.endpoint(&peer), Err(PeerError::NoBootstrap { .. })));
    let trusted = |peers: &Peers| match peers.endpoint(&peer).unwrap().trust {
        Trust::Spiffe { bundle, .. } => bundle.x509.clone(),
        Trust::Web(_) => panic!("another profile"),
    };
    peers.trust(Anchors::from([("td-b.test".to_owned(), Arc::new(testing::bundle(&[&brought])))]));
    assert_eq!(trusted(&peers), testing::bundle(&[&brought]).x509);
    peers.want(std::slice::from_ref(&peer));
    peers.learn(&peer, Ok(testing::bundle(&[&fetched])));
    assert_eq!(trusted(&peers), testing::bundle(&[&fetched]).x509);
}

#[test]
fn who_is_no_longer_a_peer_is_forgotten_and_who_changed_is_known_anew() {
    let peers = peers();
    let (b, c) = (peer("td-b.test", Profile::HttpsSpiffe), peer("td-c.test", Profile::HttpsWeb));
    peers.want(&[b.clone(), c.clone()]);
    for it in [&b, &c] {
        peers.learn(it, Ok(testing::bundle(&[&Ca::new("a")])));
    }
    peers.want(std::slice::from_ref(&b));
    assert_eq!(peers.known().keys().collect::<Vec<_>>(), ["td-b.test"]);
    let elsewhere = Peer { bundle_endpoint_url: "https://other.test".to_owned(), ..b };
    peers.want(std::slice::from_ref(&elsewhere));
    assert!(peers.known().is_empty());
}

#[test]
fn a_bundle_that_an_administrator_brings_anew_counts_more_than_the_one_that_was_fetched() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let (peers, b) = (peers(), peer("td-b.test", Profile::HttpsSpiffe));
    let anchor =
        |ca: &Ca| Anchors::from([("td-b.test".to_owned(), Arc::new(testing::bundle(&[ca])))]);
    peers.trust(anchor(&old));
    peers.want(std::slice::from_ref(&b));
    peers.learn(&b, Ok(testing::bundle(&[&old])));
    peers.trust(anchor(&new));
    let Trust::Spiffe { bundle, .. } = peers.endpoint(&b).unwrap().trust else {
        panic!("another profile")
    };
    assert_eq!(bundle.x509, testing::bundle(&[&new]).x509);
}

#[test]
fn what_comes_in_after_a_peer_was_taken_out_is_not_remembered() {
    let (peers, b) = (peers(), peer("td-b.test", Profile::HttpsSpiffe));
    peers.want(std::slice::from_ref(&b));
    peers.want(&[]);
    peers.learn(&b, Ok(testing::bundle(&[&Ca::new("a")])));
    assert!(peers.known().is_empty());
}
