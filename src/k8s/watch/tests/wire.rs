//! What a watch of metadata requests of the API server.

use std::sync::{Arc, Mutex};

use http::{Request, Response, header};
use kube::{Client, client::Body, core::PartialObjectMeta};
use tower::{BoxError, service_fn};

use super::super::*;
use crate::api::secret::Secret;

/// The Accept headers of the list and of the watch of this type.
async fn accepted<K>() -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let service = service_fn(move |request: Request<Body>| {
        let accept = request.headers().get(header::ACCEPT);
        let accept = accept.map_or("", |value| value.to_str().unwrap()).to_owned();
        log.lock().unwrap().push(accept);
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let list = br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#.to_vec();
            Ok::<_, BoxError>(Response::new(Body::from(list)))
        }
    });
    let api = Api::<MaybeDecoded<K>>::all(Client::new(service, "web"));
    let (timeout, lists) = (Duration::from_secs(60), Arc::new(Semaphore::new(1)));
    let follow = Watch { api, fields: None, timeout, lists };
    let _ = tokio::time::timeout(Duration::from_secs(1), follow.run(|_| {})).await;
    seen.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_metadata_alone_is_listed_and_watched_as_metadata() {
    let as_kind = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1");
    assert_eq!(
        accepted::<PartialObjectMeta<Secret>>().await,
        [as_kind("PartialObjectMetadataList"), as_kind("PartialObjectMetadata")]
    );
    assert_eq!(accepted::<Secret>().await, ["", ""], "whole objects are the default");
}
