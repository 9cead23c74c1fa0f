use std::time::Duration;

use chrono::TimeDelta;
use prometheus_client::registry::Registry;
use rustls::RootCertStore;

use super::*;
use crate::{
    authority::{
        act::fetch::{ErrorDetail, NetworkFetcher},
        decide::{
            ca,
            sync::{Policy, conclude},
            testing::{federation, noon, received, web},
        },
        join::{server::JoinOptions, view::Unready},
        metrics::{Metrics, Source},
        run::Options,
    },
    demo::api_server,
    k8s::gate::Gate,
    runtime::{audit_log::AuditLog, clock::Clock, tls_listener::PeerAddress},
    spiffe::{
        id::TrustDomain,
        testing::{Ca, document},
    },
};

const POLICY: Policy = Policy { shortest_interval: TimeDelta::minutes(1) };

/// A replica that others join at, on an API server without objects.
fn authority() -> Arc<Authority> {
    let clock = Clock::from_fn(noon);
    let server = api_server::server(api_server::store(1000, 7), clock.clone());
    let join = JoinOptions {
        listen: None,
        client: server.client(),
        certificate: None,
        peers: PeerAddress::Connection,
    };
    let hours = TimeDelta::hours;
    let options = Options {
        trust_domain: TrustDomain::parse("own.test").unwrap(),
        namespace: "trustplane".to_owned(),
        ca: ca::Policy { refresh_hint: hours(1), ca_ttl: hours(24), svid_ttl: hours(1) },
        sync: POLICY,
        new_authority: false,
        spiffe_listen: None,
        web: None,
        join: Some(join),
        poll: Duration::from_secs(10),
        watch_timeout: Duration::from_secs(60),
        instance: "test".to_owned(),
    };
    let roots = Arc::new(RootCertStore::empty());
    let patience = Duration::from_secs(1);
    let fetcher = Box::new(NetworkFetcher { roots, detail: ErrorDetail::All, patience });
    let metrics = Metrics::register(&mut Registry::default(), Source::new(clock.clone()));
    let audit = AuditLog::to(Box::new(std::io::sink()));
    Authority::new(server.client(), Gate::open(), clock, options, audit, fetcher, metrics)
}

#[tokio::test]
async fn who_is_judged_after_the_federations_were_heard_of_is_judged_by_what_was_heard() {
    let (authority, partner) = (authority(), TrustDomain::parse("b.test").unwrap());
    let bundle = document(&[&Ca::new("b.test")]).to_string();
    let mut deleted = federation("b.test", 1, web());
    deleted.status = conclude(&deleted, Ok(received(&bundle)), &POLICY, 0.0, noon()).status;
    authority.remember(&deleted);
    authority.refresh_trusted();
    let is_trusted = || authority.view.trusted().bundle(&partner).is_some();
    assert!(is_trusted());

    // It was deleted while the watch was dead. Nobody else looks at the federations meanwhile.
    authority.view.heard_of(Watched::Tokens, Instant::now());
    let is_heard = || {
        let ready = authority.view.check_ready(Instant::now());
        !matches!(ready, Err(Unready::Federations))
    };
    assert!(!is_heard());
    let heard = async {
        while !is_heard() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = authority.clone().watch_federations() => unreachable!(),
        () = heard => {}
    }
    assert!(!is_trusted(), "a client of a deleted federation could join");
}
