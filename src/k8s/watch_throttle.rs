//! Opens a watch at most once a second.
//!
//! A watch that ended in good order is opened again at once, so a server or proxy that ends every
//! watch right away would be flooded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::Request;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::runtime::lock::lock;

const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// When a watch was last opened, by path; in the future if one is waiting.
type OpenedAt = Arc<Mutex<HashMap<String, Instant>>>;

#[derive(Clone, Default)]
pub struct WatchThrottleLayer {
    opened_at: OpenedAt,
}

impl<S> Layer<S> for WatchThrottleLayer {
    type Service = ThrottledService<S>;

    fn layer(&self, inner: S) -> ThrottledService<S> {
        ThrottledService { opened_at: self.opened_at.clone(), inner }
    }
}

pub struct ThrottledService<S> {
    opened_at: OpenedAt,
    inner: S,
}

impl<S> Service<Request<Body>> for ThrottledService<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let opens_at = self.opens_at(&request);
        let answer = self.inner.call(request).map(|answer| answer.map_err(Into::into));
        match opens_at {
            None => answer.boxed(),
            Some(opens_at) => async move {
                tokio::time::sleep_until(opens_at).await;
                answer.await
            }
            .boxed(),
        }
    }
}

impl<S> ThrottledService<S> {
    /// When to send the request; none if it opens no watch, or may go at once.
    fn opens_at(&self, request: &Request<Body>) -> Option<Instant> {
        let opens_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !opens_watch {
            return None;
        }
        let now = Instant::now();
        let mut opened_at = lock(&self.opened_at);
        match opened_at.get_mut(request.uri().path()) {
            Some(last) => {
                *last = (*last + MIN_INTERVAL).max(now);
                (*last > now).then_some(*last)
            }
            None => {
                opened_at.insert(request.uri().path().to_owned(), now);
                None
            }
        }
    }
}
