//! Whether a controller still runs.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, api::ListParams};

use crate::{
    k8s::{
        api_error::{self, ApiError},
        sandbox::{self, Injecting},
    },
    names::{INJECT_DEPLOYMENT, INJECT_LEASE, NAMESPACE},
    runtime::{
        clock::Clock,
        lease::holder::{self, Holder},
    },
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Running {
    #[error(
        "trustplane still runs: Deployment {namespace}/{INJECT_DEPLOYMENT} has {replicas} replicas. \
         Stop it first with: kubectl -n {namespace} scale deployment/{INJECT_DEPLOYMENT} --replicas=0"
    )]
    Scaled { namespace: String, replicas: i32 },
    #[error(
        "trustplane still runs: {identity} holds Lease {namespace}/{INJECT_LEASE}. Stop it, or wait \
         until it has stopped, and run this again"
    )]
    Leads { namespace: String, identity: String },
    #[error(
        "this is the trustplane sandbox, and its injector puts .status.certificate back at once. Start \
         it with trustplane sandbox --no-inject to try this, or add --while-running"
    )]
    Sandbox,
    #[error(
        "trustplane runs in namespace {namespace}, not in {NAMESPACE}. If you mean that one, add \
         --install-namespace {namespace}"
    )]
    Elsewhere { namespace: String },
    #[error(
        "whether trustplane still runs in namespace {namespace} cannot be seen: {cause}. Run this as \
         somebody who may read the Deployment and the Lease there, or add --while-running"
    )]
    Unknown { namespace: String, cause: ApiError },
}

/// Whether the cluster is a sandbox, and who injects there. Without the right to ask it is none.
pub async fn sandbox(client: &Client) -> Option<Injecting> {
    let version = api_error::with_timeout(client.apiserver_version()).await.ok()?;
    sandbox::recognise(client, &version).await
}

/// Whether the controller that is installed in this namespace runs. One that is run by hand without a
/// Lease can't be seen.
pub async fn check(client: &Client, namespace: &str) -> Result<(), Running> {
    let unknown = |cause| Running::Unknown { namespace: namespace.to_owned(), cause };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment =
        api_error::with_timeout(deployments.get_opt(INJECT_DEPLOYMENT)).await.map_err(unknown)?;
    let replicas = deployment.as_ref().map_or(0, replicas_of);
    if replicas > 0 {
        return Err(Running::Scaled { namespace: namespace.to_owned(), replicas });
    }
    match holder::read(client, namespace, INJECT_LEASE, &Clock::system()).await.map_err(unknown)? {
        Holder::Alive { identity } => {
            Err(Running::Leads { namespace: namespace.to_owned(), identity })
        }
        Holder::NoLease | Holder::Released | Holder::Gone { .. } => Ok(()),
    }
}

/// First where it is usually installed, then in all namespaces.
pub async fn check_everywhere(client: &Client) -> Result<(), Running> {
    check(client, NAMESPACE).await?;
    let deployments: Api<Deployment> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={INJECT_DEPLOYMENT}"));
    // A user without that right owns some namespaces only, and knows what runs there.
    let Ok(found) = api_error::with_timeout(deployments.list(&named)).await else { return Ok(()) };
    let runs = found.items.into_iter().find(|deployment| replicas_of(deployment) > 0);
    match runs.and_then(|deployment| deployment.metadata.namespace) {
        Some(namespace) => Err(Running::Elsewhere { namespace }),
        None => Ok(()),
    }
}

fn replicas_of(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    /// A cluster with one Deployment in this namespace, and no Lease.
    fn cluster(namespace: &'static str, replicas: i32) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path();
            let deployment = json!({
                "metadata": { "namespace": namespace, "name": INJECT_DEPLOYMENT },
                "spec": { "replicas": replicas, "selector": {}, "template": {} },
            });
            let own =
                format!("/apis/apps/v1/namespaces/{namespace}/deployments/{INJECT_DEPLOYMENT}");
            let (code, answer): (u16, Value) = match path {
                "/apis/apps/v1/deployments" => {
                    (200, json!({ "metadata": {}, "items": [deployment] }))
                }
                path if path == own => (200, deployment),
                _ => (
                    404,
                    json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }),
                ),
            };
            let body = Body::from(serde_json::to_vec(&answer)?);
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_controller_that_runs_in_another_namespace_is_found() {
        let namespace = "infra".to_owned();
        let found = check_everywhere(&cluster("infra", 2)).await;
        assert_eq!(found, Err(Running::Elsewhere { namespace }));
        assert_eq!(check_everywhere(&cluster("infra", 0)).await, Ok(()), "one that was stopped");
        let here = check_everywhere(&cluster(NAMESPACE, 2)).await;
        assert!(matches!(here, Err(Running::Scaled { replicas: 2, .. })), "{here:?}");
    }
}
