//! The client for the API server, with the lease's gate in front of every write.

use std::time::Duration;

use http::{Request, Response, header};
use kube::{
    Client, Config,
    api::{PatchParams, PostParams},
    client::{Body, ClientBuilder},
};
use tower::{BoxError, Service};

use crate::{
    k8s::{
        gate::{Gate, GateLayer, Gated},
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
mod tests {
    use http::Method;
    use tokio::sync::watch;

    use super::*;
    use crate::k8s::api_error::ApiError;

    #[tokio::test]
    async fn the_client_that_we_connect_has_the_gate_in_it() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
        let (_hold, deadline) = watch::channel(None);
        let gate = Gate::until(deadline);
        let client = connect(Config::new(url), gate, Duration::from_secs(5)).unwrap();

        let request = Request::builder()
            .method(Method::PATCH)
            .uri("/apis/route.openshift.io/v1/namespaces/web/routes/shop")
            .body(Vec::new())
            .unwrap();
        let refused = client.request_text(request).await.unwrap_err();
        assert_eq!(ApiError::from(refused), ApiError::NotLeader);
        let nobody = tokio::time::timeout(Duration::from_millis(200), server.accept()).await;
        assert!(nobody.is_err(), "not even a connection was made");
    }
}
