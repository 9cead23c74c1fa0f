//! The real SPIRE server accepts everything that the API server and the controller accept, and starts with it.
//!
//! `TRUSTPLANE_SEED` repeats a run; `TRUSTPLANE_LONG` makes it five times as long.

use std::{sync::Arc, time::Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use testkit::{
    TestServer,
    pair::issued,
    spire::{Launch, SpireServer},
};
use tokio::{sync::Semaphore, task::JoinSet};
use trustplane::{api::spire_server::SpireServer as SpireServerObject, federate::decide::validate};

use crate::{only::Turn, rendered::server_conf};

/// There are two processors.
const AT_ONCE: usize = 2;

fn cases() -> usize {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 1000 } else { 200 }
}

fn rng() -> Rng {
    let long = std::env::var_os("TRUSTPLANE_LONG").map(|_| u64::from(std::process::id()));
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.or(long).unwrap_or(20_260_101);
    println!("TRUSTPLANE_SEED={seed}");
    Rng::with_seed(seed)
}

fn one<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}

/// So many of these characters.
fn text(rng: &mut Rng, alphabet: &str, most: usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    (0..rng.usize(1..=most)).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
}

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";

fn trust_domain(rng: &mut Rng) -> String {
    text(rng, "abcdefghijklmnopqrstuvwxyz0123456789._-", 60)
}

fn host(rng: &mut Rng) -> String {
    let labels = rng.usize(1..=3);
    let labels: Vec<_> = (0..labels).map(|_| text(rng, LETTERS, 20)).collect();
    labels.join(".")
}

fn url(rng: &mut Rng) -> String {
    let host = match rng.u8(..8) {
        0 => "[2001:db8::1]".to_owned(),
        1 => "192.0.2.1".to_owned(),
        2 => "xn--bcher-kva.example".to_owned(),
        3 => format!("{}.", host(rng)),
        _ => host(rng),
    };
    let port = if rng.bool() { String::new() } else { format!(":{}", rng.u16(1..)) };
    let path = one(rng, &["", "/", "/bundle", "/a%20b/c@d:e", "/~x/$y"]);
    format!("https://{host}{port}{path}")
}

/// Within these hours and a few minutes.
fn duration(rng: &mut Rng, minutes: std::ops::RangeInclusive<u32>) -> String {
    let minutes = rng.u32(minutes);
    match rng.u8(..4) {
        0 => format!("{minutes}m"),
        1 => format!("{}h{}m", minutes / 60, minutes % 60),
        2 => format!("{}h{}m0s", minutes / 60, minutes % 60),
        _ => format!("{}s", u64::from(minutes) * 60),
    }
}

fn peer(rng: &mut Rng, number: usize) -> Value {
    let name = format!("{}{number}", trust_domain(rng));
    let mut peer = json!({
        "trustDomain": name,
        "bundleEndpointUrl": url(rng),
        "bundleEndpointProfile": "https_web",
    });
    if rng.bool() {
        peer["bundleEndpointProfile"] = json!("https_spiffe");
        let path = one(rng, &["spire/server", "a", "Server_1.x/-"]);
        peer["endpointSpiffeId"] = json!(format!("spiffe://{name}/{path}"));
    }
    peer
}

fn federation(rng: &mut Rng) -> Value {
    let endpoint = match rng.u8(..3) {
        0 => json!({ "profile": "https_spiffe" }),
        1 => {
            let interval = rng.u32(3600..=7_776_000);
            let cert = json!({ "fileSyncInterval": interval });
            json!({ "profile": "https_web", "httpsWeb": { "servingCert": cert } })
        }
        _ => json!({ "profile": "https_web", "httpsWeb": { "acme": {
            "directoryUrl": url(rng), "domainName": host(rng), "email": "first.last+spire@mail.example.com",
            "tosAccepted": "true",
        }}}),
    };
    let mut federation = json!({ "bundleEndpoint": endpoint });
    federation["bundleEndpoint"]["refreshHint"] = json!(rng.u32(60..=3600));
    let peers = [0, 1, 3, 50][rng.usize(..4)];
    if peers > 0 {
        federation["federatesWith"] = (0..peers).map(|number| peer(rng, number)).collect();
    }
    federation
}

/// As somebody might write it, odd but right.
fn datastore(rng: &mut Rng) -> Value {
    let (kind, text) = match rng.u8(..6) {
        0 => ("mysql", "spire:p@ss/w?rd@tcp(db:3306)/spire?parseTime=true&tls=true".to_owned()),
        1 => ("postgres", format!("host={} user=spire password='a b' sslmode=require", host(rng))),
        2 => ("postgres", format!("postgres://spire:p%40ss@{}:5432/spire", host(rng))),
        _ => ("sqlite3", format!("/run/spire/data/{}.db", text(rng, LETTERS, 60))),
    };
    let mut datastore = json!({
        "databaseType": kind, "connectionString": text, "maxOpenConns": rng.u16(2..=10_000),
        "maxIdleConns": rng.u16(..=10_000), "connMaxLifetime": rng.u32(..=1_000_000),
        "disableMigration": one(rng, &["true", "false"]),
    });
    if rng.bool() {
        datastore["tlsSecretName"] = json!("db-tls");
    }
    datastore
}

fn spec(rng: &mut Rng) -> Value {
    const KEYS: [&str; 4] = ["rsa-2048", "rsa-4096", "ec-p256", "ec-p384"];
    const ANY: &str = "abc XYZ 019 \u{fc}\u{df} $ { } \" ' \\ % < > / # \n \t";
    let mut spec = json!({
        "trustDomain": trust_domain(rng),
        "clusterName": text(rng, "abcXYZ019_-", 60),
        "logLevel": one(rng, &["debug", "info", "warn", "error"]),
        "logFormat": one(rng, &["text", "json"]),
        "jwtIssuer": url(rng),
        "caValidity": duration(rng, 10..=87_600 * 60),
        "defaultX509Validity": duration(rng, 1..=8_760 * 60),
        "defaultJWTValidity": duration(rng, 1..=8_760 * 60),
        "caKeyType": one(rng, &KEYS),
    });
    let mut optional = |name: &str, make: fn(&mut Rng) -> Value| {
        if rng.bool() {
            spec[name] = make(rng);
        }
    };
    optional("jwtKeyType", |rng| json!(one(rng, &KEYS)));
    optional(
        "caSubject",
        |rng| json!({ "country": "DE", "organization": text(rng, ANY, 60), "commonName": text(rng, ANY, 60) }),
    );
    optional("datastore", datastore);
    optional("federation", federation);
    optional("labels", |rng| {
        let key = text(rng, LETTERS, 60);
        json!({ &*key: text(rng, LETTERS, 60), format!("example.com/{key}"): "" })
    });
    optional("nodeSelector", |_| json!({ "kubernetes.io/os": "linux" }));
    spec
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "SpireServer",
        "metadata": { "name": "cluster" }, "spec": spec,
    })
}

/// As both judge it, and completed by the API server.
async fn accepted(turn: &Turn, spec: &Value) -> SpireServerObject {
    let made = turn.would_create(&object(spec)).await;
    let mut made = made.unwrap_or_else(|why| panic!("{spec:#}\n{why}"));
    made["metadata"]["uid"] = json!("4711");
    let wanted: SpireServerObject = serde_json::from_value(made).expect("a SpireServer");
    assert_eq!(validate::problems(&wanted.spec), [], "{spec:#}");
    wanted
}

#[tokio::test]
async fn the_real_server_finds_every_spec_valid_that_is_accepted() {
    let turn = Turn::on(TestServer::real().await).await;
    let (mut rng, start) = (rng(), Instant::now());
    let (places, mut verdicts) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for _ in 0..cases() {
        let spec = spec(&mut rng);
        let conf = server_conf(&accepted(&turn, &spec).await);
        let place = places.clone().acquire_owned().await.expect("a place");
        verdicts.spawn(async move {
            let verdict = SpireServer::validate(&conf).await;
            drop(place);
            (spec, verdict)
        });
    }
    while let Some(verdict) = verdicts.join_next().await {
        let (spec, verdict) = verdict.expect("the server judges");
        assert_eq!(verdict, Ok(()), "{spec:#}");
    }
    println!("{} specs in {:.1} s", cases(), start.elapsed().as_secs_f32());
}

/// At the bounds of everything that reaches the server.
fn at_the_bounds() -> Vec<Value> {
    let durations = [
        ("10m", "1m", "1m"),
        ("10m", "8760h", "8760h"),
        ("87600h", "1m", "1m"),
        ("87600h", "8760h", "8760h"),
        ("10m", "60s", "525600m"),
        ("24h0m0s", "1h", "1m"),
        ("600s", "1m", "5m"),
        ("87600h", "1m0s", "8760h"),
        ("1h", "8760h", "1m"),
        ("10m", "10m", "10m"),
    ];
    let keys = ["ec-p256", "ec-p384", "rsa-2048", "rsa-4096"];
    let (long, subject) = ("a".repeat(255), |length: usize| "\u{fc}$".repeat(length / 2));
    let peers = |count: usize| -> Value {
        (0..count).map(|number| peer(&mut Rng::with_seed(1), number)).collect()
    };
    let of = |(number, (ca, x509, jwt)): (usize, (&str, &str, &str))| {
        let mut spec = json!({
            "trustDomain": if number % 2 == 0 { "a" } else { &*long },
            "clusterName": if number % 2 == 0 { &long[..218] } else { "a" },
            "jwtIssuer": "https://a.example./",
            "caValidity": ca, "defaultX509Validity": x509, "defaultJWTValidity": jwt,
            "caKeyType": keys[number % 4], "jwtKeyType": keys[(number + 1) % 4],
            "logLevel": "error", "logFormat": "json",
            "caSubject": { "country": "DE", "organization": subject(64), "commonName": subject(254) },
            "datastore": { "maxOpenConns": 2, "maxIdleConns": 0, "connMaxLifetime": i32::MAX },
        });
        // Names of both lengths come with each profile; two servers have no federation at all.
        let endpoint = match number % 5 {
            0 | 3 => json!({ "profile": "https_spiffe", "refreshHint": 60 }),
            1 => {
                json!({ "profile": "https_web", "refreshHint": 3600, "httpsWeb": { "servingCert": { "fileSyncInterval": 7_776_000 } } })
            }
            2 => json!({ "profile": "https_web", "httpsWeb": { "acme": {
                "directoryUrl": "https://localhost:1/directory", "domainName": "a.example",
                "email": "admin@a.example", "tosAccepted": "true",
            }}}),
            _ => return spec,
        };
        let count = [1, 50][number / 2 % 2];
        spec["federation"] = json!({ "bundleEndpoint": endpoint, "federatesWith": peers(count) });
        spec
    };
    durations.into_iter().enumerate().map(of).collect()
}

/// `validate` accepts what `run` then dies of.
#[tokio::test]
async fn the_real_server_starts_at_the_bounds_of_what_is_accepted() {
    let turn = Turn::on(TestServer::real().await).await;
    let mut confs = Vec::new();
    for spec in at_the_bounds() {
        let conf = server_conf(&accepted(&turn, &spec).await);
        confs.push((conf, spec));
    }
    drop(turn);
    let (start, pair) = (Instant::now(), issued("a.test"));
    for two in confs.chunks(AT_ONCE) {
        let starting = two.iter().map(|(conf, spec)| {
            let launch = Launch::new("bounds", conf.clone()).serving(&pair);
            async move {
                let server = launch.start().await;
                let keys = server.bundle_show().await["keys"].as_array().map_or(0, Vec::len);
                assert!(keys > 0, "{spec:#}");
                server.mint(&format!("spiffe://{}/workload", server.trust_domain())).await;
            }
        });
        futures::future::join_all(starting).await;
    }
    println!("{} servers in {:.1} s", confs.len(), start.elapsed().as_secs_f32());
}
