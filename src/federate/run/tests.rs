use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::{
    api::spire_server::{FederationStatus, Peer, PeerStatus, SpireFetch},
    bundle::fetch::FetchError,
    federate::decide::{
        bootstrap_bundles::bootstrap_bundles,
        conditions, merge,
        render::{
            PodUser, Proxy,
            tests::{server, setting, spiffe},
        },
        validate::Problem,
    },
    k8s::client,
    spiffe::testing::{self, Ca},
};

/// A controller whose API server answers like this, by path.
fn federator(
    setting: RenderContext,
    answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
) -> Arc<Federator> {
    federator_reading(setting, move |path, _| answer(path))
}

/// The same where it reads what it is sent, too.
fn federator_reading(
    setting: RenderContext,
    answer: impl Fn(&str, String) -> (u16, Value) + Send + Sync + 'static,
) -> Arc<Federator> {
    let answer = Arc::new(answer);
    let wire = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let path = request.uri().path().to_owned();
            let sent = request.into_body().collect_bytes().await.unwrap_or_default();
            let (code, body) = answer(&path, String::from_utf8_lossy(&sent).into_owned());
            let body = Body::from(body.to_string().into_bytes());
            Response::builder().status(code).body(body)
        }
    });
    let (clock, gate) = (Clock::from_fn(testing::noon), Gate::open());
    let peers = Peers::new(clock.clone(), gate.clone(), Arc::new(RootCertStore::empty()));
    let metrics = Metrics::register(&mut Registry::default(), peers.clone(), clock.clone());
    let options = Options {
        setting,
        mode: Mode::Full,
        resync: Duration::from_secs(300),
        watch_timeout: Duration::from_secs(60),
        instance: "test".to_owned(),
        max_peers: 50,
        server_metrics: None,
    };
    Federator::new(client::over(wire, gate.clone()), gate, clock, options, peers, metrics)
}

/// One whose API server takes Events, and answers everything else like this. And how many it took.
fn counting_events(code: u16, reason: &'static str) -> (Arc<Federator>, Arc<Mutex<usize>>) {
    let taken = Arc::new(Mutex::new(0));
    let count = taken.clone();
    let federator = federator(setting(), move |path| {
        if path.ends_with("/events") {
            *lock(&count) += 1;
            return (201, json!({ "metadata": {} }));
        }
        (code, json!({ "code": code, "reason": reason, "status": "Failure" }))
    });
    (federator, taken)
}

#[tokio::test]
async fn a_peer_that_goes_dark_is_told_although_something_else_in_the_object_is_wrong() {
    let mut server = server(spiffe());
    let peer = server.spec.federation.as_ref().unwrap().federates_with[0].clone();
    let well = PeerStatus {
        trust_domain: peer.trust_domain.clone(),
        reachable: true,
        profile_verified: true,
        last_success_time: Some(testing::noon()),
        ..PeerStatus::default()
    };
    server.status.federation =
        Some(FederationStatus { peers: vec![well], ..FederationStatus::default() });
    let federator = federator(setting(), |_| (404, json!({})));
    federator.peers.set_peers(&[peer]);
    let asking = tokio::spawn(federator.peers.clone().run());
    // Nobody has brought its bundle, so it fails at once.
    federator.peers.news.notified().await;
    asking.abort();

    let problems = vec![Problem::new("spec.federation.federatesWith[7]", "it names no host")];
    let findings = Findings { problems, ..Findings::default() };
    let told = federator.federation_status(&server, &findings).unwrap();
    assert!(!told.peers[0].profile_verified, "the last fetch failed: {:?}", told.peers[0]);
    assert!(told.peers[0].last_error.is_some());
}

/// An object of td-b.test, made in this year.
fn domain(name: &str, year: u16, class: Value, ca: &Ca) -> (String, FederatedTrustDomain) {
    let object = json!({
        "metadata": { "name": name, "creationTimestamp": format!("{year}-01-01T00:00:00Z") },
        "spec": {
            "trustDomain": "td-b.test",
            "bundleEndpointURL": "https://b.example",
            "bundleEndpointProfile": { "type": "https_web" },
            "trustDomainBundle": testing::document(&[ca]).to_string(),
            "className": class,
        },
    });
    (name.to_owned(), serde_json::from_value(object).unwrap())
}

#[test]
fn of_two_objects_for_a_trust_domain_the_older_counts_as_for_the_controller_manager() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let domains = BTreeMap::from([
        domain("b", 2025, Value::Null, &old),
        domain("z", 2026, Value::Null, &new),
    ]);
    assert_eq!(bootstrap_bundles(&domains)["td-b.test"].x509, testing::bundle(&[&old]).x509);
}

#[tokio::test]
async fn what_was_told_of_peers_stays_where_the_memory_of_them_cannot_be_read() {
    let mut server = server(spiffe());
    let peers = &server.spec.federation.as_ref().unwrap().federates_with;
    let told = |peer: &Peer| PeerStatus {
        trust_domain: peer.trust_domain.clone(),
        reachable: true,
        last_success_time: Some(testing::noon()),
        ..PeerStatus::default()
    };
    let existing: Vec<_> = peers.iter().map(told).collect();
    server.status.federation =
        Some(FederationStatus { peers: existing.clone(), ..FederationStatus::default() });
    let federator = federator(setting(), |_| (503, json!({ "code": 503 })));
    assert!(federator.update_peers(&server).await.is_err());
    let status = federator.federation_status(&server, &Findings::default()).unwrap();
    assert_eq!(status.peers, existing);
}

#[tokio::test]
async fn what_spire_fetched_from_the_old_endpoint_of_a_peer_says_nothing_about_a_new_one() {
    let mut server = server(spiffe());
    let peers = &server.spec.federation.as_ref().unwrap().federates_with;
    let fetched = |peer: &Peer| PeerStatus {
        trust_domain: peer.trust_domain.clone(),
        spire_fetch: Some(SpireFetch::Ok),
        ..PeerStatus::default()
    };
    let peers = peers.iter().map(fetched).collect();
    server.status.federation = Some(FederationStatus { peers, ..FederationStatus::default() });
    let absent = json!({ "code": 404, "reason": "NotFound", "status": "Failure" });
    let federator = federator(setting(), move |_| (404, absent.clone()));
    federator.update_peers(&server).await.unwrap();
    let told = |server: &SpireServer| {
        let status = federator.federation_status(server, &Findings::default()).unwrap();
        status.peers.into_iter().map(|it| it.spire_fetch).collect::<Vec<_>>()
    };
    assert_eq!(told(&server), [Some(SpireFetch::Ok), Some(SpireFetch::Ok)], "it was told before");
    server.spec.federation.as_mut().unwrap().federates_with[0].bundle_endpoint_url =
        "https://elsewhere.example".to_owned();
    federator.update_peers(&server).await.unwrap();
    assert_eq!(told(&server), [Some(SpireFetch::Unknown), Some(SpireFetch::Ok)]);
}

#[tokio::test]
async fn a_lasting_problem_of_one_peer_is_not_told_anew_because_of_another_that_comes_and_goes() {
    let (federator, told) = counting_events(404, "NotFound");
    let server = server(spiffe());
    let mut peers = server.spec.federation.as_ref().unwrap().federates_with.clone();
    peers.push(Peer { trust_domain: "td-c.test".to_owned(), ..peers[0].clone() });
    federator.peers.set_peers(&peers);
    for number in 0..20 {
        let cause = Box::new(FetchError::Status(404));
        let to = format!("https://c.test/{number}");
        federator.peers.hears(&peers[0], Err(FetchError::Refused.into()));
        federator.peers.hears(&peers[1], Err(FetchError::Redirected { to, cause }.into()));
        federator.warn(&server, &[], &[]).await.unwrap();
    }
    assert_eq!(*lock(&told), 2, "one of each peer");
    federator.peers.hears(&peers[0], Err(FetchError::Expired.into()));
    federator.warn(&server, &[], &[]).await.unwrap();
    assert_eq!(*lock(&told), 3, "something else is the matter with it");
}

#[tokio::test]
async fn what_was_put_right_is_told_although_the_status_can_t_be_written() {
    let (federator, told) = counting_events(409, "Conflict");
    let put_right =
        (Component::Route, ApplyResult::Updated(vec!["spec.host".to_owned()], json!({})));
    let findings = Findings { outcomes: vec![put_right], ..Findings::default() };
    assert!(federator.report(&server(spiffe()), &findings).await.is_err());
    assert_eq!(*lock(&told), 1);
}

#[tokio::test]
async fn the_endpoint_is_told_where_it_is_and_not_where_it_would_be() {
    let server = server(spiffe());
    let federator = federator(setting(), |_| (404, json!({})));
    let live = json!({ "spec": { "host": "old.example.com" } });
    for outcome in [
        ApplyResult::OutOfStep(vec!["spec.host".to_owned()], live),
        ApplyResult::Taken("somebody else".to_owned()),
    ] {
        let findings = Findings {
            create_only: true,
            host: Some("new.example.com".to_owned()),
            outcomes: vec![(Component::Route, outcome.clone())],
            ..Findings::default()
        };
        let told = federator.federation_status(&server, &findings).unwrap().endpoint_url;
        assert_ne!(told.as_deref(), Some("https://new.example.com"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_domain_of_routes_that_nobody_needs_and_that_cannot_be_read_stops_nothing() {
    let mut federation = spiffe();
    federation["routeHost"] = json!("bundle.example.com");
    let server = json!(server(federation));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let nowhere = RenderContext { apps_domain: None, ..setting() };
    let federator = federator(nowhere, move |path| {
        lock(&seen).push(path.to_owned());
        match path {
            "/apis/operator.openshift.io/v1alpha1/spireservers/cluster" => (200, server.clone()),
            "/apis/config.openshift.io/v1/ingresses/cluster" => (500, json!({ "code": 500 })),
            _ => (404, json!({ "code": 404 })),
        }
    });
    lock(&federator.unlisted).clear();
    federator.reconcile().await;
    let asked = lock(&asked).clone();
    assert!(asked.iter().any(|path| path.ends_with("/configmaps/spire-server")), "{asked:?}");
}

/// An API server that keeps what it is sent, by path. What `meanwhile` does comes after each write of an object.
fn keeping(
    server: Value,
    meanwhile: impl Fn(&str, &mut BTreeMap<String, Value>) + Send + Sync + 'static,
) -> (Arc<Federator>, Arc<Mutex<BTreeMap<String, Value>>>) {
    let objects = Arc::new(Mutex::new(BTreeMap::from([(SERVER_PATH.to_owned(), server)])));
    let kept = objects.clone();
    let federator = federator_reading(setting(), move |path, body| {
        let mut kept = lock(&kept);
        let absent = || (404, json!({ "code": 404, "reason": "NotFound", "status": "Failure" }));
        let Ok(sent) = serde_json::from_str::<Value>(&body) else {
            return kept.get(path).map_or_else(absent, |it| (200, it.clone()));
        };
        if path.ends_with("/events") {
            return (201, json!({ "metadata": {} }));
        }
        let path = path.strip_suffix("/status").unwrap_or(path);
        let (path, live) = match kept.get(path) {
            Some(live) => (path.to_owned(), live.clone()),
            None => match sent["metadata"]["name"].as_str() {
                Some(name) => (format!("{path}/{name}"), json!({})),
                None => return absent(),
            },
        };
        let version = |it: &Value| it["metadata"]["resourceVersion"].clone();
        if version(&sent) != version(&live) {
            return (409, json!({ "code": 409, "reason": "Conflict", "status": "Failure" }));
        }
        let mut object = merge::patched(&live, &sent);
        renew(&mut object);
        kept.insert(path.clone(), object.clone());
        meanwhile(&path, &mut kept);
        (200, object)
    });
    lock(&federator.unlisted).clear();
    (federator, objects)
}

const SERVER_PATH: &str = "/apis/operator.openshift.io/v1alpha1/spireservers/cluster";
const CONFIG_PATH: &str = "/api/v1/namespaces/spire/configmaps/spire-server";

/// Gives an object its next version.
fn renew(object: &mut Value) {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
    let next = version.map_or(1, |it: u64| it + 1);
    object["metadata"]["resourceVersion"] = json!(next.to_string());
}

#[tokio::test]
async fn a_peer_goes_although_the_spec_became_invalid_before_the_status_told_of_the_valid_one() {
    let mut server = json!(server(spiffe()));
    renew(&mut server);
    let (federator, objects) = keeping(server, |path, kept| {
        if path != CONFIG_PATH {
            return;
        }
        let Some(server) = kept.get_mut(SERVER_PATH) else { return };
        // While the objects are written, somebody removes a peer and mistypes something else.
        server["spec"]["federation"]["federatesWith"].as_array_mut().unwrap().remove(0);
        server["spec"]["jwtIssuer"] = json!("https://");
        server["metadata"]["generation"] = json!(2);
        renew(server);
    });
    let configured = || lock(&objects)[CONFIG_PATH]["data"]["server.conf"].to_string();
    federator.reconcile().await;
    assert!(configured().contains("td-b.test"));
    federator.reconcile().await;
    assert!(!configured().contains("td-b.test"), "it is no longer listed: {}", configured());
    assert!(configured().contains("https://oidc.td-a.test"), "the last valid spec counts");
}

#[tokio::test]
async fn a_secret_that_could_not_be_read_just_now_makes_no_configuration_invalid() {
    let server = server(json!({
        "bundleEndpoint": { "profile": "https_web", "refreshHint": 60, "httpsWeb": {
            "servingCert": { "fileSyncInterval": 3600, "externalSecretRef": "tls" },
        }},
        "managedRoute": "true",
    }));
    let federator = federator(setting(), |path| match path.contains("/secrets/") {
        true => (503, json!({ "code": 503 })),
        false => (404, json!({ "code": 404 })),
    });
    let effective = Effective {
        server: server.clone(),
        problems: Vec::new(),
        unlisted: Vec::new(),
        can_render: true,
    };
    let findings = federator.apply_all(&effective, &setting()).await;
    let values = conditions::evaluate(&server, &findings);
    let value = values.iter().find(|it| it.about == "ConfigurationValid").unwrap();
    assert_ne!(value.status, "False", "nobody knows: {}", value.message);
}

#[test]
fn a_bundle_is_found_by_the_spiffe_id_that_names_its_trust_domain_as_for_the_controller_manager() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let (name, mut by_id) = domain("a", 2025, Value::Null, &old);
    by_id.spec.trust_domain = "spiffe://td-b.test/any".to_owned();
    let mut domains = BTreeMap::from([(name, by_id), domain("b", 2026, Value::Null, &new)]);
    assert_eq!(bootstrap_bundles(&domains)["td-b.test"].x509, testing::bundle(&[&old]).x509);
    domains.remove("b");
    assert!(bootstrap_bundles(&domains).contains_key("td-b.test"));
}

#[test]
fn an_object_whose_class_is_empty_has_none_as_for_the_controller_manager() {
    let ca = Ca::new("b");
    let domains = BTreeMap::from([domain("b", 2025, json!(""), &ca)]);
    assert!(bootstrap_bundles(&domains).contains_key("td-b.test"));
}

/// What is decided of the server's Pod where the namespace is this, and whether there was a question.
async fn pod_user(chosen: Option<PodUser>, annotations: Value) -> (Option<PodUser>, bool) {
    let asked = Arc::new(Mutex::new(false));
    let seen = asked.clone();
    let federator = federator(setting(), move |path| {
        *lock(&seen) = true;
        assert_eq!(path, "/api/v1/namespaces/spire");
        (200, json!({ "metadata": { "name": "spire", "annotations": annotations } }))
    });
    let setting = RenderContext { pod_user: chosen, ..setting() };
    let completed = apps_domain::completed(&setting, None, &federator.client).await.unwrap();
    (completed.pod_user, *lock(&asked))
}

#[tokio::test]
async fn no_user_is_named_where_openshift_assigns_them_unless_somebody_says_so() {
    let openshift = json!({ "openshift.io/sa.scc.uid-range": "1000650000/10000" });
    assert_eq!(pod_user(None, openshift.clone()).await, (Some(PodUser::Assigned), true));
    assert_eq!(pod_user(None, json!({})).await, (Some(PodUser::Id(1000)), true));
    let chosen = Some(PodUser::Id(7));
    assert_eq!(pod_user(chosen, openshift).await, (chosen, false));
}

#[tokio::test]
async fn nothing_is_guessed_of_the_pods_user_where_the_namespace_can_t_be_read() {
    for code in [403, 503] {
        let federator = federator(setting(), move |_| (code, json!({ "code": code })));
        let completed = apps_domain::completed(&setting(), None, &federator.client).await;
        assert!(completed.is_err(), "{code}: {completed:?}");
    }
}

#[tokio::test]
async fn a_proxy_with_credentials_is_told_of_without_them() {
    let variable =
        |name: &str| (name == "HTTPS_PROXY").then(|| "http://me:hunter2@proxy.example".to_owned());
    let setting = RenderContext { proxy: Proxy::from_env(variable), ..setting() };
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let federator = federator_reading(setting, move |path, body| {
        if path.ends_with("/events") {
            lock(&seen).push(body);
            return (201, json!({ "metadata": {} }));
        }
        (404, json!({ "code": 404, "reason": "NotFound", "status": "Failure" }))
    });
    federator.warn(&server(spiffe()), &[], &[]).await.unwrap();
    let told = lock(&events).join("\n");
    assert!(told.contains("ProxyWithheld") && told.contains("HTTPS_PROXY"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

fn peers(existing: &[PeerStatus]) -> SpireServer {
    let mut server = server(spiffe());
    let federation = FederationStatus { peers: existing.to_vec(), ..FederationStatus::default() };
    server.status.federation = Some(federation);
    server
}

#[tokio::test]
async fn a_peer_that_is_well_again_is_told_once_and_one_that_was_never_wrong_is_not() {
    let (federator, told) = counting_events(200, "");
    let well = PeerStatus {
        trust_domain: "td-b.test".to_owned(),
        reachable: true,
        spire_fetch: Some(SpireFetch::Ok),
        ..PeerStatus::default()
    };
    let wrong = PeerStatus { last_error: Some("dark".to_owned()), ..well.clone() };
    let without_spire = PeerStatus { spire_fetch: Some(SpireFetch::Failing), ..well.clone() };
    let now = std::slice::from_ref(&well);
    for (before, events) in [(&wrong, 1), (&without_spire, 2), (&well, 2)] {
        let server = peers(std::slice::from_ref(before));
        federator.publish(report::recoveries(&server, now)).await.unwrap();
        assert_eq!(*lock(&told), events, "{before:?}");
    }
    let server = peers(std::slice::from_ref(&wrong));
    federator.publish(report::recoveries(&server, &[without_spire])).await.unwrap();
    assert_eq!(*lock(&told), 2, "SPIRE itself does not fetch it yet");
}
