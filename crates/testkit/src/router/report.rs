//! Writes `.status.ingress`. A conflict is no failure, because the Route's next event brings it
//! back.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

const AT_ONCE: usize = 8;
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Writes the newest statuses, for ever.
pub async fn run(client: Client, mut statuses: watch::Receiver<Vec<Value>>) {
    while statuses.changed().await.is_ok() {
        let wanted = statuses.borrow_and_update().clone();
        let written = stream::iter(wanted).map(|route| replace(&client, route));
        let written: Vec<bool> = written.buffer_unordered(AT_ONCE).collect().await;
        if written.contains(&false) {
            tokio::time::sleep(AFTER_A_FAILURE).await;
            statuses.mark_changed();
        }
    }
}

/// Whether this version of the Route is done.
async fn replace(client: &Client, route: Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) =
        (text(&route["metadata"]["namespace"]), text(&route["metadata"]["name"]));
    let path = format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes/{name}/status");
    let request = http::Request::put(path)
        .header("content-type", "application/json")
        .body(route.to_string().into_bytes());
    let Ok(request) = request else { return true };
    match client.request::<Value>(request).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => matches!(status.code, 404 | 409),
        Err(_) => false,
    }
}
