//! The API server of a case: the real one, or the sandbox that must act like it.

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
    /// Our own, which has neither.
    Sandbox(&'static Sandbox),
}

impl TestServer {
    /// The real one.
    pub async fn real() -> Self {
        Self::Real(Cluster::get().await)
    }

    /// Our own.
    pub async fn sandbox() -> Self {
        Self::Sandbox(Sandbox::get().await)
    }

    /// A namespace that no other test has.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        Namespace::create(self.clone(), prefix).await
    }

    /// A client that may do everything, for the runtime of the calling test.
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
