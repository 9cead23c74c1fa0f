//! The unchanged production controller on the API server in the same process, with paused time.

use std::time::Duration;

use apiserver::{api::ApiServer, kinds, store::Call};
use chrono::{DateTime, Utc};
use http::Method;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trustplane::{
    demo::api_server,
    inject::{
        decide::plan::Policy,
        run::{COMPARE_EVERY, Injector, Options},
    },
    k8s::gate::Gate,
    names::SECRET_NAME_ANNOTATION,
    runtime::clock::Clock,
};

const ROUTES: &str = "/apis/route.openshift.io/v1/namespaces/web/routes";
const SECRETS: &str = "/api/v1/namespaces/web/secrets";

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn server() -> ApiServer {
    let server = api_server::server(api_server::store(1000, 7), Clock::from_fn(noon));
    server.with(|store| {
        let web = json!({ "metadata": { "name": "web" } });
        store.create(kinds::namespace(), "", web, &mut Call::at(noon())).unwrap();
    });
    server
}

fn ask(server: &ApiServer, method: Method, path: &str, body: Value) -> Value {
    server.request(method, path, &body).1
}

fn get(server: &ApiServer, path: &str) -> Value {
    ask(server, Method::GET, path, Value::Null)
}

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["shop.example.com".into()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
    let certificate = parameters.self_signed(&key).unwrap().pem();
    Pair { certificate, key: key.serialize_pem() }
}

fn tls_secret(pair: &Pair) -> Value {
    json!({
        "metadata": { "name": "shop-tls" }, "type": "kubernetes.io/tls",
        "stringData": { "tls.crt": pair.certificate, "tls.key": pair.key },
    })
}

fn injector(server: &ApiServer) -> std::sync::Arc<Injector> {
    let options = Options {
        namespaces: Vec::new(),
        policy: Policy::default(),
        concurrency: 2,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        compare_every: COMPARE_EVERY,
        judges_in_place: true,
        dry_run: false,
        instance: "test".into(),
    };
    let registry = &mut Registry::default();
    Injector::new(server.client(), Gate::open(), Clock::from_fn(noon), options, registry)
}

/// The Route's pair, and its True condition with the reason.
fn state(server: &ApiServer) -> (Option<Value>, String) {
    let route = get(server, &format!("{ROUTES}/shop"));
    let conditions = route["status"]["certificate"].as_array().cloned().unwrap_or_default();
    let held = conditions.iter().find(|condition| condition["status"] == "True");
    let told = held.map(|one| format!("{}/{}", one["type"], one["reason"]).replace('"', ""));
    (route["spec"]["tls"].get("certificate").cloned(), told.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn the_injector_injects_renews_and_clears_a_pair() {
    let server = server();
    let stop = CancellationToken::new();
    let running = tokio::spawn(injector(&server).run(stop.clone()));
    let (old, new) = (pair(), pair());
    let annotations = json!({ SECRET_NAME_ANNOTATION: "shop-tls" });
    let shop = json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": { "name": "shop", "annotations": annotations },
        "spec": { "to": { "name": "shop" }, "tls": { "termination": "edge" } },
    });
    ask(&server, Method::POST, SECRETS, tls_secret(&old));
    ask(&server, Method::POST, ROUTES, shop);

    let settle = || tokio::time::sleep(Duration::from_secs(30));
    settle().await;
    let injected = (Some(json!(old.certificate)), "Managed/SecretInjected".to_owned());
    assert!(state(&server) == injected, "injected: {}", state(&server).1);

    ask(&server, Method::PATCH, &format!("{SECRETS}/shop-tls"), tls_secret(&new));
    settle().await;
    let renewed = (Some(json!(new.certificate)), "Managed/SecretInjected".to_owned());
    assert!(state(&server) == renewed, "renewed: {}", state(&server).1);

    ask(&server, Method::DELETE, &format!("{SECRETS}/shop-tls"), Value::Null);
    settle().await;
    assert!(
        state(&server) == (None, "Default/SecretNotFound".into()),
        "cleared: {}",
        state(&server).1
    );
    let events = get(&server, "/api/v1/namespaces/web/events");
    assert!(events["items"].as_array().unwrap().iter().any(|one| one["type"] == "Warning"));

    stop.cancel();
    running.await.unwrap().unwrap();
}
