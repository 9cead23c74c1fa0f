//! Lets a watch be opened at most once a second.
//!
//! A watch that ended in good order is opened again at once. A server or a proxy that ends every
//! watch right away would be asked without pause.

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

const PACE: Duration = Duration::from_secs(1);

type Opened = Arc<Mutex<HashMap<String, Instant>>>;

/// Paces the watches of one client.
#[derive(Clone, Default)]
pub struct WatchThrottleLayer {
    opened: Opened,
}

impl<S> Layer<S> for WatchThrottleLayer {
    type Service = ThrottledService<S>;

    fn layer(&self, inner: S) -> ThrottledService<S> {
        ThrottledService { opened: self.opened.clone(), inner }
    }
}

/// A service whose watches are paced.
pub struct ThrottledService<S> {
    opened: Opened,
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
        let turn = self.turn(&request);
        let answer = self.inner.call(request).map(|answer| answer.map_err(Into::into));
        match turn {
            None => answer.boxed(),
            Some(turn) => async move {
                tokio::time::sleep_until(turn).await;
                answer.await
            }
            .boxed(),
        }
    }
}

impl<S> ThrottledService<S> {
    /// When the request may go; none where it opens no watch, or none that was opened just now.
    fn turn(&self, request: &Request<Body>) -> Option<Instant> {
        let opens_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !opens_watch {
            return None;
        }
        let now = Instant::now();
        let mut opened = lock(&self.opened);
        match opened.get_mut(request.uri().path()) {
            Some(last) => {
                *last = (*last + PACE).max(now);
                (*last > now).then_some(*last)
            }
            None => {
                opened.insert(request.uri().path().to_owned(), now);
                None
            }
        }
    }
}
