//! Single facts about a cluster, as `gather` finds them. `facts` puts them together.

use crate::{check::rights::Right, k8s::api_error::ApiError};

/// What the API server answered, or why it did not.
pub type Answer<T> = Result<T, ApiError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub url: String,
    pub version: String,
    /// Major and minor version.
    pub number: (u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteApi {
    Missing,
    /// The API server itself, by a CustomResourceDefinition.
    Crd,
    /// Another server behind it.
    Aggregated {
        /// The Service that leads there, with its namespace.
        service: String,
        /// Why it can't be reached, if so.
        unavailable: Option<String>,
    },
    /// By one of the two: which can't be seen.
    Served,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    pub asked: usize,
    /// Those that are not granted.
    pub missing: Vec<Right>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFound {
    pub policy: Installed,
    pub binding: Installed,
    /// The namespace that it is for; none where it names none.
    pub namespace: Option<String>,
}

/// An object of deploy/ in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    Missing,
    /// These fields differ from what this version of trustplane ships.
    Altered(Vec<String>),
    AsShipped,
}

/// A condition in the status of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFound {
    pub kind: String,
    pub status: String,
    pub reason: String,
}

/// The Deployment of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentFound {
    pub image: String,
    pub replicas: i32,
    pub ready: i32,
    /// Replicas of the version that it asks for now.
    pub updated: i32,
    pub account: String,
    /// `--namespace`; none for all.
    pub served: Vec<String>,
    /// `--leader-elect`, which counts for nothing with `--dry-run`.
    pub elects: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--metrics-auth=token`.
    pub reviews_tokens: bool,
    pub release: Option<String>,
}
