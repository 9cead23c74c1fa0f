//! Clients for API servers. That of a controller's own cluster has the lease's gate in front of every write.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, header};
use kube::{
    Client, Config,
    api::{PatchParams, PostParams},
    client::{Body, ClientBuilder, ConfigExt as _},
    config::AuthInfo,
};
use tower::{BoxError, Service, ServiceExt as _, service_fn, util::option_layer};

use crate::{
    k8s::{
        gate::{Gate, GateLayer, Gated},
        http2::Transport,
        watch_throttle::{ThrottledService, WatchThrottleLayer},
    },
    names::{FIELD_MANAGER, USER_AGENT},
};

/// Finds the cluster as kubectl does: KUBECONFIG, ~/.kube/config, or the Pod's own account.
pub async fn config() -> Result<Config, kube::config::InferConfigError> {
    Config::infer().await
}

/// A client whose writes pass the gate, and which gives up on a silent connection.
///
/// A list, and the answer to the opening of a watch, have no time-out of their own in kube: over
/// a connection that died without a word they would hang for as long as TCP is patient.
pub fn connect(mut config: Config, gate: Gate, silence: Duration) -> kube::Result<Client> {
    config.read_timeout = Some(silence);
    config.reset_reader_on_write = true;
    // The client's own retries would repeat a POST, and would send a write that was held back by
    // a 429 after our lease has ended. Every caller here has a back-off of its own.
    config.default_retry = false;
    config.headers.push((header::USER_AGENT, header::HeaderValue::from_static(USER_AGENT)));
    Ok(guarded(ClientBuilder::try_from(config)?, gate).build())
}

/// Gives the bearer token of the moment; asked for every request.
pub trait Bearer: Send + Sync {
    /// `Bearer` and the token. None if there is none that could work.
    fn header(&self) -> Option<HeaderValue>;
}

/// A request was not sent, because there is no token for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no token for it")]
pub struct NoToken;

/// A client whose requests share one HTTP/2 connection, if the server speaks it. It has no gate, does not send a
/// request again that may have arrived, and follows no redirect.
///
/// It has no time-out for an answer either: a server may hang, so callers bound their calls. With `bearer`, the
/// configuration's own credentials are not used at all.
pub fn connect_http2(mut config: Config, bearer: Option<Arc<dyn Bearer>>) -> kube::Result<Client> {
    if bearer.is_some() {
        config.auth_info = AuthInfo::default();
    }
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    let transport = Transport::to(&config)?;
    let service = service_fn(move |mut request: Request<Body>| {
        let authorized = authorize(&mut request, bearer.as_deref());
        let transport = transport.clone();
        async move {
            authorized?;
            transport.oneshot(request).await
        }
    });
    let builder = ClientBuilder::new(service, &*config.default_namespace);
    Ok(builder
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build())
}

fn authorize(request: &mut Request<Body>, bearer: Option<&dyn Bearer>) -> Result<(), NoToken> {
    let Some(bearer) = bearer else { return Ok(()) };
    let mut value = bearer.header().ok_or(NoToken)?;
    // Neither logged, nor kept in the table of headers that the connection shares.
    value.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, value);
    Ok(())
}

pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(crate) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// A client over a transport of the caller's own, with the same guards: no cluster is needed.
pub fn over<S, B>(transport: S, gate: Gate) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    guarded(ClientBuilder::new(transport, "default"), gate).build()
}

fn guarded<S>(builder: ClientBuilder<S>, gate: Gate) -> ClientBuilder<ThrottledService<Gated<S>>> {
    builder.with_layer(&GateLayer(gate)).with_layer(&WatchThrottleLayer::default())
}

#[cfg(test)]
mod tests;
