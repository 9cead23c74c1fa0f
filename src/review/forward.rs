//! Asks a token's own cluster about it, with a TokenReview of ours.
//!
//! Each cluster has its own connections, its own bound of calls under way, and its own circuit breaker, so one
//! that hangs or is down takes nothing from the others. No two reviews share a call: whoever joined one that
//! was sent earlier would get a verdict that is older than the question.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Client, api::PostParams, client::Body, core::Request};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::answer;
use crate::{
    k8s::api_error::ApiError,
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Kubernetes keeps it in its audit log, so that one review can be followed through both.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Calls to one cluster at the same time. Streams of one HTTP/2 connection are a hundred or more.
const UNDER_WAY: usize = 100;
/// Of an answer, in bytes. It has the token and the audiences once more.
const LONGEST: usize = 512 * 1024;
/// Failures in a row after which a cluster is not asked for a while.
const FAILURES: u32 = 5;
/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(5);
const SHORTEST_BREAK: Duration = Duration::from_secs(1);
const LONGEST_BREAK: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No such cluster is configured any more.
    #[error("cluster {0} is not configured")]
    Unknown(Arc<str>),
    #[error("{UNDER_WAY} reviews are under way at cluster {0}")]
    Busy(Arc<str>),
    #[error("cluster {cluster} failed {FAILURES} times in a row, and is asked again soon")]
    Broken {
        cluster: Arc<str>,
        /// How it failed last.
        last: Option<ApiError>,
    },
    #[error("cluster {cluster}: {source}")]
    Call { cluster: Arc<str>, source: ApiError },
}

/// A review that goes to its token's cluster. Has no Debug: it holds a token.
pub struct Question<'a> {
    pub token: &'a str,
    pub audiences: &'a [String],
    /// As the caller named its request.
    pub audit_id: Option<&'a HeaderValue>,
    pub deadline: Instant,
}

struct Member {
    client: Client,
    permits: Semaphore,
    breaker: Mutex<Breaker>,
}

pub struct Forwarder {
    members: BTreeMap<Arc<str>, Member>,
}

impl Forwarder {
    pub fn new(clusters: impl IntoIterator<Item = (Arc<str>, Client)>) -> Self {
        let member = |(name, client)| {
            let permits = Semaphore::new(UNDER_WAY);
            (name, Member { client, permits, breaker: Mutex::default() })
        };
        Self { members: clusters.into_iter().map(member).collect() }
    }

    /// Whether reviews are sent to it, as far as is known.
    pub fn is_answering(&self, cluster: &str) -> bool {
        let closed_until = |member: &Member| lock(&member.breaker).closed_until;
        self.members.get(cluster).is_some_and(|it| closed_until(it).is_none())
    }

    /// What the cluster says. Nothing of what the caller sent along is passed on but token and audiences.
    pub async fn forward(
        &self,
        cluster: &Arc<str>,
        question: Question<'_>,
    ) -> Result<Option<TokenReviewStatus>, ForwardError> {
        let member = self.members.get(cluster);
        let member = member.ok_or_else(|| ForwardError::Unknown(cluster.clone()))?;
        let permit = member.permits.try_acquire();
        let _permit = permit.map_err(|_| ForwardError::Busy(cluster.clone()))?;
        {
            let mut breaker = lock(&member.breaker);
            if !breaker.admits(Instant::now(), question.deadline) {
                let (cluster, last) = (cluster.clone(), breaker.last.clone());
                return Err(ForwardError::Broken { cluster, last });
            }
        }
        let begin = Instant::now();
        let asked = timeout_at(question.deadline, ask(&member.client, &question)).await;
        let asked = asked.unwrap_or_else(|_| Err(ApiError::Timeout(begin.elapsed())));
        // A caller that has no patience proves nothing about the cluster.
        let is_hasty = matches!(asked, Err(ApiError::Timeout(time)) if time < PATIENCE);
        if !is_hasty {
            lock(&member.breaker).note(asked.as_ref().err(), Instant::now());
        }
        asked.map_err(|source| ForwardError::Call { cluster: cluster.clone(), source })
    }
}

async fn ask(
    client: &Client,
    question: &Question<'_>,
) -> Result<Option<TokenReviewStatus>, ApiError> {
    let audiences = question.audiences.to_vec();
    let spec = TokenReviewSpec {
        token: question.token.to_owned(),
        audiences: Some(audiences).filter(|all| !all.is_empty()),
    };
    let review = TokenReview { spec, ..TokenReview::default() };
    let body = serde_json::to_vec(&review).map_err(|_| ApiError::Undecodable)?;
    let request = Request::new(PATH).create(&PostParams::default(), body);
    // The path is ours, and has no character that a URL can't have.
    let mut request = request.map_err(|_| ApiError::Undecodable)?;
    if let Some(id) = question.audit_id {
        request.headers_mut().insert(AUDIT_ID, id.clone());
    }
    let response = client.send(request.map(Body::from)).await?;
    let answered: TokenReview = answer::read(response, LONGEST).await?;
    Ok(answered.status)
}

/// Keeps reviews from waiting for a cluster that does not answer.
#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    last: Option<ApiError>,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// After a break, one review tries it; the others wait for how it ends, at most until its deadline.
    fn admits(&mut self, now: Instant, deadline: Instant) -> bool {
        match self.closed_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) if failpoints::has(Bug::NeverTriesAgain) => false,
            Some(_) => {
                self.closed_until = Some(deadline);
                true
            }
        }
    }

    fn note(&mut self, error: Option<&ApiError>, now: Instant) {
        let Some(error) = error.filter(|error| is_outage(error)) else {
            *self = Self::default();
            return;
        };
        self.last = Some(error.clone());
        self.failures = self.failures.saturating_add(1);
        if let Some(breaks) = self.failures.checked_sub(FAILURES) {
            let pause = SHORTEST_BREAK.saturating_mul(1 << breaks.min(10)).min(LONGEST_BREAK);
            self.closed_until = Some(now + pause.mul_f64(0.75 + fastrand::f64() / 4.0));
        }
    }
}

/// Whether the cluster did not answer, or not about the token.
fn is_outage(error: &ApiError) -> bool {
    match error {
        ApiError::Timeout(_)
        | ApiError::Unreachable { .. }
        | ApiError::Server { .. }
        | ApiError::Unauthorized
        | ApiError::Forbidden
        | ApiError::NotFound
        | ApiError::Undecodable => true,
        // It is there, and busy, or speaks of this one review.
        _ => false,
    }
}

#[cfg(test)]
mod tests;
