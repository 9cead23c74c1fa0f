//! Who may ask for reviews: a client with a certificate, or with a token that is reviewed as any other.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use http::request::Parts;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::Instant};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{
    decide::{
        callers::Pattern,
        cluster_answer::Accepted,
        config::{Config, Prefixes},
        request::{Answer, DEADLINE},
        status::Failure,
    },
    remembered::{Fresh, Remembered},
    reviewer::{Asked, Purpose, Reviewed, Reviewer},
    serve::Callers,
};
use crate::{
    k8s::api_error,
    runtime::{clock::Clock, tls_listener::ClientCertificate, token_auth::bearer},
};

/// For so long, a caller whose rights were taken away can go on.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MOST_REMEMBERED: usize = 4096;
/// Questions about rights at the same time.
const ACCESS_REVIEWS: usize = 32;

/// Anybody may ask: `--caller-auth=none`.
pub struct Anybody;

impl Callers for Anybody {
    fn admit<'a>(&'a self, _: &'a Parts) -> BoxFuture<'a, Result<String, Failure>> {
        async { Ok("anybody".to_owned()) }.boxed()
    }
}

/// Asks whose credential it is, and whether that one may create TokenReviews.
pub struct KnownCallers {
    reviewer: Arc<Reviewer>,
    clock: Clock,
    allowed: Option<Vec<Pattern>>,
    local: Option<Arc<str>>,
    prefixes: BTreeMap<Arc<str>, Prefixes>,
    /// Of the cluster that we run in.
    client: Client,
    access_reviews: Semaphore,
    remembered: Remembered<Result<String, Failure>>,
}

/// Who asks.
struct Caller {
    /// For the audit log.
    name: String,
    /// As its own cluster calls it, for an answer that refuses it.
    username: String,
    /// As our own cluster knows it. None if it does not.
    user: Option<UserInfo>,
}

impl KnownCallers {
    pub fn new(reviewer: Arc<Reviewer>, config: &Config, client: Client, clock: Clock) -> Self {
        Self {
            reviewer,
            clock,
            allowed: config.authorized_clients.clone(),
            local: config.local().map(Into::into),
            prefixes: config.prefixes(),
            client,
            access_reviews: Semaphore::new(ACCESS_REVIEWS),
            remembered: Remembered::new(MOST_REMEMBERED),
        }
    }

    async fn by_certificate(&self, der: &[u8]) -> Result<String, Failure> {
        let ask = async {
            let caller = subject(der).ok_or_else(Failure::unauthorized)?;
            let decided = self.may_review(caller).await?;
            Ok(Fresh { answer: decided, until: Some(Instant::now() + REMEMBERED_FOR) })
        };
        self.remembered.get_or(&[b"certificate", der], ask).await?
    }

    async fn by_token(&self, token: &str) -> Result<String, Failure> {
        let ask = async {
            let asked = Asked {
                token,
                audiences: &[],
                audit_id: None,
                deadline: Instant::now() + DEADLINE,
                purpose: Purpose::Caller,
                among: None,
            };
            let reviewed = self.reviewer.review(asked).await?;
            let until = Instant::now() + self.good_for(&reviewed);
            let answer = match self.accepted(reviewed) {
                Accept::Nobody => return Err(Failure::unauthorized()),
                Accept::Listed(name) => Ok(name),
                Accept::NotListed(username) => Err(Failure::forbidden(&username)),
                Accept::Ask(caller) => self.may_review(caller).await?,
            };
            Ok(Fresh { answer, until: Some(until) })
        };
        self.remembered.get_or(&[b"token", token.as_bytes()], ask).await?
    }

    /// Never past the end of the token.
    fn good_for(&self, reviewed: &Reviewed) -> Duration {
        let left = reviewed.expires.map(|end| self.clock.until(end));
        left.unwrap_or(REMEMBERED_FOR).min(REMEMBERED_FOR)
    }

    /// A list of callers decides alone. Without one, our own cluster decides, which knows the users of another
    /// one only by names with a prefix: without it they would have the rights of its own accounts.
    fn accepted(&self, reviewed: Reviewed) -> Accept {
        let (Answer::Authenticated(accepted), Some(cluster), Some(identity)) =
            (reviewed.answer, reviewed.cluster, reviewed.identity)
        else {
            return Accept::Nobody;
        };
        let name = format!("{cluster}/{}/{}", identity.namespace, identity.account);
        if let Some(allowed) = &self.allowed {
            return match allowed.iter().any(|it| it.allows(&cluster, &identity)) {
                true => Accept::Listed(name),
                false => Accept::NotListed(identity.username()),
            };
        }
        let user = match self.prefixes.get(&cluster) {
            // Prefixes of our own cluster are for others: it does not know its users by them.
            _ if self.local.as_ref() == Some(&cluster) => Some(accepted.user),
            Some(prefixes) => Some(accepted.prefixed(prefixes).user),
            None => None,
        };
        Accept::Ask(Caller { name, username: identity.username(), user })
    }

    /// What our own cluster says: the caller's name, or that it may not. It fails if it could not be asked.
    async fn may_review(&self, caller: Caller) -> Result<Result<String, Failure>, Failure> {
        let Caller { name, username, user: Some(user) } = caller else {
            return Ok(Err(Failure::forbidden(&caller.username)));
        };
        let busy = |_| Failure::too_many_requests("too many callers come at once");
        let _permit = self.access_reviews.try_acquire().map_err(busy)?;
        let review = SubjectAccessReview { spec: may_create(user), ..Default::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let created = api_error::with_timeout(api.create(&PostParams::default(), &review)).await;
        let status = created.map_err(|error| {
            tracing::warn!(%error, "asking for a caller's rights failed");
            Failure::unavailable("the caller's rights could not be found out")
        })?;
        Ok(match status.status.is_some_and(|it| it.allowed) {
            true => Ok(name),
            false => Err(Failure::forbidden(&username)),
        })
    }
}

enum Accept {
    Nobody,
    Listed(String),
    NotListed(String),
    Ask(Caller),
}

impl Callers for KnownCallers {
    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<String, Failure>> {
        async {
            if let Some(certificate) = head.extensions.get::<ClientCertificate>() {
                return self.by_certificate(&certificate.0).await;
            }
            match bearer(&head.headers) {
                Some(token) => self.by_token(token).await,
                None => Err(Failure::unauthorized()),
            }
        }
        .boxed()
    }
}

/// As Kubernetes reads certificates of clients: the common name is the user, organisations are groups.
fn subject(der: &[u8]) -> Option<Caller> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        value.as_str().ok().filter(|it| !it.is_empty()).map(str::to_owned)
    };
    let name = subject.iter_common_name().next().and_then(text)?;
    let mut groups: Vec<_> = subject.iter_organization().filter_map(text).collect();
    groups.push("system:authenticated".to_owned());
    let user =
        UserInfo { username: Some(name.clone()), groups: Some(groups), ..Default::default() };
    Some(Caller { name: format!("certificate of {name}"), username: name, user: Some(user) })
}

fn may_create(user: UserInfo) -> SubjectAccessReviewSpec {
    let text = |text: &str| Some(text.to_owned());
    let attributes = ResourceAttributes {
        group: text("authentication.k8s.io"),
        resource: text("tokenreviews"),
        verb: text("create"),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra.map(Accepted::without_cluster_name),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests;
