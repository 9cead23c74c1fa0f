//! Whether a controller is still at work.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};

use crate::{
    kit::{
        call::{self, CallError},
        clock::Clock,
        lease::holder::{self, Holder},
    },
    names::{INJECT_DEPLOYMENT, INJECT_LEASE},
};

/// Why nothing is written yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Running {
    /// The Deployment asks for replicas.
    #[error(
        "trustplane still runs: Deployment {namespace}/{INJECT_DEPLOYMENT} has {replicas} replicas. \
         Stop it first with: kubectl -n {namespace} scale deployment/{INJECT_DEPLOYMENT} --replicas=0"
    )]
    Scaled {
        /// Where.
        namespace: String,
        /// How many.
        replicas: i32,
    },
    /// Somebody renews the Lease.
    #[error(
        "trustplane still runs: {identity} holds Lease {namespace}/{INJECT_LEASE}. Stop it, or wait \
         until it has stopped, and run this again"
    )]
    Leads {
        /// Where.
        namespace: String,
        /// Who.
        identity: String,
    },
    /// It can't be seen.
    #[error(
        "whether trustplane still runs in namespace {namespace} can't be seen: {cause}. Run this as \
         somebody who may read the Deployment and the Lease there, or add --while-running"
    )]
    Unknown {
        /// Where.
        namespace: String,
        /// Why not.
        cause: CallError,
    },
}

/// Looks for a controller that was installed in this namespace. One that somebody runs by hand
/// without a Lease can't be seen.
pub async fn look(client: &Client, namespace: &str) -> Result<(), Running> {
    let unknown = |cause| Running::Unknown { namespace: namespace.to_owned(), cause };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment =
        call::bounded(deployments.get_opt(INJECT_DEPLOYMENT)).await.map_err(unknown)?;
    let replicas = deployment.map_or(0, |found| found.spec.replicas.unwrap_or(1));
    if replicas > 0 {
        return Err(Running::Scaled { namespace: namespace.to_owned(), replicas });
    }
    match holder::look(client, namespace, INJECT_LEASE, &Clock::system()).await.map_err(unknown)? {
        Holder::Alive { identity } => {
            Err(Running::Leads { namespace: namespace.to_owned(), identity })
        }
        Holder::NoLease | Holder::Released | Holder::Gone { .. } => Ok(()),
    }
}
