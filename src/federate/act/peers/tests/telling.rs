//! Reports about odd peers, and about those at private addresses.

use rcgen::date_time_ymd;

use super::*;
use crate::{
    bundle::fetch::{
        FetchError, Stage,
        tests::{Server, good, host_certificate},
    },
    spiffe::svid::SvidWarning,
};

#[test]
fn a_sequence_that_went_back_is_told_until_the_peer_goes_forward_again_whoever_saw_it() {
    let ca = Ca::new("a");
    let at = |sequence| recorded(vec![(0, Ok(bundle(&[&ca], sequence)))]);
    let first = written(None, Some(&at(9)));
    assert_eq!((first.sequence_went_back_from, first.warnings.len()), (None, 0));
    // Each time another process, which knows the earlier ones by the status alone.
    let back = written(Some(&first), Some(&at(7)));
    assert_eq!(back.sequence_went_back_from, Some(9));
    let told = &back.warnings[0];
    assert!(told.starts_with("the sequence of its bundle went back from 9 to 7"), "{told}");
    assert!(back.reachable && back.last_error.is_none(), "SPIRE takes it, so do we: {back:?}");
    assert_eq!(written(Some(&back), Some(&at(7))), back);
    assert_eq!(written(Some(&back), Some(&at(5))).sequence_went_back_from, Some(9));
    let forward = written(Some(&back), Some(&at(8)));
    assert_eq!((forward.sequence_went_back_from, forward.warnings.len()), (None, 0));
}

#[test]
fn authorities_that_are_not_yet_valid_are_told_and_are_no_success_where_there_are_no_others() {
    let early = Ca::with("early", |ca| ca.not_before = date_time_ymd(2031, 1, 1));
    let ended = Ca::with("ended", |ca| ca.not_after = date_time_ymd(2030, 1, 1));
    let valid = Ca::new("valid");
    let b = [peer("td-b.test", Profile::HttpsWeb)];
    let peers = federating_with(&b[0]);
    let hears = |authorities: &[&Ca]| {
        peers.hears(&b[0], peers.usable(bundle(authorities, 1)));
        peers.statuses(&b, &[]).remove(0)
    };
    let some = hears(&[&early, &valid]);
    assert_eq!((some.last_error, some.reachable), (None, true));
    let told = &some.warnings[0];
    assert!(told.starts_with("1 of the 2 authorities for X.509 in its bundle are not"), "{told}");
    for none in [vec![&early], vec![&early, &ended]] {
        let none = hears(&none);
        let error = none.last_error.unwrap();
        assert!(error.starts_with("no authority for X.509 in its bundle is valid yet"), "{error}");
        assert!(error.contains("2031-01-01"), "{error}");
    }
    assert!(hears(&[&ended]).last_error.unwrap().contains("have ended"));
}

#[test]
fn what_is_odd_about_a_peer_is_in_its_status_and_an_event_tells_one_kind_from_another() {
    let early = Ca::with("early", |ca| ca.not_before = date_time_ymd(2031, 1, 1));
    let b = [peer("td-b.test", Profile::HttpsSpiffe)];
    let peers = federating_with(&b[0]);
    peers.hears(&b[0], Ok(bundle(&[&Ca::new("a")], 9)));
    let existing = peers.statuses(&b, &[]);
    let asked = peers.targets().remove(0);
    let outcome = Ok(bundle(&[&Ca::new("a"), &early], 3));
    peers.record(&asked, Answer { outcome, warnings: vec![SvidWarning::ServerAuthAlone] });
    let told = peers.statuses(&b, &existing).remove(0);
    assert_eq!(told.warnings.len(), 3, "{told:?}");
    let warnings = peers.warnings();
    let reasons: Vec<_> = warnings.iter().map(|(_, warning)| warning.reason()).collect();
    assert_eq!(
        reasons,
        ["PeerCertificateForServersAlone", "PeerAuthoritiesNotYetValid", "PeerSequenceWentBack"]
    );
    assert!(warnings.iter().all(|(name, _)| name == "td-b.test"));
}

#[test]
fn what_went_wrong_at_a_private_address_is_told_in_one_word_however_it_did() {
    let refused = || FetchError::Refused;
    let slow = || FetchError::TooSlow { after: Duration::from_secs(30), stage: Stage::Connected };
    let answered = || FetchError::Status(404);
    let told = |detail: ErrorDetail, error: FetchError, internal: bool| {
        let error = detail.of(error, internal);
        let (topic, category) = (error.topic(), error.category());
        let status = recorded(vec![(0, Err(error))]).status("td-b.test");
        (status, topic, category)
    };
    let hidden = told(ErrorDetail::Public, refused(), true);
    assert!(hidden.0.last_error.as_ref().unwrap().starts_with("unreachable. "), "{hidden:?}");
    assert_eq!(hidden.2, "unreachable");
    for other in [slow(), FetchError::NotTls, answered(), FetchError::UnknownCa] {
        assert_eq!(told(ErrorDetail::Public, other, true), hidden);
    }
    let shown = told(ErrorDetail::Public, answered(), false);
    assert!(shown.0.reachable && shown.0.last_error.unwrap().contains("HTTP 404"));
    let shown = told(ErrorDetail::All, slow(), true);
    assert!(shown.0.reachable && shown.0.last_error.unwrap().starts_with("no answer within 30 s"));
    assert_eq!(ErrorDetail::Public.of(slow(), true).detail(), slow().to_string(), "in the log");
}

#[tokio::test(start_paused = true)]
async fn how_long_a_private_address_takes_to_fail_does_not_tell_a_closed_port_from_a_silent_one() {
    let (listener, silent) = listening(Profile::HttpsWeb).await;
    let (free, closed) = listening(Profile::HttpsWeb).await;
    drop(free);
    for peer in [silent, closed] {
        let peers = federating_with(&peer);
        let asking = tokio::spawn(peers.clone().run());
        let started = Instant::now();
        peers.news.notified().await;
        asking.abort();
        assert_eq!(started.elapsed().as_secs(), fetch::PATIENCE.as_secs(), "{peer:?}");
    }
    drop(listener);
}

#[tokio::test]
async fn a_peer_whose_authorities_have_all_ended_is_told_as_one_that_does_not_work() {
    let ended = Ca::with("td-b", |ca| ca.not_after = date_time_ymd(2030, 1, 1));
    let ca = Ca::new("web");
    let server = Server::start(host_certificate(&ca), good(&ended)).await;
    let mut roots = RootCertStore::empty();
    roots.add(ca.der()).unwrap();
    let peers = Peers::new(Clock::from_fn(noon), Gate::open(), Arc::new(roots));
    let peer = Peer {
        bundle_endpoint_url: server.url("/bundle").to_string(),
        endpoint_spiffe_id: None,
        ..peer("td-b.test", Profile::HttpsWeb)
    };
    peers.set_peers(std::slice::from_ref(&peer));
    let asking = tokio::spawn(peers.clone().run());
    peers.news.notified().await;
    asking.abort();
    let told = peers.statuses(&[peer], &[]).remove(0);
    assert!(told.reachable, "{told:?}");
    assert!(told.last_error.is_some(), "none of its workloads can be verified: {told:?}");
}
