//! Random tokens and bodies. What our keys did not sign is never accepted, and nothing but bounded fetches of keys
//! reaches a cluster. `TRUSTPLANE_SEED` repeats a run, `TRUSTPLANE_LONG` makes it fifty times as long.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fastrand::Rng;
use http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    callers::Anybody,
    decide::{
        request::Answer,
        status::Failure,
        testing::{Issuer, claims, legacy_claims, token_of},
    },
    reviewer::{Asked, Purpose},
    serve::{self, Audit, Record, Service},
    testing::Stage,
};

struct NoAudit;

impl Audit for NoAudit {
    fn record(&self, _: Record<'_>) {}
    fn caller_refused(&self, _: &Failure) {}
}

fn cases() -> usize {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 1_000_000 } else { 20_000 }
}

fn random() -> Rng {
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let long = std::env::var_os("TRUSTPLANE_LONG").map(|_| u64::from(std::process::id()));
    let seed = given.or(long).unwrap_or(20);
    println!("TRUSTPLANE_SEED={seed}");
    Rng::with_seed(seed)
}

/// Makes tokens that are nearly good: parts of good ones put together, and changed here and there.
struct Forger {
    random: Rng,
    good: Vec<String>,
    headers: Vec<Value>,
    claims: Vec<Value>,
}

impl Forger {
    fn new(random: Rng, stage: &Stage) -> Self {
        let stranger = Issuer::p256("a");
        let mut others = claims();
        others["sub"] = "system:serviceaccount:kube-system:admin".into();
        others["kubernetes.io"]["namespace"] = "kube-system".into();
        others["kubernetes.io"]["serviceaccount"]["name"] = "admin".into();
        let mut ended = claims();
        ended["exp"] = json!(1_800_000_000);
        let claims = vec![claims(), others, ended, legacy_claims(), json!({}), json!({ "iss": 1 })];
        let headers = ["ES256", "ES384", "ES512", "RS256", "HS256", "none", "PS256", "EdDSA"];
        let headers = headers.iter().flat_map(|alg| {
            [json!("a"), json!("b"), json!("c"), json!(null), json!(1)]
                .map(|kid| json!({ "alg": alg, "kid": kid }))
        });
        let good = [&stage.of_a, &stage.of_b, &stranger];
        let good = good.iter().flat_map(|issuer| claims.iter().map(|it| issuer.token(it)));
        Self { random, good: good.collect(), headers: headers.collect(), claims }
    }

    fn token(&mut self) -> String {
        let mut token = match self.random.u8(..4) {
            0 => {
                let random = &mut self.random;
                let header = &self.headers[random.usize(..self.headers.len())];
                let claims = &self.claims[random.usize(..self.claims.len())];
                let signature: Vec<u8> = (0..random.usize(..140)).map(|_| random.u8(..)).collect();
                token_of(header, claims, &signature)
            }
            1 => {
                let parts = [0, 1, 2].map(|at| {
                    let from = &self.good[self.random.usize(..self.good.len())];
                    from.split('.').nth(at).unwrap_or_default().to_owned()
                });
                parts.join(".")
            }
            _ => self.good[self.random.usize(..self.good.len())].clone(),
        };
        for _ in 0..self.random.usize(..3) {
            self.change(&mut token);
        }
        token
    }

    fn change(&mut self, token: &mut String) {
        let random = &mut self.random;
        let at = random.usize(..=token.len());
        match random.u8(..5) {
            0 => token.truncate(at),
            1 => token.insert(at, *random.choice(&[' ', '\t', '.', '=', '\0', 'é', 'A']).unwrap()),
            2 => token.push_str(&"A".repeat(random.usize(..20_000))),
            3 => {
                // Another value in the same alphabet.
                let mut bytes = std::mem::take(token).into_bytes();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *random.choice(b"ABCXYZabcxyz0189-_").unwrap();
                }
                *token = String::from_utf8_lossy(&bytes).into_owned();
            }
            _ => token.insert_str(at, &URL_SAFE_NO_PAD.encode([random.u8(..), random.u8(..)])),
        }
    }
}

/// What a signature is over.
fn signed_part(token: &str) -> &str {
    token.rsplit_once('.').map_or("", |(signed, _)| signed)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_accepted_that_a_clusters_key_did_not_sign() {
    let stage = Stage::start().await;
    let mut forger = Forger::new(random(), &stage);
    // Those of the two clusters; the stranger's are not among them.
    let signed: BTreeSet<String> = forger.good[..2 * forger.claims.len()]
        .iter()
        .map(|it| signed_part(it).to_owned())
        .collect();
    let (mut accepted, begin) = (0, Instant::now());
    for _ in 0..cases() {
        let token = forger.token();
        let asked = Asked {
            token: &token,
            audiences: &[],
            audit_id: None,
            deadline: Instant::now() + Duration::from_secs(10),
            purpose: Purpose::Review,
            among: None,
        };
        let reviews = (stage.a.reviews().len(), stage.b.reviews().len());
        let Ok(reviewed) = stage.reviewer.review(asked).await else {
            panic!("both clusters answer, so this is no failure: {token}");
        };
        if let Answer::Authenticated(_) = reviewed.answer {
            assert!(signed.contains(signed_part(&token)), "{token}");
            accepted += 1;
        }
        let sent = (stage.a.reviews().len(), stage.b.reviews().len()) != reviews;
        assert!(!sent || signed.contains(signed_part(&token)), "sent to a cluster: {token}");
        stage.forget_reviews();
    }
    assert!(accepted > 100, "only {accepted} good ones: the rest shows nothing then");
    let seconds = begin.elapsed().as_secs() as usize + 2;
    for server in [&stage.a, &stage.b] {
        assert!(server.fetches() <= seconds, "{} fetches in {seconds} s", server.fetches());
    }
}

#[tokio::test(start_paused = true)]
async fn every_body_has_an_answer_in_the_form_of_kubernetes() {
    let stage = Stage::start().await;
    let mut forger = Forger::new(random(), &stage);
    let reviewer = Arc::new(stage.another_reviewer());
    let (audit, limits) = (Arc::new(NoAudit), Arc::default());
    let prefixes = std::collections::BTreeMap::new();
    let service = Arc::new(Service::new(reviewer, Box::new(Anybody), audit, prefixes, limits));
    let router = serve::router(move || service.clone());
    let kinds = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let mut codes = BTreeSet::new();
    for _ in 0..cases() {
        let token = forger.token();
        let document = json!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
            "spec": { "token": token, "audiences": ["shop"] },
        });
        let mut body = document.to_string().into_bytes();
        let random = &mut forger.random;
        for _ in 0..random.usize(..4) {
            let at = random.usize(..body.len());
            body[at] = random.u8(..);
        }
        if random.u8(..8) == 0 {
            body.splice(..0, *b"k8s\0");
        }
        let request = Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .header(header::CONTENT_TYPE, *random.choice(&kinds).unwrap())
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let kind = if code == 201 { "TokenReview" } else { "Status" };
        assert_eq!(answer["kind"], kind);
        assert!([201, 400].contains(&code), "{code}: {answer}");
        codes.insert(code);
        stage.forget_reviews();
    }
    assert_eq!(codes.len(), 2, "{codes:?}");
}
