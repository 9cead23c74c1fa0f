//! Single facts about a cluster, as `gather` finds them. `facts` puts them together.

use crate::{check::rights::Right, k8s::api_error::ApiError};

/// What the API server answered, or why it did not.
pub type Answer<T> = Result<T, ApiError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub url: String,
    /// As it calls its version.
    pub version: String,
    /// The same, to compare.
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
    /// Somebody: which of the two can't be seen.
    Served,
}

/// Rights that were asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    pub asked: usize,
    /// Those that are not granted.
    pub missing: Vec<Right>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFound {
    pub policy: Installed,
    /// Where it is in force.
    pub binding: Installed,
}

/// An object of deploy/, as it stands in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is not there.
    Missing,
    /// These fields differ from what this version of trustplane brings along.
    Altered(Vec<String>),
    /// As it is shipped.
    AsShipped,
}

/// The Deployment of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentFound {
    /// Of its first container.
    pub image: String,
    /// How many replicas it asks for.
    pub replicas: i32,
    /// How many are ready, of whatever version.
    pub ready: i32,
    /// How many are of the version that it asks for now.
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
    /// The helm release that it belongs to.
    pub release: Option<String>,
}
