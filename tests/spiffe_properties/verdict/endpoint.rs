//! The rest of e2e/spiffe-verdict: it verifies SVIDs, fetches bundles, and answers nonsense.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::json;
use testkit::spiffe_verdict::{self as question, SpiffeVerdict, is_ok};

use crate::material::{SVID, authority_pem, document, issued, jwt, x509};

const WORKLOAD: &str = "spiffe://td.test/workload";

#[test]
fn go_spiffe_verifies_an_svid_with_the_bundle_of_its_trust_domain_alone() {
    let mut verdict = SpiffeVerdict::start();
    let (own, other) = (document(&[x509(0), x509(1)]), document(&[x509(1)]));
    let mut verify = |trust_domain: &str, document: &str, chain: &[CertificateDer<'_>]| {
        verdict.ask(&question::verify(trust_domain, document, chain))
    };
    let svid = [SVID.clone()];

    assert_eq!(verify("td.test", &own, &svid), json!({ "ok": true, "id": WORKLOAD }));
    assert!(!is_ok(&verify("td.test", &other, &svid)));
    assert!(!is_ok(&verify("other.test", &own, &svid)));
    // Rule 34.
    assert!(!is_ok(&verify("td.test", "{\"keys\": []}", &svid)));
    assert!(!is_ok(&verify("td.test", &own, &[])));
    assert!(!is_ok(&verify("td.test", &own, &[b"garbage"[..].into()])));
}

#[test]
fn go_spiffe_fetches_a_bundle_by_both_profiles() {
    let mut verdict = SpiffeVerdict::start();
    let mut published = document(&[x509(0), x509(1), jwt(0)]);
    published
        .insert_str(1, "\"spiffe_sequence\": 18446744073709551615, \"spiffe_refresh_hint\": 300, ");
    let (svid, key) = issued();
    let url = serve(svid, key, &published);
    let own = document(&[x509(0)]);
    let questions = [
        question::fetch_web("td.test", &url, &authority_pem()),
        question::fetch_spiffe("td.test", &url, WORKLOAD, &own),
    ];
    for mut answer in verdict.ask_all(&questions) {
        let written = answer["document"].take();
        assert_eq!(
            answer,
            json!({
                "ok": true, "x509": 2, "jwt": 1, "sequence": "18446744073709551615", "hint": 300,
                "document": null,
            })
        );
        let written = written.as_str().expect("a document");
        assert!(is_ok(&verdict.ask(&question::bundle("td.test", written))), "{written}");
    }
    let other = document(&[x509(1)]);
    for refused in [
        question::fetch_spiffe("td.test", &url, WORKLOAD, &other),
        question::fetch_spiffe("td.test", &url, "spiffe://td.test/other", &own),
        question::fetch_spiffe("td.test", &url, "spiffe://other.test/workload", &own),
        question::fetch_web("td.test", &url.replace("127.0.0.1", "localhost"), &authority_pem()),
    ] {
        assert!(!is_ok(&verdict.ask(&refused)), "{refused}");
    }
}

#[test]
fn nonsense_has_an_answer_and_so_has_what_follows() {
    let mut verdict = SpiffeVerdict::start();
    let questions = [
        json!(null),
        json!([1]),
        json!({ "op": 5 }),
        json!({ "op": "new" }),
        json!({ "op": "fetch", "td": "td.test", "profile": "new" }),
        question::bundle("", "{\"keys\": []}"),
        question::fetch_web("td.test", "https://127.0.0.1:1/", "no PEM"),
        question::fetch_web("td.test", "https://127.0.0.1:1/", &authority_pem()),
        question::fetch_web("td.test", ":", &authority_pem()),
    ];
    for (question, answer) in questions.iter().zip(verdict.ask_all(&questions)) {
        assert!(!is_ok(&answer) && answer["error"].is_string(), "{question}: {answer}");
    }
    let answer = verdict.ask(&question::id("spiffe://td.test"));
    assert_eq!(answer, json!({ "ok": true, "td": "td.test", "path": "" }));
}

/// Answers every request with this text, until the test process ends.
fn serve(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>, text: &str) -> String {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    let config = Arc::new(config);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/bundle.json", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for socket in listener.incoming() {
            let session = ServerConnection::new(config.clone()).expect("a session");
            let mut stream = StreamOwned::new(session, socket.expect("a connection"));
            // The client may refuse our certificate.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    url
}
