//! Authorizes requests by bearer token: the API server says who the token belongs to (TokenReview),
//! and whether that user may get the path (SubjectAccessReview).
//!
//! Tokens are never kept or shown. The cache has their digests only.

use std::{collections::HashMap, fmt, sync::Mutex, time::Duration};

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

const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// Shorter, so that a new permission takes effect soon.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Readers of metrics are few; more tokens than this are guesses.
const CACHE_SIZE: usize = 256;
/// Requests to the API server at once, however many connections there are.
const MAX_REVIEWS: usize = 4;
/// Longer than any token.
const LONGEST_TOKEN: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Allowed,
    /// No token, or one that the API server does not know.
    Unauthenticated,
    /// The API server knows the user, who lacks the permission.
    Forbidden,
}

/// Asks the API server, and caches its answers.
pub struct TokenAuth {
    client: Client,
    cache: Mutex<HashMap<[u8; 32], CachedAccess>>,
    permits: Semaphore,
}

#[derive(Clone, Copy)]
struct CachedAccess {
    access: Access,
    until: Instant,
}

impl fmt::Debug for TokenAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenAuth")
    }
}

impl TokenAuth {
    /// The client's gate must be open: metrics of a standby are read too.
    pub fn new(client: Client) -> Self {
        Self { client, cache: Mutex::default(), permits: Semaphore::new(MAX_REVIEWS) }
    }

    pub async fn check(&self, headers: &HeaderMap, path: &str) -> Result<Access, ApiError> {
        let Some(token) = bearer(headers) else { return Ok(Access::Unauthenticated) };
        let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(token);
        let key = digest.finalize().into();
        if let Some(access) = self.cached(&key) {
            return Ok(access);
        }
        // The semaphore is never closed.
        let _permit =
            self.permits.acquire().await.map_err(|_| ApiError::Timeout(Duration::ZERO))?;
        // Another request may have asked the same meanwhile.
        if let Some(access) = self.cached(&key) {
            return Ok(access);
        }
        let access = self.review(token, path).await?;
        self.store(key, access);
        Ok(access)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Access, ApiError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api_error::with_timeout(api.create(&PostParams::default(), &review)).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user.filter(|user| user.username.is_some()) else {
            return Ok(Access::Unauthenticated);
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview { spec: may_get(user, path), ..Default::default() };
        let answer = api_error::with_timeout(api.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Access::Allowed } else { Access::Forbidden })
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Access> {
        let found = lock(&self.cache).get(key).copied()?;
        (Instant::now() < found.until).then_some(found.access)
    }

    fn store(&self, key: [u8; 32], access: Access) {
        let now = Instant::now();
        let lasts = if access == Access::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        let mut cache = lock(&self.cache);
        if cache.len() >= CACHE_SIZE {
            cache.retain(|_, it| now < it.until);
        }
        if cache.len() >= CACHE_SIZE {
            // Somebody guesses tokens; keep the valid ones.
            cache.retain(|_, it| it.access == Access::Allowed);
        }
        if cache.len() < CACHE_SIZE {
            cache.insert(key, CachedAccess { access, until: now + lasts });
        }
    }
}

/// The bearer token of a request. None if there is no such header or more than one, or if what it holds is no token:
/// with whitespace or control characters, no API server means the same by it as we would.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    (is_bearer && is_token && token.len() <= LONGEST_TOKEN).then_some(token)
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
