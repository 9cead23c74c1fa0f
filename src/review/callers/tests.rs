use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::{
    k8s::{client, gate::Gate},
    review::{
        decide::{
            config,
            testing::{Issuer, claims, noon},
        },
        testing::Stage,
    },
    runtime::lock::lock,
};

/// Our own cluster, which allows some users to create TokenReviews.
#[derive(Clone, Default)]
struct Rights {
    allowed: Arc<Mutex<Vec<&'static str>>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Rights {
    fn client(&self) -> Client {
        let rights = self.clone();
        let transport = service_fn(move |request: Request<Body>| {
            let rights = rights.clone();
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                let mut review: Value = serde_json::from_slice(&body)?;
                let user = review["spec"]["user"].as_str().unwrap_or_default().to_owned();
                let allowed = lock(&rights.allowed).iter().any(|it| *it == user);
                lock(&rights.asked).push(review["spec"].clone());
                review["status"] = json!({ "allowed": allowed });
                let body = Full::new(Bytes::from(review.to_string()));
                Ok::<_, tower::BoxError>(Response::builder().status(201).body(body)?)
            }
        });
        client::over(transport, Gate::open())
    }
}

struct Door {
    stage: Stage,
    rights: Rights,
    callers: KnownCallers,
}

impl Door {
    /// Cluster `a` is our own. The rest of the configuration follows.
    async fn start(b: &str, rest: &str) -> Self {
        Self::between("", b, rest).await
    }

    async fn between(a: &str, b: &str, rest: &str) -> Self {
        let (stage, rights) = (Stage::start().await, Rights::default());
        let remote = "api_server: 'https://b.test', token_path: /b";
        let text =
            format!("clusters:\n  a: {{issuer: i{a}}}\n  b: {{issuer: i, {remote}{b}}}\n{rest}");
        let config = config::read(&text).unwrap();
        let clock = Clock::from_fn(noon);
        let callers = KnownCallers::new(stage.reviewer.clone(), &config, rights.client(), clock);
        Self { stage, rights, callers }
    }

    async fn admitted(&self, token: &str) -> Result<String, u16> {
        let request = Request::get("/").header(header::AUTHORIZATION, format!("Bearer {token}"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        self.callers.admit(&head).await.map_err(|failure| {
            assert!(token.is_empty() || !failure.message.contains(token));
            failure.code
        })
    }

    async fn of_a(&self) -> Result<String, u16> {
        self.admitted(&self.stage.of_a.token(&claims())).await
    }

    async fn of_b(&self) -> Result<String, u16> {
        self.admitted(&self.stage.of_b.token(&claims())).await
    }
}

const CART: &str = "system:serviceaccount:shop:cart";

#[tokio::test(start_paused = true)]
async fn without_a_list_our_own_cluster_says_which_of_its_accounts_may_ask() {
    let door = Door::start("", "").await;
    assert_eq!(door.of_a().await, Err(403));
    lock(&door.rights.allowed).push(CART);
    tokio::time::advance(REMEMBERED_FOR).await;
    assert_eq!(door.of_a().await, Ok("a/shop/cart".to_owned()));
    let asked = lock(&door.rights.asked).pop().unwrap();
    let expected = json!({
        "group": "authentication.k8s.io", "resource": "tokenreviews", "verb": "create",
    });
    assert_eq!(asked["resourceAttributes"], expected);
    assert!(asked["extra"].get("authentication.kubernetes.io/cluster-name").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_account_of_another_cluster_has_not_the_rights_of_ours_of_the_same_name() {
    let door = Door::start("", "").await;
    lock(&door.rights.allowed).push(CART);
    assert_eq!(door.of_b().await, Err(403));
    assert!(lock(&door.rights.asked).is_empty(), "the name alone would be a lie");
}

#[tokio::test(start_paused = true)]
async fn with_a_prefix_our_own_cluster_knows_the_accounts_of_another() {
    let prefixes = ", username_prefix: 'b:', groups_prefix: 'b:'";
    let door = Door::start(prefixes, "").await;
    lock(&door.rights.allowed).push("b:system:serviceaccount:shop:cart");
    assert_eq!(door.of_b().await, Ok("b/shop/cart".to_owned()));
    assert_eq!(door.of_a().await, Err(403));
}

#[tokio::test(start_paused = true)]
async fn our_own_cluster_knows_its_accounts_without_the_prefix_that_others_are_told() {
    let prefixes = ", username_prefix: 'a:', groups_prefix: 'a:'";
    let door = Door::between(prefixes, "", "").await;
    lock(&door.rights.allowed).push(CART);
    assert_eq!(door.of_a().await, Ok("a/shop/cart".to_owned()));
    let asked = lock(&door.rights.asked).pop().unwrap();
    assert!(asked["groups"].as_array().unwrap().contains(&json!("system:authenticated")));
}

#[tokio::test(start_paused = true)]
async fn a_list_decides_alone() {
    let door = Door::start("", "authorized_clients: ['b/*/cart']\n").await;
    lock(&door.rights.allowed).push(CART);
    assert_eq!(door.of_b().await, Ok("b/shop/cart".to_owned()));
    assert_eq!(door.of_a().await, Err(403));
    assert!(lock(&door.rights.asked).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_shows_no_good_token_is_not_known() {
    let door = Door::start("", "authorized_clients: ['*/*/*']\n").await;
    let forged = Issuer::p256("a").token(&claims());
    for token in ["", "not-one", &*forged, &format!(" {forged}"), &format!("{forged} x")] {
        assert_eq!(door.admitted(token).await, Err(401), "{token}");
    }
    let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
    assert_eq!(door.callers.admit(&head).await.err().map(|it| it.code), Some(401));
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_remembered_for_ten_seconds_and_no_longer() {
    let door = Door::start("", "authorized_clients: ['a/*/*']\n").await;
    let reviews = || door.stage.a.reviews().len();
    let token = door.stage.of_a.token(&claims());
    for _ in 0..3 {
        assert!(door.admitted(&token).await.is_ok());
    }
    assert_eq!(reviews(), 1);
    *lock(&door.stage.a.lie) = Some(Box::new(|_| json!({ "user": {}, "error": "revoked" })));
    tokio::time::advance(REMEMBERED_FOR).await;
    assert_eq!(door.admitted(&token).await, Err(401));
    assert_eq!(reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_callers_cluster_is_no_refusal() {
    let door = Door::start("", "authorized_clients: ['*/*/*']\n").await;
    *lock(&door.stage.a.code) = Some(503);
    assert_eq!(door.of_a().await, Err(503));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_a_user_with_groups() {
    let door = Door::start("", "").await;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver-d");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "masters");
    let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    let request = || {
        let mut request = Request::get("/").body(()).unwrap();
        let certificate = ClientCertificate(der.der().to_vec().into());
        request.extensions_mut().insert(certificate);
        request.into_parts().0
    };
    let code = door.callers.admit(&request()).await.err().map(|it| it.code);
    assert_eq!(code, Some(403));
    lock(&door.rights.allowed).push("kube-apiserver-d");
    tokio::time::advance(REMEMBERED_FOR).await;
    let admitted = door.callers.admit(&request()).await;
    assert_eq!(admitted, Ok("certificate of kube-apiserver-d".to_owned()));
    let asked = lock(&door.rights.asked).pop().unwrap();
    assert_eq!(asked["groups"], json!(["masters", "system:authenticated"]));
}
