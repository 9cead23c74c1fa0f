//! The history of a simulation: requests and changes of the store.

use std::sync::Arc;

use apiserver::store::Change;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    User,
    CertManager,
    GitOps,
    Router,
    /// A process of the controller.
    Ours {
        replica: usize,
        life: u32,
    },
}

impl Actor {
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Ours { .. })
    }
}

/// A request's target, parsed from its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    pub watch: bool,
}

impl Target {
    pub fn of(path: &str, query: &str) -> Self {
        let mut parts = path.trim_matches('/').split('/');
        let prefix = if parts.next() == Some("apis") { 2 } else { 1 };
        let mut parts = parts.skip(prefix).map(str::to_owned).peekable();
        let mut target = Self { watch: query.contains("watch=true"), ..Self::default() };
        if parts.peek().is_some_and(|part| part == "namespaces") {
            parts.next();
            target.namespace = parts.next();
        }
        target.resource = parts.next().unwrap_or_default();
        target.name = parts.next();
        target.subresource = parts.next();
        target
    }

    pub fn is_about(&self, resource: &str) -> bool {
        self.resource == resource
    }
}

#[derive(Clone, Debug)]
pub struct Call {
    pub by: Actor,
    pub method: Method,
    pub path: String,
    pub target: Target,
    pub sent: Instant,
    /// Time and code of the answer, and the object if it was a single Secret.
    pub answered: Option<(Instant, u16, Option<Arc<Value>>)>,
}

impl Call {
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }
}

#[derive(Clone)]
pub struct Commit {
    pub at: Instant,
    pub by: Actor,
    /// Index of the call that made it.
    pub call: usize,
    pub change: Change,
}

#[derive(Default)]
pub struct Journal {
    pub calls: Vec<Call>,
    pub commits: Vec<Commit>,
    /// Violations found while the simulation ran.
    pub violations: Vec<String>,
}
