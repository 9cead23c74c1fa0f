//! The Workload API of an agent, asked by a client of its own on the socket. W1 to W11 are the rules of
//! SPIFFE in docs/spiffe.md.

use std::{collections::BTreeSet, os::unix::fs::MetadataExt as _, sync::Arc, time::Duration};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{TimeDelta, Utc};
use http::uri::PathAndQuery;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;
use trustplane::{
    authority::{
        agent::messages::{
            Empty, FETCH_JWT_BUNDLES, FETCH_JWT_SVID, FETCH_X509_BUNDLES, FETCH_X509_SVID,
            JwtBundlesResponse, JwtSvidRequest, Kind, VALIDATE_JWT_SVID, X509BundlesResponse,
            X509SvidResponse,
        },
        join::own_svid::SvidSource,
    },
    spiffe::{bundle::Bundle, svid::PresentedSvid},
};

use crate::{
    agent_stage::{Stage, Workload, eventually, names, next},
    join_server::{Ca, Foreign, JoinServer, OWN, PARTNER, PATIENCE, document},
};

const OWN_ID: &str = "spiffe://own.test";
const PARTNER_ID: &str = "spiffe://partner.test";

/// Signs JWT-SVIDs.
struct JwtSigner(EcdsaKeyPair);

impl JwtSigner {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let number = |bytes| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "use": "jwt-svid", "kid": "k", "crv": "P-256", "x": number(x), "y": number(y) })
    }

    fn token(&self, id: &str) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({ "alg": "ES256", "kid": "k" }));
        let end = (Utc::now() + TimeDelta::minutes(5)).timestamp();
        let claims = part(json!({ "sub": id, "aud": ["till"], "exp": end, "admin": true }));
        let signed = format!("{header}.{claims}");
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

#[tokio::test]
async fn w1_a_call_without_the_header_is_an_invalid_argument() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    for header in [None, Some("false"), Some("")] {
        workload.header = header;
        for method in [
            FETCH_X509_SVID,
            FETCH_X509_BUNDLES,
            FETCH_JWT_SVID,
            FETCH_JWT_BUNDLES,
            VALIDATE_JWT_SVID,
        ] {
            let code = workload.code(method).await;
            assert_eq!(code, Code::InvalidArgument, "{method} {header:?}");
        }
    }
    workload.header = Some("true");
    assert!(workload.svid().await.is_ok());
}

#[tokio::test]
async fn w2_a_workload_needs_neither_tls_nor_a_credential() {
    let stage = Stage::start().await;
    // Nothing but the socket and the header.
    let svids = stage.workload().await.svid().await.unwrap().svids;
    assert_eq!(svids.len(), 1);
}

#[tokio::test]
async fn w3_the_x509_and_jwt_profiles_are_served_and_the_others_are_unimplemented() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    for method in [FETCH_X509_SVID, FETCH_X509_BUNDLES, FETCH_JWT_BUNDLES] {
        assert_eq!(workload.code(method).await, Code::Ok, "{method}");
    }
    // Served, and refused: the request is empty.
    assert_eq!(workload.code(VALIDATE_JWT_SVID).await, Code::InvalidArgument);
    for method in ["/SpiffeWorkloadAPI/FetchWITSVID", "/SpiffeWorkloadAPI/FetchWITBundles"] {
        assert_eq!(workload.code(method).await, Code::Unimplemented, "{method}");
    }
}

#[tokio::test]
async fn w4_every_message_is_the_whole_set_and_the_first_comes_at_once() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509SvidResponse> =
        workload.subscribe(FETCH_X509_SVID).await.unwrap();
    let first = next(&mut stream).await.unwrap();
    assert_eq!(first.svids[0].spiffe_id, "spiffe://own.test/agent/one");
    assert_eq!(names(&first.federated_bundles), [PARTNER_ID]);
    let other = Ca::new("other.test");
    stage.server.publish(|it| {
        it.insert("other.test".to_owned(), document(&[other.jwk()]).into_bytes());
    });
    let second = next(&mut stream).await.unwrap();
    assert_eq!(names(&second.federated_bundles), ["spiffe://other.test", PARTNER_ID]);
    assert_eq!(second.federated_bundles[PARTNER_ID], first.federated_bundles[PARTNER_ID]);
    assert_eq!(second.svids, first.svids);
}

#[tokio::test]
async fn w5_what_is_absent_counts_no_more() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut svids: Streaming<X509SvidResponse> = workload.subscribe(FETCH_X509_SVID).await.unwrap();
    let mut x509: Streaming<X509BundlesResponse> =
        workload.subscribe(FETCH_X509_BUNDLES).await.unwrap();
    let mut jwt: Streaming<JwtBundlesResponse> =
        workload.subscribe(FETCH_JWT_BUNDLES).await.unwrap();
    assert_eq!(names(&next(&mut svids).await.unwrap().federated_bundles), [PARTNER_ID]);
    assert_eq!(names(&next(&mut x509).await.unwrap().bundles), [OWN_ID, PARTNER_ID]);
    assert_eq!(names(&next(&mut jwt).await.unwrap().bundles), [OWN_ID, PARTNER_ID]);
    // The federation is deleted.
    stage.server.publish(|it| {
        it.remove(PARTNER);
    });
    assert!(next(&mut svids).await.unwrap().federated_bundles.is_empty());
    assert_eq!(names(&next(&mut x509).await.unwrap().bundles), [OWN_ID]);
    assert_eq!(names(&next(&mut jwt).await.unwrap().bundles), [OWN_ID]);
}

#[tokio::test]
async fn w5_a_bundle_that_revokes_everything_or_is_broken_is_absent() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut x509: Streaming<X509BundlesResponse> =
        workload.subscribe(FETCH_X509_BUNDLES).await.unwrap();
    assert_eq!(names(&next(&mut x509).await.unwrap().bundles), [OWN_ID, PARTNER_ID]);
    for gone in [r#"{"keys": []}"#, "{"] {
        stage.server.publish(|it| {
            it.insert(PARTNER.to_owned(), gone.into());
        });
        assert_eq!(names(&next(&mut x509).await.unwrap().bundles), [OWN_ID], "{gone}");
        stage.server.publish(|it| {
            it.insert(PARTNER.to_owned(), document(&[stage.foreign.ca.jwk()]).into_bytes());
        });
        assert_eq!(names(&next(&mut x509).await.unwrap().bundles), [OWN_ID, PARTNER_ID]);
    }
}

#[tokio::test]
async fn w6_who_is_not_entitled_is_denied_and_who_is_early_is_told_to_wait() {
    let folder = tempfile::tempdir().unwrap();
    let user = std::fs::metadata(folder.path()).unwrap().uid();
    let denied = Stage::start_with(|_, options| {
        options.allowed.insert(user + 1);
    })
    .await;
    denied.ready().await;
    let mut workload = denied.workload().await;
    for method in [FETCH_X509_SVID, FETCH_X509_BUNDLES, FETCH_JWT_BUNDLES, VALIDATE_JWT_SVID] {
        assert_eq!(workload.code(method).await, Code::PermissionDenied, "{method}");
    }
    let early =
        Stage::start_with(|server, _| server.change(|it| it.refusal = Some(Code::Unavailable)))
            .await;
    let mut workload = early.workload().await;
    for method in [FETCH_X509_SVID, FETCH_X509_BUNDLES, FETCH_JWT_BUNDLES] {
        assert_eq!(workload.code(method).await, Code::Unavailable, "{method}");
    }
    assert_eq!(workload.validate("till", "a.b.c").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(early.agent.waiting_for(), ["the first join"]);
    assert!(!early.metrics().contains("svid_expiry"), "nothing has ended that never began");
    // It goes on trying.
    early.server.change(|it| it.refusal = None);
    early.ready().await;
    assert!(early.metrics().contains("spiffe_agent_svid_expiry_timestamp_seconds "));
    assert!(workload.svid().await.is_ok());
}

#[tokio::test]
async fn w6_nobody_gets_a_jwt_svid_because_none_is_issued() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    workload.grpc.ready().await.unwrap();
    let message = JwtSvidRequest { audience: vec!["till".to_owned()], spiffe_id: String::new() };
    let request = workload.request(message);
    let method = PathAndQuery::from_static(FETCH_JWT_SVID);
    let codec = ProstCodec::<JwtSvidRequest, Empty>::default();
    let denied = workload.grpc.unary(request, method, codec).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn w7_our_own_trust_domain_is_always_among_the_bundles() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let x509: X509BundlesResponse = workload.first(FETCH_X509_BUNDLES).await.unwrap();
    assert_eq!(x509.bundles[OWN_ID], stage.server.ca.der().to_vec());
    let jwt: JwtBundlesResponse = workload.first(FETCH_JWT_BUNDLES).await.unwrap();
    assert_eq!(jwt.bundles[OWN_ID], br#"{"keys":[]}"#);
    let svid = workload.svid().await.unwrap();
    assert_eq!(svid.svids[0].bundle, stage.server.ca.der().to_vec());
    assert!(!svid.federated_bundles.contains_key(OWN_ID));
}

#[tokio::test]
async fn w8_jwt_bundles_hold_keys_for_jwt_svids_alone() {
    let signer = JwtSigner::new();
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut jwt: Streaming<JwtBundlesResponse> =
        workload.subscribe(FETCH_JWT_BUNDLES).await.unwrap();
    next(&mut jwt).await.unwrap();
    stage.server.publish(|it| {
        let both = document(&[stage.foreign.ca.jwk(), signer.jwk()]);
        it.insert(PARTNER.to_owned(), both.into_bytes());
    });
    let bundles = next(&mut jwt).await.unwrap().bundles;
    let partner: Value = serde_json::from_slice(&bundles[PARTNER_ID]).unwrap();
    assert_eq!(partner, json!({ "keys": [signer.jwk()] }));
    let x509: X509BundlesResponse = workload.first(FETCH_X509_BUNDLES).await.unwrap();
    assert_eq!(x509.bundles[PARTNER_ID], stage.foreign.ca.der().to_vec());
}

#[tokio::test]
async fn w9_certificates_are_der_and_the_key_is_pkcs8_and_fits() {
    let stage = Stage::start().await;
    let svid = stage.workload().await.svid().await.unwrap().svids.remove(0);
    let chain = [CertificateDer::from(svid.x509_svid)];
    let presented = PresentedSvid::read(&chain).unwrap();
    assert_eq!(presented.id().unwrap().to_string(), svid.spiffe_id);
    let bundle = Bundle::parse(document(&[stage.server.ca.jwk()]).as_bytes()).unwrap();
    assert_eq!(presented.verify(&bundle, Utc::now()), Ok(None));
    let key: PrivateKeyDer<'_> = PrivatePkcs8KeyDer::from(svid.x509_svid_key).into();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let signer = key.choose_scheme(&[rustls::SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
    let signature = signer.sign(b"message").unwrap();
    assert!(presented.key().unwrap().has_signed(b"message", &signature));
}

#[tokio::test]
async fn w10_hints_are_unique() {
    let stage = Stage::start().await;
    let svids = stage.workload().await.svid().await.unwrap().svids;
    let hints: Vec<_> = svids.iter().map(|it| &it.hint).filter(|it| !it.is_empty()).collect();
    assert_eq!(hints.iter().collect::<BTreeSet<_>>().len(), hints.len());
}

#[tokio::test]
async fn w11_the_service_has_no_methods_of_our_own() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    for method in [
        "/SpiffeWorkloadAPI/FetchX509",
        "/SpiffeWorkloadAPI/",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/",
    ] {
        assert_eq!(workload.code(method).await, Code::Unimplemented, "{method}");
    }
}

#[tokio::test]
async fn jwt_svids_of_our_own_and_of_federated_trust_domains_are_validated() {
    let (own, partner) = (JwtSigner::new(), JwtSigner::new());
    let stage = Stage::start_with(|server, _| {
        server.publish(|it| {
            it.insert(OWN.to_owned(), document(&[server.ca.jwk(), own.jwk()]).into_bytes());
            it.insert(PARTNER.to_owned(), document(&[partner.jwk()]).into_bytes());
        });
    })
    .await;
    stage.ready().await;
    let mut workload = stage.workload().await;
    for (signer, id) in [(&own, "spiffe://own.test/shop"), (&partner, "spiffe://partner.test/shop")]
    {
        let valid = workload.validate("till", &signer.token(id)).await.unwrap();
        assert_eq!(valid.spiffe_id, id);
        let claims = valid.claims.unwrap().fields;
        assert_eq!(claims["admin"].kind, Some(Kind::Bool(true)));
        assert_eq!(claims["sub"].kind, Some(Kind::String(id.to_owned())));
    }
    // The keys of one trust domain prove nothing in another.
    let forged = partner.token("spiffe://own.test/shop");
    let refused = workload.validate("till", &forged).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(!refused.message().contains(&forged));
    let token = own.token("spiffe://own.test/shop");
    for (audience, token) in [("bank", &*token), ("", &token), ("till", ""), ("till", "a.b.c")] {
        let refused = workload.validate(audience, token).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{audience}");
    }
    stage.server.publish(|it| {
        it.remove(PARTNER);
    });
    let token = partner.token("spiffe://partner.test/shop");
    timeout(PATIENCE, async {
        while workload.validate("till", &token).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("a deleted federation is trusted no more");
}

#[tokio::test]
async fn a_renewed_svid_comes_to_the_open_subscription_before_the_old_one_ends() {
    let stage =
        Stage::start_with(|server, _| server.change(|it| it.ttl = TimeDelta::seconds(10))).await;
    stage.ready().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509SvidResponse> =
        workload.subscribe(FETCH_X509_SVID).await.unwrap();
    let first = next(&mut stream).await.unwrap();
    stage.foreign.renew("spiffe://partner.test/renewed");
    let second = next(&mut stream).await.unwrap();
    assert_ne!(second.svids[0].x509_svid, first.svids[0].x509_svid);
    assert_ne!(second.svids[0].x509_svid_key, first.svids[0].x509_svid_key);
    assert!(stage.server.joined() >= 2);
}

#[tokio::test]
async fn an_agent_whose_ca_left_the_bundle_gets_a_new_svid_at_once() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509SvidResponse> =
        workload.subscribe(FETCH_X509_SVID).await.unwrap();
    let first = next(&mut stream).await.unwrap();
    let next_ca = Arc::new(Ca::new(OWN));
    stage.server.change(|it| it.signer = next_ca.clone());
    stage.server.present(&next_ca);
    stage.server.publish(|it| {
        it.insert(OWN.to_owned(), document(&[next_ca.jwk()]).into_bytes());
    });
    let waited = timeout(PATIENCE, async {
        loop {
            let message = next(&mut stream).await.unwrap();
            if message.svids[0].x509_svid != first.svids[0].x509_svid {
                return message;
            }
        }
    });
    let renewed = waited.await.expect("a new SVID in time").svids.remove(0);
    assert_eq!(renewed.bundle, next_ca.der().to_vec());
    let chain = [CertificateDer::from(renewed.x509_svid)];
    let bundle = Bundle::parse(document(&[next_ca.jwk()]).as_bytes()).unwrap();
    assert!(PresentedSvid::read(&chain).unwrap().verify(&bundle, Utc::now()).is_ok());
}

#[tokio::test]
async fn a_slow_reader_gets_the_newest_and_not_all_that_it_missed() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut fast: Streaming<X509BundlesResponse> =
        workload.subscribe(FETCH_X509_BUNDLES).await.unwrap();
    let mut slow: Streaming<X509BundlesResponse> =
        workload.subscribe(FETCH_X509_BUNDLES).await.unwrap();
    next(&mut fast).await.unwrap();
    // Big enough that no window of HTTP/2 holds a second one.
    let many: Vec<_> = (0..200).map(|_| Ca::new(PARTNER).jwk()).collect();
    const CHANGES: usize = 30;
    for count in 0..CHANGES {
        stage.server.publish(|it| {
            it.insert(PARTNER.to_owned(), document(&many[count..]).into_bytes());
        });
        next(&mut fast).await.unwrap();
    }
    stage.server.publish(|it| {
        it.remove(PARTNER);
    });
    assert_eq!(names(&next(&mut fast).await.unwrap().bundles), [OWN_ID]);
    let mut received = 0;
    while names(&next(&mut slow).await.unwrap().bundles) != [OWN_ID] {
        received += 1;
    }
    assert!(received < CHANGES, "{received} of {CHANGES} were queued");
}

#[tokio::test]
async fn an_agent_that_is_cut_off_serves_until_its_svid_ends_and_then_nothing() {
    let stage =
        Stage::start_with(|server, _| server.change(|it| it.ttl = TimeDelta::seconds(10))).await;
    stage.ready().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509SvidResponse> =
        workload.subscribe(FETCH_X509_SVID).await.unwrap();
    next(&mut stream).await.unwrap();
    stage.server.stop();
    eventually("the agent notices", || stage.metric("spiffe_agent_following") == "0").await;
    // What it has, it serves.
    assert_eq!(workload.code(FETCH_X509_SVID).await, Code::Ok);
    // On a slow machine it may have renewed its SVID before.
    let ended = loop {
        if let Err(ended) = next(&mut stream).await {
            break ended;
        }
    };
    assert_eq!(ended.code(), Code::Unavailable);
    for method in [FETCH_X509_SVID, FETCH_X509_BUNDLES, FETCH_JWT_BUNDLES] {
        assert_eq!(workload.code(method).await, Code::Unavailable, "{method}");
    }
    assert_eq!(stage.agent.waiting_for(), ["a renewal: the SVID has ended"]);
}

#[tokio::test]
async fn an_agent_whose_stream_breaks_joins_again_and_follows() {
    let stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509BundlesResponse> =
        workload.subscribe(FETCH_X509_BUNDLES).await.unwrap();
    next(&mut stream).await.unwrap();
    stage.server.cut();
    eventually("it joins again", || stage.server.joined() == 2).await;
    stage.server.publish(|it| {
        it.remove(PARTNER);
    });
    assert_eq!(names(&next(&mut stream).await.unwrap().bundles), [OWN_ID]);
    assert_eq!(stage.metric("spiffe_agent_joins_total{result=\"joined\"}"), "2");
}

#[tokio::test]
async fn what_an_agent_serves_lets_others_join_elsewhere_without_a_key_on_disk() {
    let stage = Stage::start().await;
    let elsewhere = JoinServer::start().await;
    let client = elsewhere.client(SvidSource::WorkloadApi(stage.socket.clone()));
    let joined = client.join(&elsewhere.trust()).await.unwrap();
    assert_eq!(joined.svid.id.to_string(), "spiffe://own.test/agent/one");
    let nobody = elsewhere.client(SvidSource::WorkloadApi("/nowhere/agent.sock".into()));
    let unreachable = nobody.join(&elsewhere.trust()).await.err().unwrap().to_string();
    assert!(unreachable.contains("Does its agent run?"), "{unreachable}");
}

#[tokio::test]
async fn an_agent_that_stops_ends_its_streams_and_takes_its_socket_away() {
    let mut stage = Stage::start().await;
    let mut workload = stage.workload().await;
    let mut stream: Streaming<X509SvidResponse> =
        workload.subscribe(FETCH_X509_SVID).await.unwrap();
    next(&mut stream).await.unwrap();
    assert_eq!(stage.metric("spiffe_agent_subscriptions"), "1");
    stage.stop.cancel();
    assert_eq!(next(&mut stream).await.unwrap_err().code(), Code::Unavailable);
    let task = std::mem::replace(&mut stage.task, tokio::spawn(async { Ok(()) }));
    timeout(PATIENCE, task).await.expect("it ends").unwrap().unwrap();
    assert!(!stage.socket.exists());
}

#[tokio::test]
async fn the_program_serves_its_socket_and_pages_and_stops_as_asked() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let folder = foreign.folder.path();
    let (bundle, socket) = (folder.join("bundle.json"), folder.join("agent.sock"));
    std::fs::write(&bundle, document(&[server.ca.jwk()])).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trustplane"));
    command.env_clear().args(["agent", "--token", "nodes", "--trust-domain", OWN]);
    command.args(["--server", &server.address.to_string(), "--listen", "127.0.0.1:0"]);
    command.arg("--server-bundle").arg(bundle).arg("--socket").arg(&socket);
    command.arg("--svid-file").arg(foreign.svid()).arg("--svid-key-file").arg(foreign.key());
    let child = command.kill_on_drop(true).stderr(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it serves", || socket.exists() && server.joined() == 1).await;
    let mut workload = Workload::connect(&socket).await;
    let mut served = workload.svid().await;
    // It may still be at its first join.
    while served.as_ref().is_err_and(|it| it.code() == Code::Unavailable) {
        served = workload.svid().await;
    }
    let key = served.unwrap().svids.remove(0).x509_svid_key;
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{log}");
    assert!(log.contains("joined") && !socket.exists(), "{log}");
    let base64 = base64::engine::general_purpose::STANDARD.encode(&key);
    for secret in [base64, hex::encode(&key), format!("{key:?}")] {
        assert!(!log.contains(&secret), "the key is in the log");
    }
}
