//! Who may read a page of ours: the API server is asked who a bearer token belongs to, and whether
//! that user may get the page.
//!
//! A token is never kept or shown. The cache knows its digest alone.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use http::{HeaderMap, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    k8s::api_error::{self, ApiError},
    runtime::lock::lock,
};

/// How long somebody who was let in is not asked about again.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// Shorter: a right that was just granted should count soon.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Tokens that are remembered. Readers of metrics are few; more than this is somebody guessing.
const REMEMBERED: usize = 256;
/// Questions to the API server under way at once, however many connections there are.
const AT_ONCE: usize = 4;
/// Longer than any token.
const LONGEST: usize = 16 * 1024;

/// Whether somebody may read a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allowed,
    /// No token, or one that the API server does not know.
    Unknown,
    /// The API server knows who it is, and that they may not.
    Refused,
}

/// Asks the API server, and remembers its answers for a while.
pub struct TokenAuth {
    client: Client,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
    turns: Semaphore,
}

#[derive(Clone, Copy)]
struct Remembered {
    verdict: Verdict,
    until: Instant,
}

impl fmt::Debug for TokenAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenAuth")
    }
}

impl TokenAuth {
    /// Asks through this client. Its gate must be open: a replica that stands by is read too.
    pub fn new(client: Client) -> Self {
        Self { client, remembered: Mutex::default(), turns: Semaphore::new(AT_ONCE) }
    }

    /// Whether the sender of these headers may get this path.
    pub async fn check(&self, headers: &HeaderMap, path: &str) -> Result<Verdict, ApiError> {
        let Some(token) = bearer(headers) else { return Ok(Verdict::Unknown) };
        let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(token);
        let key = digest.finalize().into();
        if let Some(verdict) = self.recall(&key) {
            return Ok(verdict);
        }
        // A closed semaphore would be a bug; nobody is let in by it.
        let _turn = self.turns.acquire().await.map_err(|_| ApiError::Timeout(Duration::ZERO))?;
        // Whoever waited for the turn may have been answered with another's question.
        if let Some(verdict) = self.recall(&key) {
            return Ok(verdict);
        }
        let verdict = self.ask(token, path).await?;
        self.remember(key, verdict);
        Ok(verdict)
    }

    async fn ask(&self, token: &str, path: &str) -> Result<Verdict, ApiError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api_error::with_timeout(api.create(&PostParams::default(), &review)).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user.filter(|user| user.username.is_some()) else {
            return Ok(Verdict::Unknown);
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview { spec: may_get(user, path), ..Default::default() };
        let answer = api_error::with_timeout(api.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Verdict::Allowed } else { Verdict::Refused })
    }

    fn recall(&self, key: &[u8; 32]) -> Option<Verdict> {
        let found = self.remembered().get(key).copied()?;
        (Instant::now() < found.until).then_some(found.verdict)
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict) {
        let now = Instant::now();
        let lasts = if verdict == Verdict::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            remembered.retain(|_, it| now < it.until);
        }
        if remembered.len() >= REMEMBERED {
            // Somebody tries one token after the other: those who were let in stay.
            remembered.retain(|_, it| it.verdict == Verdict::Allowed);
        }
        if remembered.len() < REMEMBERED {
            remembered.insert(key, Remembered { verdict, until: now + lasts });
        }
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<[u8; 32], Remembered>> {
        lock(&self.remembered)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    (is_token && token.len() <= LONGEST).then_some(token)
}

fn may_get(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    let attributes =
        NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests;
