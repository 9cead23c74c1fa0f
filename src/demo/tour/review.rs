//! A tour of `trustplane review`: two clusters of one issuer, and a service in the first that has tokens of both.
//!
//! Every step sends TokenReviews to the product's own port, and then reads which of the clusters received the
//! token.

pub mod clusters;
pub mod expect;
pub mod printer;
pub mod stage;
pub mod steps;

use std::sync::Mutex;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use self::{
    expect::{Answer, Answered, Expected, OwnCredential, Seen, Which},
    stage::{BRANCH, Stage},
    steps::{Act, ActError, Step},
};
use super::walk::Scenario;
use crate::{
    k8s::api_error::{self, ApiError},
    review::decide::renewal::Source,
    runtime::lock::lock,
};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

pub struct Tour {
    pub stage: Stage,
    /// What the present step reviews.
    reviewed: Mutex<&'static [Which]>,
}

impl Tour {
    pub fn new(stage: Stage) -> Self {
        Self { stage, reviewed: Mutex::default() }
    }

    async fn review(&self, which: Which) -> Answered {
        let tokens = lock(&self.stage.tokens).clone();
        let token = match which {
            Which::Home => tokens.home,
            Which::Branch => tokens.branch,
            Which::Forged => forged(&tokens.branch),
        };
        for cluster in self.stage.clusters() {
            cluster.forget();
        }
        let outcome = match self.send(&token).await {
            Ok(outcome) => outcome,
            Err(error) => Answer::Refused { error: error.to_string() },
        };
        let received = self.stage.clusters().into_iter().filter(|it| it.has_received(&token));
        Answered { token: which, outcome, received_by: received.map(|it| it.name).collect() }
    }

    async fn send(&self, token: &str) -> Result<Answer, ApiError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token },
        });
        let request = Request::post(PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(review.to_string().into_bytes()))
            .map_err(|_| ApiError::Undecodable)?;
        let response = api_error::with_timeout(self.stage.caller.send(request)).await?;
        outcome(response).await
    }

    fn credential(&self) -> Option<OwnCredential> {
        let generation = self.stage.review.generation();
        let life = generation.credentials.life(BRANCH)?;
        let is_renewed = generation.credentials.source(BRANCH) == Some(Source::Secret);
        Some(OwnCredential { is_renewed, lives: life.length().num_seconds() })
    }
}

async fn outcome(response: Response<Body>) -> Result<Answer, ApiError> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| ApiError::Undecodable)?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &body["status"];
    Ok(match (head.status.as_u16(), status["authenticated"].as_bool()) {
        (201, Some(true)) => Answer::Authenticated {
            user: text(&status["user"]["username"]),
            cluster: text(&status["user"]["extra"]["authentication.kubernetes.io/cluster-name"][0]),
        },
        (201, _) => Answer::Refused { error: text(&status["error"]) },
        (code, _) => {
            let retry_after = head.headers.get(header::RETRY_AFTER);
            let retry_after = retry_after.and_then(|it| it.to_str().ok()).map(str::to_owned);
            Answer::Unanswered { code, retry_after }
        }
    })
}

/// Claims of an administrator, under the signature of a good token.
fn forged(token: &str) -> String {
    let mut parts = token.split('.');
    let (header, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
    let claims = String::from_utf8_lossy(&claims).replace("cart", "admin");
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims);
    format!("{header}.{claims}.{}", parts.next().unwrap_or_default())
}

impl Scenario for Tour {
    type Act = Act;
    type Expected = Expected;
    type Seen = Seen;
    type Error = ActError;

    fn steps(&self) -> Vec<Step> {
        steps::all()
    }

    async fn carry_out(&self, act: Act) -> Result<(), ActError> {
        self.act(act).await
    }

    async fn observe(&self) -> Seen {
        let reviewed = *lock(&self.reviewed);
        let mut answers = Vec::new();
        for which in reviewed {
            answers.push(self.review(*which).await);
        }
        Seen { answers, credential: self.credential() }
    }

    fn differences(expected: &Expected, seen: &Seen) -> Vec<String> {
        expected.differences(seen)
    }
}
