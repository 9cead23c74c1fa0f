//! The facts about a cluster. `checks` evaluates them.

use crate::{
    check::{federate::FederateFound, probe::Enforcement, rights::Right, routes::RoutesFound},
    inject::act::capability::StatusField,
    k8s::{api_error::ApiError, sandbox::Injecting},
    runtime::lease::holder::Holder,
};

/// What the API server answered, or why it did not.
pub type Answer<T> = Result<T, ApiError>;

/// Everything that is judged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Where trustplane is installed, or is to be.
    pub namespace: String,
    pub server: Server,
    /// Whether it is that of `trustplane sandbox`, and who injects there.
    pub sandbox: Option<Injecting>,
    pub route_api: Answer<RouteApi>,
    /// Whether `.status.certificate` is kept.
    pub status_field: Answer<StatusField>,
    /// What whoever asks may do, of what installing needs.
    pub installer: Answer<Reviewed>,
    /// What the controller's account may do, of what it needs.
    pub account: Answer<Reviewed>,
    /// The admission policy; none where the API server does not know the kind.
    pub policy: Answer<Option<PolicyFound>>,
    /// Whether it is enforced.
    pub enforcement: Enforcement,
    pub deployment: Answer<Option<DeploymentFound>>,
    /// Other namespaces with such a Deployment, where it is not in this one.
    pub elsewhere: Vec<String>,
    pub lease: Answer<Holder>,
    /// The Routes of the namespaces that are served.
    pub routes: Answer<RoutesFound>,
    /// `trustplane federate`.
    pub federate: FederateFound,
}

impl Facts {
    /// The namespaces that the controller serves; none for all.
    pub fn served(&self) -> &[String] {
        match &self.deployment {
            Ok(Some(deployment)) => &deployment.served,
            _ => &[],
        }
    }

    /// Whether there is a policy whose enforcement can be tested.
    pub fn has_policy(&self) -> bool {
        let shipped = PolicyFound { policy: Installed::AsShipped, binding: Installed::AsShipped };
        self.policy == Ok(Some(shipped))
    }
}

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
