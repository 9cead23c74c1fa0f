//! Fetches one bundle from one endpoint, by either profile.
//!
//! Each fetch is independent: its own connection, no resumed session, no remembered redirect. A peer that is
//! slow or sends too much is given up.

mod address;
mod connect;
mod error;
mod target;
mod trust;

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::{Either, select};
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::spiffe::{bundle::Bundle, svid::SvidWarning};
use connect::Reach;
use target::Target;
use trust::Warnings;

pub use error::{FetchError, Stage, UrlError};
pub use trust::{RootsError, Trust, web_roots};

/// For a whole fetch with its redirects. SPIRE itself waits without a limit, so a peer that is only slow
/// must not be reported as dead.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Of an answer, in bytes. Some hundreds of authorities fit in; fifty peers may answer at once.
const LONGEST: usize = 512 * 1024;
const REDIRECTS: usize = 5;

#[derive(Clone, Debug)]
pub struct Endpoint {
    /// https, without a user.
    pub url: Uri,
    pub trust: Trust,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    pub bundle: Bundle,
    /// The text that `bundle` was parsed from.
    pub document: String,
}

/// A fetch with details for its report.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub outcome: Result<Fetched, FetchError>,
    /// About the certificates that were accepted.
    pub warnings: Vec<SvidWarning>,
    /// Whether the error may reveal an internal network: an address was private, or is unknown.
    pub internal: bool,
}

/// Whether a fetch follows redirects. Their targets must prove the same as the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    Follow,
    Refuse,
}

/// Fetches the bundle, within [`PATIENCE`]. It is `now` when it begins; certificates are judged as of
/// when they are seen.
pub async fn fetch(endpoint: &Endpoint, now: DateTime<Utc>) -> Result<Fetched, FetchError> {
    attempt(endpoint, Redirects::Follow, now).await.outcome
}

pub async fn attempt(endpoint: &Endpoint, redirects: Redirects, now: DateTime<Utc>) -> Attempt {
    attempt_within(PATIENCE, endpoint, redirects, now).await
}

/// The same within another time.
pub async fn attempt_within(
    limit: Duration,
    endpoint: &Endpoint,
    redirects: Redirects,
    now: DateTime<Utc>,
) -> Attempt {
    let mut progress = Progress { stage: Stage::Began, internal: false };
    let warnings = Warnings::default();
    let fetched = timeout(limit, follow(endpoint, redirects, now, &warnings, &mut progress)).await;
    let Progress { stage, internal } = progress;
    let outcome = fetched.unwrap_or(Err(FetchError::TooSlow { after: limit, stage }));
    Attempt { outcome, warnings: warnings.take(), internal }
}

/// How far a fetch got.
#[derive(Clone, Copy, Debug)]
struct Progress {
    stage: Stage,
    /// As in [`Attempt`]. Never reset: the first of two hosts may be the private one.
    internal: bool,
}

enum Answer {
    Bundle(Fetched),
    Elsewhere(Uri),
}

/// The targets of redirects must prove the same, so all use one configuration.
async fn follow(
    endpoint: &Endpoint,
    redirects: Redirects,
    now: DateTime<Utc>,
    warnings: &Warnings,
    progress: &mut Progress,
) -> Result<Fetched, FetchError> {
    let tls = TlsConnector::from(endpoint.trust.client_config(now, warnings)?);
    let mut url = endpoint.url.clone();
    let mut reach = Reach::Everywhere;
    for followed in 0..=REDIRECTS {
        let answer = get(&url, &tls, reach, progress).await;
        if !progress.internal {
            reach = Reach::Public;
        }
        match answer {
            Ok(Answer::Bundle(fetched)) => return Ok(fetched),
            Ok(Answer::Elsewhere(to)) if redirects == Redirects::Refuse => {
                return Err(FetchError::RedirectRefused { to: target::shown(&to) });
            }
            Ok(Answer::Elsewhere(target)) => url = target,
            Err(cause) if followed == 0 => return Err(cause),
            Err(cause) => {
                let (to, cause) = (target::shown(&url), Box::new(cause));
                return Err(FetchError::Redirected { to, cause });
            }
        }
        progress.stage = Stage::Connected;
    }
    Err(FetchError::ManyRedirects)
}

async fn get(
    url: &Uri,
    tls: &TlsConnector,
    reach: Reach,
    progress: &mut Progress,
) -> Result<Answer, FetchError> {
    let target = Target::of(url)?;
    let stream = connect::connect(url, &target, reach, &mut progress.internal).await?;
    progress.stage = Stage::Connected;
    let stream = tls
        .connect(target.name.clone(), stream)
        .await
        .map_err(|error| FetchError::of_handshake(&error, &target.host))?;
    progress.stage = Stage::Verified;
    ask(stream, &target, |response| read(response, url)).await
}

/// The connection lives as long as `read` needs the response.
async fn ask<F: Future<Output = Result<Answer, FetchError>>>(
    stream: TlsStream<TcpStream>,
    target: &Target,
    read: impl FnOnce(Response<Incoming>) -> F,
) -> Result<Answer, FetchError> {
    let request = Request::get(&*target.path)
        .header(header::HOST, &*target.authority)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("trustplane/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| UrlError::Unreadable)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| FetchError::Broken)?;
    let asking = async move {
        read(sender.send_request(request).await.map_err(|_| FetchError::Broken)?).await
    };
    match select(pin!(asking), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The end of the connection is not always the end of what was received.
        Either::Right((_, asking)) => asking.await,
    }
}

async fn read(response: Response<Incoming>, from: &Uri) -> Result<Answer, FetchError> {
    match response.status() {
        StatusCode::OK => {}
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            let location = response.headers().get(header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            let target = location.and_then(|location| target::redirected(from, location));
            return target.map(Answer::Elsewhere).ok_or(FetchError::NoLocation);
        }
        other => return Err(FetchError::Status(other.as_u16())),
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| {
        match error.is::<LengthLimitError>() {
            true => FetchError::TooLong,
            false => FetchError::Broken,
        }
    })?;
    let document = String::from_utf8(body.to_bytes().into()).map_err(|_| FetchError::NotText)?;
    let bundle = Bundle::parse(document.as_bytes())?;
    Ok(Answer::Bundle(Fetched { bundle, document }))
}

#[cfg(test)]
pub(crate) mod tests;
