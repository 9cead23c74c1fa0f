//! One review, from the token to the answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use http::HeaderValue;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    decide::{
        cluster_answer::{ClusterAnswer, Mismatch, judge},
        config::Prefixes,
        detect::{Detected, NobodyReason, detect},
        identity::Identity,
        request::Answer,
        status::Failure,
        token::{Token, TokenError},
    },
    forward::{ForwardError, Forwarder, Question},
    keys::{KeyStore, Refreshed},
    remembered::{Fresh, Remembered},
};
use crate::{
    k8s::{api_error::ApiError, client::NoToken},
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
    },
};

/// Reviews that may wait for new keys at the same time, callers' own tokens apart.
const WAITING: usize = 56;
const WAITING_CALLERS: usize = 8;
/// Verdicts that are remembered where the configuration asks for it.
const MOST_REMEMBERED: usize = 16 * 1024;
/// Kubernetes' words.
const INVALID: &str = "invalid bearer token";
const EXPIRED: &str = "[invalid bearer token, service account token has expired]";

/// Whose token it is. Those of callers have places of their own, so that a flood of tokens to review does not
/// keep callers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Review,
    Caller,
}

/// Why a token is not good, for the audit log. Nothing of it is told to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedReason {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Nobody(#[from] NobodyReason),
    #[error("no cluster publishes its key")]
    UnpublishedKey,
    #[error("its cluster says no: {0}")]
    Cluster(String),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("its cluster has no prefix for names, so no kube-apiserver is told one")]
    NoPrefix,
}

impl RefusedReason {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Token(_) => "malformed",
            Self::Nobody(NobodyReason::Issuer) => "foreign-issuer",
            Self::Nobody(NobodyReason::Signature) => "bad-signature",
            Self::Nobody(NobodyReason::Expired) => "expired",
            Self::UnpublishedKey => "unpublished-key",
            Self::Cluster(_) => "cluster",
            Self::Mismatch(_) => "mismatch",
            Self::NoPrefix => "no-prefix",
        }
    }
}

/// What came out.
#[derive(Clone)]
pub struct Reviewed {
    pub answer: Answer,
    /// None if it is nobody's.
    pub cluster: Option<Arc<str>>,
    pub identity: Option<Identity>,
    pub refused: Option<RefusedReason>,
    /// The end of the token; legacy ones have none.
    pub expires: Option<DateTime<Utc>>,
}

impl Reviewed {
    /// With the names that the cluster's users have elsewhere.
    pub fn prefixed(mut self, prefixes: &Prefixes) -> Self {
        self.answer = match self.answer {
            Answer::Authenticated(it) => Answer::Authenticated(Box::new(it.prefixed(prefixes))),
            no => no,
        };
        self
    }

    fn of(mut self, cluster: Arc<str>, token: &Token<'_>) -> Self {
        self.cluster = Some(cluster);
        self.identity = Some(token.identity.clone());
        self.expires = token.expires;
        self
    }

    fn refused(reason: impl Into<RefusedReason>) -> Self {
        let reason = reason.into();
        let words = match &reason {
            RefusedReason::Nobody(NobodyReason::Expired) => EXPIRED.to_owned(),
            RefusedReason::Cluster(words) => words.clone(),
            _ => INVALID.to_owned(),
        };
        let answer = Answer::NotAuthenticated(words);
        Self { answer, cluster: None, identity: None, refused: Some(reason), expires: None }
    }
}

/// What a review is asked with. Has no Debug: it holds a token.
pub struct Asked<'a> {
    pub token: &'a str,
    pub audiences: &'a [String],
    pub audit_id: Option<&'a HeaderValue>,
    pub deadline: Instant,
    pub purpose: Purpose,
    /// The clusters of which the asker is told anything; none of the others is asked. None: all.
    pub among: Option<&'a BTreeMap<Arc<str>, Prefixes>>,
}

pub struct Reviewer {
    keys: Arc<KeyStore>,
    forwarder: Arc<Forwarder>,
    clock: Clock,
    waiting: Semaphore,
    waiting_callers: Semaphore,
    cache: Option<Cache>,
}

/// Verdicts that count for a while: a revoked token stays good for so long.
struct Cache {
    ttl: Duration,
    verdicts: Remembered<Reviewed>,
}

impl Reviewer {
    pub fn new(keys: Arc<KeyStore>, forwarder: Arc<Forwarder>, clock: Clock) -> Self {
        let (waiting, waiting_callers) = (Semaphore::new(WAITING), Semaphore::new(WAITING_CALLERS));
        Self { keys, forwarder, clock, waiting, waiting_callers, cache: None }
    }

    /// Without a time, every review asks the token's cluster.
    pub fn remembering(mut self, ttl: Option<Duration>) -> Self {
        let cache = |ttl| Cache { ttl, verdicts: Remembered::new(MOST_REMEMBERED) };
        self.cache = ttl.map(cache);
        self
    }

    /// A failure says nothing about the token: nobody may take it for a no.
    pub async fn review(&self, asked: Asked<'_>) -> Result<Reviewed, Failure> {
        let token = match Token::read(asked.token) {
            Ok(token) => token,
            Err(error) => return Ok(Reviewed::refused(error)),
        };
        let cluster = match self.detected(&token, &asked).await? {
            Ok(cluster) => cluster,
            Err(reason) => return Ok(Reviewed::refused(reason)),
        };
        // Its own API server may be the asker. It would wait for us while we wait for it, because it asks about one
        // token once at a time.
        if asked.among.is_some_and(|told| !told.contains_key(&cluster)) {
            return Ok(Reviewed::refused(RefusedReason::NoPrefix).of(cluster, &token));
        }
        let Some(cache) = &self.cache else { return self.asked(cluster, &token, &asked).await };
        // The name as well: a token can become another cluster's when the configuration changes.
        let count = (asked.audiences.len() as u64).to_be_bytes();
        let mut question = vec![cluster.as_bytes(), asked.token.as_bytes(), &count];
        if !failpoints::has(Bug::AudiencesLeftOut) {
            question.extend(asked.audiences.iter().map(String::as_bytes));
        }
        let fresh = async {
            let answer = self.asked(cluster.clone(), &token, &asked).await?;
            let until = self.good_until(&answer, cache.ttl);
            Ok(Fresh { answer, until })
        };
        let verdict = timeout_at(asked.deadline, cache.verdicts.get_or(&question, fresh)).await;
        verdict.unwrap_or_else(|_| Err(Failure::unavailable(unanswered(&cluster))))
    }

    /// How long others may get this answer: only a yes, and not past the end of the token.
    fn good_until(&self, reviewed: &Reviewed, ttl: Duration) -> Option<Instant> {
        let Answer::Authenticated(_) = &reviewed.answer else { return None };
        let left = reviewed.expires.map(|end| self.clock.until(end));
        Some(Instant::now() + left.map_or(ttl, |left| left.min(ttl)))
    }

    /// What the token's own cluster says of it now.
    async fn asked(
        &self,
        cluster: Arc<str>,
        token: &Token<'_>,
        asked: &Asked<'_>,
    ) -> Result<Reviewed, Failure> {
        let question = Question {
            token: asked.token,
            audiences: asked.audiences,
            audit_id: asked.audit_id,
            deadline: asked.deadline,
        };
        let forwarded = self.forwarder.forward(&cluster, question).await;
        if forwarded.is_err() && failpoints::has(Bug::OutageAsFalse) {
            return Ok(Reviewed::refused(RefusedReason::UnpublishedKey));
        }
        let status = forwarded.map_err(|error| {
            tracing::warn!(%error, "forwarding a review failed");
            failure(&error)
        })?;
        let reviewed = match judge(status, token, asked.audiences, &cluster) {
            ClusterAnswer::Accepted(accepted) => Reviewed {
                answer: Answer::Authenticated(accepted),
                cluster: None,
                identity: None,
                refused: None,
                expires: None,
            },
            ClusterAnswer::Refused(words) => Reviewed::refused(RefusedReason::Cluster(words)),
            ClusterAnswer::Mismatch(mismatch) => {
                tracing::error!(%cluster, %mismatch, "the cluster's answer contradicts its token");
                Reviewed::refused(mismatch)
            }
        };
        Ok(reviewed.of(cluster, token))
    }

    /// The token's cluster, after its keys were fetched again if no known one signed it.
    async fn detected(
        &self,
        token: &Token<'_>,
        asked: &Asked<'_>,
    ) -> Result<Result<Arc<str>, RefusedReason>, Failure> {
        if self.keys.awaits_notes() {
            return Err(Failure::unavailable("whose each key is was not read yet"));
        }
        let find = || detect(token, &self.keys.directory(), self.clock.now());
        let clusters = match find() {
            Detected::UnknownKey(clusters) if failpoints::has(Bug::SentToCandidates) => {
                return Ok(Ok(clusters[0].clone()));
            }
            Detected::UnknownKey(clusters) => clusters,
            Detected::Of(cluster) => return Ok(Ok(cluster)),
            Detected::Nobody(reason) => return Ok(Err(reason.into())),
        };
        let waiting = match asked.purpose {
            Purpose::Review => &self.waiting,
            Purpose::Caller => &self.waiting_callers,
        };
        let _place = waiting.try_acquire().map_err(|_| {
            Failure::too_many_requests("too many tokens with keys that are not known yet")
        })?;
        let refreshed = self.keys.refresh(&clusters, asked.deadline).await;
        match find() {
            Detected::Of(cluster) => Ok(Ok(cluster)),
            Detected::Nobody(reason) => Ok(Err(reason.into())),
            Detected::UnknownKey(_) if refreshed == Refreshed::All => {
                Ok(Err(RefusedReason::UnpublishedKey))
            }
            Detected::UnknownKey(_) => {
                Err(Failure::unavailable("the keys of a cluster could not be fetched"))
            }
        }
    }
}

/// An outage is never told as a no. What does not end by itself is told without Retry-After, because clients
/// would try it ten times. The log has what exactly went wrong.
fn failure(error: &ForwardError) -> Failure {
    let busy = |cluster| format!("too many reviews are under way at cluster {cluster}");
    match error {
        ForwardError::Busy(cluster) => Failure::too_many_requests(busy(cluster)),
        ForwardError::Broken { cluster, last } if last.as_ref().is_some_and(is_lasting) => {
            Failure::unavailable_for_long(unanswered(cluster))
        }
        ForwardError::Broken { cluster, .. } => Failure::unavailable(unanswered(cluster)),
        ForwardError::Unknown(cluster) => Failure::unavailable_for_long(unanswered(cluster)),
        ForwardError::Call { source: ApiError::TooManyRequests { .. }, cluster } => {
            Failure::too_many_requests(busy(cluster))
        }
        ForwardError::Call { source, cluster } if is_lasting(source) => {
            Failure::unavailable_for_long(unanswered(cluster))
        }
        ForwardError::Call { cluster, .. } => Failure::unavailable(unanswered(cluster)),
    }
}

fn unanswered(cluster: &str) -> String {
    format!("cluster {cluster} could not be asked about the token")
}

/// Our credential or the CA is wrong: somebody has to act.
fn is_lasting(error: &ApiError) -> bool {
    match error {
        ApiError::Unauthorized | ApiError::Forbidden | ApiError::NotFound | ApiError::NoToken => {
            true
        }
        ApiError::Unreachable { why } => why.contains("certificate") || *why == NoToken.to_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
