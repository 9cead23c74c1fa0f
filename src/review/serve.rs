//! Serves TokenReview as kube-apiserver does.

mod caller_limit;
mod discovery;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, request::Parts};
use http_body_util::BodyExt as _;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    decide::{
        config::Prefixes,
        request::{self, Format, LONGEST_BODY, Parameters, Version},
        status::Failure,
    },
    forward::AUDIT_ID,
    reviewer::{Asked, Purpose, Reviewed, Reviewer},
};
use caller_limit::CallerLimit;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// For a kube-apiserver with `--authentication-token-webhook-config-file`.
const WEBHOOK: &str = "/webhook/tokenreviews";
/// Of bodies under way, in pieces of this many bytes: 64 MiB in all. Large bodies leave the first piece to each of
/// the others.
const PIECE: usize = 64 * 1024;
const FIRST_PIECES: usize = 256;
const MORE_PIECES: usize = 768;
/// Of an `Audit-ID`, in bytes.
const LONGEST_ID: usize = 64;

/// Admits callers.
pub trait Callers: Send + Sync {
    /// The caller's name for the audit log.
    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<String, Failure>>;
}

/// A review of an admitted caller, and what came out.
pub struct Record<'a> {
    pub id: &'a str,
    pub caller: &'a str,
    pub audiences: &'a [String],
    pub outcome: Result<&'a Reviewed, &'a Failure>,
    pub took: Duration,
}

/// Hears of everything that is asked.
pub trait Audit: Send + Sync {
    fn record(&self, record: Record<'_>);
    fn caller_refused(&self, failure: &Failure);
}

/// What reviews are answered with under one configuration.
pub struct Service {
    reviewer: Arc<Reviewer>,
    callers: Box<dyn Callers>,
    audit: Arc<dyn Audit>,
    /// By cluster.
    prefixes: BTreeMap<Arc<str>, Prefixes>,
    limits: Arc<Limits>,
    /// They fetch keys until the last request of this configuration is answered.
    _keys: JoinSet<()>,
}

/// Of a process, whatever its configuration becomes.
pub struct Limits {
    first_pieces: Semaphore,
    more_pieces: Semaphore,
    /// Large bodies are read one after another: in memory they are longer still.
    reading: Semaphore,
    callers: CallerLimit,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_pieces: Semaphore::new(FIRST_PIECES),
            more_pieces: Semaphore::new(MORE_PIECES),
            reading: Semaphore::new(1),
            callers: CallerLimit::default(),
        }
    }
}

impl Service {
    pub fn new(
        reviewer: Arc<Reviewer>,
        callers: Box<dyn Callers>,
        audit: Arc<dyn Audit>,
        prefixes: BTreeMap<Arc<str>, Prefixes>,
        limits: Arc<Limits>,
    ) -> Self {
        Self { reviewer, callers, audit, prefixes, limits, _keys: JoinSet::new() }
    }

    /// These tasks fetch the keys.
    pub fn fetching(self, tasks: JoinSet<()>) -> Self {
        Self { _keys: tasks, ..self }
    }
}

/// Which of the two paths was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Api,
    Webhook,
}

impl Door {
    fn versions(self) -> &'static [Version] {
        match self {
            Self::Api => &[Version::V1],
            // The first is what a body without a version is taken for.
            Self::Webhook => &[Version::V1Beta1, Version::V1],
        }
    }
}

type Current = Arc<dyn Fn() -> Arc<Service> + Send + Sync>;

/// Each request is answered by the service of the moment; those under way stay with theirs.
pub fn router(current: impl Fn() -> Arc<Service> + Send + Sync + 'static) -> Router {
    let refuse = |failure: fn() -> Failure| move || async move { shown(&failure()) };
    let door = |door: Door| {
        let answer = move |State(current): State<Current>, request: Request| async move {
            let answered = current().answer(door, request).await;
            answered.unwrap_or_else(|failure| shown(&failure))
        };
        post(answer).fallback(refuse(Failure::method_not_allowed))
    };
    Router::new()
        .route(REVIEWS, door(Door::Api))
        .route(WEBHOOK, door(Door::Webhook))
        .fallback(refuse(Failure::not_found))
        .with_state(Arc::new(current) as Current)
        .merge(discovery::router())
}

fn shown(failure: &Failure) -> Response {
    let code = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    let mut response = (code, failure.to_json().to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, json);
    if let Some(seconds) = failure.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

impl Service {
    async fn answer(&self, door: Door, request: Request) -> Result<Response, Failure> {
        let (head, body) = request.into_parts();
        let parameters = parameters(&head.uri)?;
        let deadline = Instant::now() + parameters.deadline;
        let format = Format::of_answer(&accepted(&head.headers))?;
        let caller = self.admitted(&head, deadline).await?;
        let _place = self.limits.callers.enter(&caller)?;
        let body_format = Format::of_body(text(&head.headers, &header::CONTENT_TYPE))?;
        let body = timeout_at(deadline, self.body(body)).await;
        let (body, held) = body.map_err(|_| Failure::unavailable("the body came too slowly"))??;
        let turn = match body.len() > PIECE {
            true => self.limits.reading.acquire().await.ok(),
            false => None,
        };
        let review =
            request::read(&body, body_format, door.versions(), parameters.field_validation)?;
        drop((body, held, turn));
        let id = audit_id(&head.headers);
        let asked = Asked {
            token: &review.token,
            audiences: &review.audiences,
            audit_id: Some(&id),
            deadline,
            purpose: Purpose::Review,
            // A kube-apiserver believes any name that its webhook says.
            among: (door == Door::Webhook).then_some(&self.prefixes),
        };
        let begin = Instant::now();
        let reviewed = self.reviewer.review(asked).await.map(|it| self.named(it));
        self.audit.record(Record {
            id: id.to_str().unwrap_or_default(),
            caller: &caller,
            audiences: &review.audiences,
            outcome: reviewed.as_ref(),
            took: begin.elapsed(),
        });
        let reviewed = reviewed?;
        let mut response = Response::new(Body::from(review.answered(&reviewed.answer, format)));
        *response.status_mut() = StatusCode::CREATED;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
        headers.insert(AUDIT_ID, id);
        for warning in &review.warnings {
            if let Some(value) = warning_header(warning) {
                headers.append(header::WARNING, value);
            }
        }
        Ok(response)
    }

    async fn admitted(&self, head: &Parts, deadline: Instant) -> Result<String, Failure> {
        let admitted = timeout_at(deadline, self.callers.admit(head)).await;
        let late = || Failure::unavailable("the caller could not be recognised in time");
        let admitted = admitted.unwrap_or_else(|_| Err(late()));
        admitted.inspect_err(|failure| self.audit.caller_refused(failure))
    }

    /// With the names of the cluster's users as the configuration says.
    fn named(&self, reviewed: Reviewed) -> Reviewed {
        match reviewed.cluster.as_ref().and_then(|name| self.prefixes.get(name)) {
            Some(prefixes) => reviewed.prefixed(prefixes),
            None => reviewed,
        }
    }

    /// A body, and the right to hold it.
    async fn body(&self, mut body: Body) -> Result<(Vec<u8>, Vec<SemaphorePermit<'_>>), Failure> {
        let (mut whole, mut held) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::bad_request("the body broke off"))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > LONGEST_BODY {
                return Err(Failure::too_large(LONGEST_BODY));
            }
            while held.len() * PIECE < whole.len() + data.len() {
                let pieces = match held.is_empty() {
                    true => &self.limits.first_pieces,
                    false => &self.limits.more_pieces,
                };
                held.push(pieces.try_acquire().map_err(|_| {
                    Failure::too_many_requests("too many large requests are under way")
                })?);
            }
            whole.extend_from_slice(&data);
        }
        Ok((whole, held))
    }
}

fn parameters(uri: &Uri) -> Result<Parameters, Failure> {
    let pairs: Vec<(String, String)> =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    Parameters::read(pairs.iter().map(|(name, value)| (&**name, &**value)))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

fn accepted(headers: &HeaderMap) -> String {
    let all = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    all.collect::<Vec<_>>().join(",")
}

/// The caller's own if it can be passed on, else a random one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        let is_part = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
        !bytes.is_empty() && bytes.len() <= LONGEST_ID && bytes.iter().all(is_part)
    };
    let random = || HeaderValue::from_str(&format!("{:032x}", fastrand::u128(..)));
    let own = headers.get(AUDIT_ID).filter(is_plain).cloned();
    own.or_else(|| random().ok()).unwrap_or_else(|| HeaderValue::from_static("unknown"))
}

/// None if the caller named a field by what no header can hold.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

#[cfg(test)]
mod tests;
