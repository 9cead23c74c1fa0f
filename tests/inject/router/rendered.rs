//! The files that HAProxy reads.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Pair, pair,
    router::plan::{CONFIGURATION, Files, Layout, Route, Table, render},
};
use trustplane::runtime::redact::PrivateKeyPem;

use crate::router::{aged, route, route_in};

fn layout(default: &Pair) -> Layout {
    Layout {
        folder: PathBuf::from("/router"),
        listen: ([127, 0, 0, 1], 8443).into(),
        plain_backend: ([127, 0, 0, 1], 8001).into(),
        tls_backend: ([127, 0, 0, 1], 8002).into(),
        backend_host: "backend.stack.test".to_owned(),
        backend_authority: "the stack's authority".to_owned(),
        default_pair: PrivateKeyPem::new(format!("{}{}", default.certificate, default.key)),
    }
}

fn files(routes: impl IntoIterator<Item = Route>) -> Files {
    let default = pair::issued("default.router.test");
    let mut table = Table::default();
    for route in routes {
        table.apply(route);
    }
    let admissions = table.admissions();
    let offers =
        admissions.iter().filter_map(|(entry, _)| Some((*entry, entry.offer.as_ref().ok()?)));
    render(&layout(&default), offers)
}

fn names(files: &Files) -> Vec<&str> {
    files.iter().map(|(name, _)| name).collect()
}

fn holding(termination: &str, pair: &Pair) -> Value {
    json!({ "termination": termination, "certificate": pair.certificate, "key": pair.key })
}

const ALWAYS: [&str; 5] =
    ["certificates.list", "default.pem", "haproxy.cfg", "hosts.map", "service-ca.pem"];

#[test]
fn without_routes_the_default_certificate_is_for_every_name() {
    let files = files([]);
    assert_eq!(names(&files), ALWAYS);
    assert_eq!(files.get("certificates.list"), Some("/router/default.pem !*\n"));
    assert_eq!(files.get("hosts.map"), Some(""));
    assert_eq!(files.get(CONFIGURATION), Some(include_str!("haproxy.cfg")));
}

#[test]
fn each_route_with_a_certificate_has_a_file_and_a_line() {
    let pair = pair::issued("shop.example.com");
    let shop = aged(route("shop", holding("edge", &pair)), 1);
    let plain = aged(route("plain", json!({ "termination": "edge" })), 2);
    let mut wild = aged(route_in("web", "wild", "www.apps.test", holding("edge", &pair)), 3);
    wild.spec.wildcard_policy = "Subdomain".to_owned();
    let without_tls = aged(route("http", Value::Null), 4);

    let files = files([shop, plain, wild, without_tls]);

    assert!(files.get("web_shop.pem") == Some(&format!("{}{}", pair.certificate, pair.key)));
    assert_eq!(
        files.get("certificates.list"),
        Some(
            "/router/default.pem !*\n\
             /router/web_shop.pem shop.example.com\n\
             /router/web_wild.pem *.apps.test\n"
        )
    );
    assert_eq!(
        files.get("hosts.map"),
        Some("shop.example.com edge\nplain.example.com edge\n*.apps.test edge\n")
    );
}

#[test]
fn a_reencrypt_route_has_a_backend_that_trusts_its_destination() {
    let (pair, authority) = (pair::issued("shop.example.com"), pair::issued("b").authority);
    let mut tls = holding("reencrypt", &pair);
    tls["destinationCACertificate"] = json!(authority);
    let shop = aged(route("shop", tls), 1);
    let trusting = aged(route("trusting", json!({ "termination": "reencrypt" })), 2);

    let files = files([shop, trusting]);

    assert_eq!(files.get("ca_web_shop.pem"), Some(&*authority));
    assert_eq!(
        files.get("hosts.map"),
        Some("shop.example.com reencrypt_web_shop\ntrusting.example.com reencrypt_web_trusting\n")
    );
    let added = "
backend reencrypt_web_shop
    mode http
    server backend 127.0.0.1:8002 ssl verify required ca-file /router/ca_web_shop.pem sni str(backend.stack.test) verifyhost backend.stack.test

backend reencrypt_web_trusting
    mode http
    server backend 127.0.0.1:8002 ssl verify required ca-file /router/service-ca.pem sni str(backend.stack.test) verifyhost backend.stack.test
";
    let configuration = files.get(CONFIGURATION).expect("there is always one");
    assert_eq!(configuration.strip_prefix(include_str!("haproxy.cfg")), Some(added));
}

#[test]
fn a_passthrough_route_is_a_line_in_the_map() {
    let files = files([route("shop", json!({ "termination": "passthrough" }))]);
    assert_eq!(names(&files), ALWAYS);
    assert_eq!(files.get("hosts.map"), Some("shop.example.com passthrough\n"));
}
