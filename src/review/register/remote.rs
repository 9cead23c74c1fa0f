//! The cluster that is registered: its objects, and a token of our account there.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use kube::{Api, Client, Config, api::PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use crate::{
    k8s::{
        api_error::{self, ApiError},
        client,
        gate::Gate,
    },
    review::{
        decide::{
            directory::PublishedKey,
            register::{
                Acceptance,
                objects::{Change, Object, objects},
                removal::Removal,
            },
        },
        keys,
    },
};

const SILENCE: Duration = Duration::from_secs(30);
/// An API server takes a moment until it knows a new account and its rights.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);
const DISCOVERY: &str = "/.well-known/openid-configuration";
const FLOW_CONTROL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("the cluster can't be reached: {0}")]
    Connect(ApiError),
    #[error("{object} could not be {done} there: {source}{}", advice(.source))]
    Call { object: String, done: &'static str, source: ApiError },
    #[error("{0}")]
    Manifest(#[from] crate::review::decide::register::objects::ManifestError),
    #[error("the API server made no token that can be used: {0}")]
    Token(String),
    #[error(
        "the new token does not work: {0}. Nothing was written here. Is something else needed to create TokenReviews \
         there, such as an admission policy?"
    )]
    Refused(String),
}

fn advice(error: &ApiError) -> &'static str {
    match error {
        ApiError::Forbidden => {
            ". Use a kubeconfig of an administrator: whoever gives rights away needs them"
        }
        ApiError::Unauthorized => ". The credentials of the kubeconfig are not valid any more",
        ApiError::Conflict => ". Somebody else changed it: run this again",
        _ => "",
    }
}

fn failed(object: &impl ToString, done: &'static str) -> impl FnOnce(ApiError) -> RemoteError {
    let object = object.to_string();
    move |source| RemoteError::Call { object, done, source }
}

pub struct RemoteCluster {
    config: Config,
    client: Client,
}

impl RemoteCluster {
    pub fn connect(config: Config) -> Result<Self, RemoteError> {
        let client = connected(config.clone()).map_err(RemoteError::Connect)?;
        Ok(Self { config, client })
    }

    /// What belongs there, with what is there. Without what that cluster does not know.
    pub async fn objects(&self) -> Result<Vec<(Object, Option<Value>)>, RemoteError> {
        let has_flow_control = self.get(FLOW_CONTROL).await;
        let has_flow_control = has_flow_control.map_err(failed(&"the API", "read"))?.is_some();
        let mut all = Vec::new();
        for object in objects()?.into_iter().filter(|it| has_flow_control || !it.is_optional()) {
            let found = self.get(&object.path()).await.map_err(failed(&object, "read"))?;
            all.push((object, found));
        }
        Ok(all)
    }

    /// As its discovery document says; none if that can't be read.
    pub async fn issuer(&self) -> Option<String> {
        let document = self.get(DISCOVERY).await.ok().flatten()?;
        document["issuer"].as_str().map(str::to_owned)
    }

    /// None if they can't be read.
    pub async fn keys(&self) -> Option<Vec<PublishedKey>> {
        keys::fetch(&self.client).await.ok().map(|(keys, _)| keys)
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        let request = Request::get(path).body(Vec::new());
        match self.send(request).await {
            Err(ApiError::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }

    async fn send(&self, request: http::Result<Request<Vec<u8>>>) -> Result<Value, ApiError> {
        // The paths are ours, and have no character that a URL can't have.
        let request = request.map_err(|_| ApiError::Undecodable)?;
        api_error::with_timeout(self.client.request(request)).await
    }

    /// Does nothing where nothing has changed.
    pub async fn write(&self, object: &Object, change: &Change) -> Result<(), RemoteError> {
        const MANAGER: &str = "fieldManager=trustplane-cli";
        let (request, done) = match change {
            Change::Nothing => return Ok(()),
            Change::Create => {
                let request = Request::post(format!("{}?{MANAGER}", object.collection()))
                    .header(http::header::CONTENT_TYPE, "application/json");
                (request.body(object.content.to_string().into_bytes()), "created")
            }
            Change::Patch(patch) => {
                let request = Request::patch(format!("{}?{MANAGER}", object.path()))
                    .header(http::header::CONTENT_TYPE, "application/merge-patch+json");
                (request.body(patch.to_string().into_bytes()), "changed")
            }
        };
        self.send(request).await.map_err(failed(object, done))?;
        Ok(())
    }

    pub async fn remove(&self, object: &Object, removal: &Removal) -> Result<(), RemoteError> {
        let Removal::Delete(options) = removal else { return Ok(()) };
        let request = Request::delete(object.path())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(options.to_string().into_bytes());
        match self.send(request).await {
            Ok(_) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(failed(object, "deleted")(error)),
        }
    }

    /// A token of the account. The server may grant a shorter life.
    pub async fn token(
        &self,
        account: &Object,
        life: Duration,
    ) -> Result<Zeroizing<String>, RemoteError> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: i64::try_from(life.as_secs()).ok(),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let body = json!(request).to_string().into_bytes();
        let request = Request::post(format!("{}/token", account.path()))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|_| RemoteError::Token("no request".to_owned()))?;
        let answer = api_error::with_timeout(self.client.request::<TokenRequest>(request)).await;
        let answer = answer.map_err(failed(&format!("a token of {account}"), "made"))?;
        let token = answer.status.and_then(|it| it.token).map(Zeroizing::new);
        token.ok_or_else(|| RemoteError::Token("the answer has none".to_owned()))
    }

    /// Whether the API server takes a token that we have.
    pub async fn acceptance(&self, token: &str) -> Acceptance {
        let Ok(client) = self.with_token(token) else { return Acceptance::Unknown };
        let api: Api<SelfSubjectReview> = Api::all(client);
        let (params, question) = (PostParams::default(), SelfSubjectReview::default());
        match api_error::with_timeout(api.create(&params, &question)).await {
            Ok(_) | Err(ApiError::Forbidden) => Acceptance::Accepted,
            Err(ApiError::Unauthorized) => Acceptance::Refused,
            Err(_) => Acceptance::Unknown,
        }
    }

    /// Has the token reviewed with itself, as trustplane review will. It is tried before it is written.
    pub async fn try_token(&self, token: &str) -> Result<(), RemoteError> {
        let client = self.with_token(token).map_err(RemoteError::Connect)?;
        let api: Api<TokenReview> = Api::all(client);
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let question = TokenReview { spec, ..TokenReview::default() };
        let end = Instant::now() + PATIENCE;
        loop {
            let answer =
                api_error::with_timeout(api.create(&PostParams::default(), &question)).await;
            let why = match answer {
                Ok(review) if review.status.as_ref().is_some_and(is_authenticated) => return Ok(()),
                Ok(_) => "the API server does not accept it".to_owned(),
                Err(error @ (ApiError::Unauthorized | ApiError::Forbidden)) => error.to_string(),
                Err(error) => return Err(RemoteError::Refused(error.to_string())),
            };
            if Instant::now() >= end {
                return Err(RemoteError::Refused(why));
            }
            sleep(PAUSE).await;
        }
    }

    /// A client that is our account, and not whoever registers it.
    fn with_token(&self, token: &str) -> Result<Client, ApiError> {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        config.auth_info.token = Some(token.to_owned().into());
        connected(config)
    }
}

fn is_authenticated(status: &k8s_openapi::api::authentication::v1::TokenReviewStatus) -> bool {
    status.authenticated == Some(true)
}

fn connected(config: Config) -> Result<Client, ApiError> {
    Ok(client::connect(config, Gate::open(), SILENCE)?)
}
