//! The whole controller while the API server refuses what it writes.

use super::*;

/// A tenant whose Route is a few bytes below etcd's limit.
#[tokio::test(start_paused = true)]
async fn a_status_that_does_not_fit_is_no_hot_loop() {
    use crate::inject::{cache::index::Arrival, decide::source::Revision};
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    fn merge(into: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (name, value) in fields {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut into[name], value);
            }
        }
    }
    fn secret(version: &str) -> Value {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["shop.example.com".into()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().pem();
        json!({
            "metadata": {"name": "shop-tls", "namespace": "web", "resourceVersion": version, "uid": "s"},
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key.serialize_pem()),
            },
        })
    }

    /// The Route, the Secret, whether the pair fits, status patches, all requests.
    type Server = Arc<Mutex<(Value, Value, bool, u32, u32)>>;
    let route = Draft::edge().annotated("shop-tls");
    let facts = route.facts();
    let at = facts.at.clone();
    let server: Server = Arc::new(Mutex::new((route.0, secret("1"), false, 0, 0)));
    let served = server.clone();
    let client = Client::new(
        service_fn(move |request: Request<Body>| {
            let served = served.clone();
            async move {
                let (path, method) = (request.uri().path().to_owned(), request.method().clone());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = {
                    let mut server = served.lock().unwrap();
                    server.4 += 1;
                    let failure = |code: u16, reason: &str| {
                        (
                            code,
                            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
                        )
                    };
                    if path.contains("/secrets/") {
                        (200, server.1.clone())
                    } else if path.contains("/events") {
                        if method == "GET" { failure(404, "NotFound") } else { (201, body) }
                    } else if path.ends_with("/status") {
                        server.3 += 1;
                        failure(413, "RequestEntityTooLarge")
                    } else if method == "GET" {
                        (200, server.0.clone())
                    } else if !server.2 {
                        failure(413, "RequestEntityTooLarge")
                    } else {
                        merge(&mut server.0, &body);
                        server.0["metadata"]["resourceVersion"] = json!("99");
                        (200, server.0.clone())
                    }
                };
                // A quick API server.
                tokio::time::sleep(Duration::from_millis(5)).await;
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
            }
        }),
        "web",
    );
    let options = Options {
        namespaces: vec![],
        policy: Policy::default(),
        concurrency: 2,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        compare_every: COMPARE_EVERY,
        judges_in_place: true,
        dry_run: false,
        instance: "test".to_owned(),
    };
    let start = Instant::now();
    let noon = Utc::now();
    let clock =
        Clock::from_fn(move || noon + chrono::TimeDelta::from_std(start.elapsed()).unwrap());
    let injector =
        synced(Injector::new(client, Gate::open(), clock, options, &mut Registry::default()));
    injector.reconciler.keeps_status.store(true, Ordering::Relaxed);
    injector.status_field_known.send_replace(true);
    let name = ObjectRef::new("web", "shop-tls");
    injector.index().route_applied(facts, Origin::FirstList, Instant::now());
    injector.index().secret_applied(&name, Revision::of("s", "1"), Arrival::Event, Instant::now());
    injector.queue.add(at.clone());
    let _worker = tokio::spawn(injector.clone().work(CancellationToken::new()));

    tokio::time::sleep(Duration::from_secs(60)).await;
    // A renewal that just fits.
    {
        let mut server = server.lock().unwrap();
        (server.1, server.2) = (secret("2"), true);
    }
    for at in injector.index().secret_applied(
        &name,
        Revision::of("s", "2"),
        Arrival::Event,
        Instant::now(),
    ) {
        injector.queue.add(at);
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let before = server.lock().unwrap().3;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (in_a_minute, all) = {
        let server = server.lock().unwrap();
        (server.3 - before, server.4)
    };
    assert!(
        in_a_minute <= 5,
        "{in_a_minute} status patches of one Route in a minute ({before} in the hour before, {all} requests)"
    );
}

/// A webhook refuses every Route, and the API takes no Events. The status can be written.
async fn refused(routes: usize, events_hang: bool, minutes: u64) -> (usize, usize) {
    use crate::inject::{cache::index::Arrival, decide::source::Revision};
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use http_body_util::BodyExt as _;
    use serde_json::Value;
    use std::collections::BTreeMap;

    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["shop.example.com".into()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let secret = json!({
        "metadata": {"name": "shop-tls", "namespace": "web", "resourceVersion": "1", "uid": "s"},
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key.serialize_pem()),
        },
    });
    type Server = Arc<Mutex<(BTreeMap<String, Value>, usize)>>;
    let server: Server = Arc::default();
    let served = server.clone();
    let client = Client::new(
        service_fn(move |request: Request<Body>| {
            let (served, secret) = (served.clone(), secret.clone());
            async move {
                let (path, method) = (request.uri().path().to_owned(), request.method().clone());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let failure = |code: u16, reason: &str| {
                    (
                        code,
                        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
                    )
                };
                if path.contains("/events") && events_hang {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = {
                    let mut server = served.lock().unwrap();
                    let name =
                        path.trim_end_matches("/status").rsplit('/').next().unwrap().to_owned();
                    if path.contains("/secrets/") {
                        (200, secret)
                    } else if path.contains("/events") {
                        if method == "GET" { failure(404, "NotFound") } else { (201, body) }
                    } else if path.ends_with("/status") {
                        let route = server.0.get_mut(&name).unwrap();
                        route["status"] = body["status"].clone();
                        route["metadata"]["resourceVersion"] = json!("99");
                        (200, route.clone())
                    } else if method == "GET" {
                        (200, server.0[&name].clone())
                    } else {
                        server.1 += 1;
                        failure(500, "InternalError")
                    }
                };
                tokio::time::sleep(Duration::from_millis(20)).await;
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
            }
        }),
        "web",
    );
    let options = Options {
        namespaces: vec![],
        policy: Policy::default(),
        concurrency: 8,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        compare_every: COMPARE_EVERY,
        judges_in_place: true,
        dry_run: false,
        instance: "test".to_owned(),
    };
    let (start, noon) = (Instant::now(), Utc::now());
    let clock =
        Clock::from_fn(move || noon + chrono::TimeDelta::from_std(start.elapsed()).unwrap());
    let injector =
        synced(Injector::new(client, Gate::open(), clock, options, &mut Registry::default()));
    injector.reconciler.keeps_status.store(true, Ordering::Relaxed);
    injector.status_field_known.send_replace(true);
    for number in 0..routes {
        let draft = Draft::edge().named("web", &format!("shop-{number}")).annotated("shop-tls");
        server.lock().unwrap().0.insert(format!("shop-{number}"), draft.0.clone());
        let facts = draft.facts();
        let at = facts.at.clone();
        injector.index().route_applied(facts, Origin::FirstList, Instant::now());
        injector.queue.add(at);
    }
    let name = ObjectRef::new("web", "shop-tls");
    injector.index().secret_applied(&name, Revision::of("s", "1"), Arrival::Event, Instant::now());
    for _ in 0..8 {
        tokio::spawn(injector.clone().work(CancellationToken::new()));
    }
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let server = server.lock().unwrap();
    let said = |route: &&Value| route["status"]["certificate"][0]["reason"] == "InjectionFailed";
    (server.0.values().filter(said).count(), server.1)
}

#[tokio::test(start_paused = true)]
async fn refused_writes_of_many_routes_are_said_in_time() {
    let (said, tries) = refused(500, false, 2).await;
    assert_eq!(said, 500, "of 500 Routes, after two minutes and {tries} refused writes");
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_said_in_the_condition_while_events_hang() {
    let (said, tries) = refused(200, true, 5).await;
    assert_eq!(said, 200, "of 200 Routes, after five minutes and {tries} refused writes");
}
