//! The API server of a case: the real one, or the sandbox that must behave the same.

use std::path::PathBuf;

use kube::Client;

use crate::cluster::Cluster;
use crate::namespace::Namespace;
use crate::sandbox::Sandbox;

/// An API server that the tests of this binary share. Clones are the same.
#[derive(Clone)]
pub enum TestServer {
    /// kube-apiserver and etcd, with RBAC and an audit log.
    Real(Cluster),
    /// The sandbox, which has neither.
    Sandbox(&'static Sandbox),
}

impl TestServer {
    pub async fn real() -> Self {
        Self::Real(Cluster::get().await)
    }

    pub async fn sandbox() -> Self {
        Self::Sandbox(Sandbox::get().await)
    }

    /// A new namespace.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        Namespace::create(self.clone(), prefix).await
    }

    /// An administrator's client, for the runtime of the calling test.
    pub async fn admin(&self) -> Client {
        match self {
            Self::Real(cluster) => cluster.admin().await,
            Self::Sandbox(sandbox) => sandbox.client().await,
        }
    }

    /// A kubeconfig for a controller.
    pub fn controller_kubeconfig(&self) -> PathBuf {
        match self {
            Self::Real(cluster) => cluster.account_kubeconfig(),
            Self::Sandbox(sandbox) => sandbox.kubeconfig().to_owned(),
        }
    }
}
