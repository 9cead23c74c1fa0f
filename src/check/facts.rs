//! The facts about a cluster. `checks` evaluates them.

use crate::{
    check::{
        authority,
        federate::FederateFound,
        found::{Answer, DeploymentFound, Installed, PolicyFound, Reviewed, RouteApi, Server},
        probe::Enforcement,
        review,
        routes::RoutesFound,
    },
    inject::act::capability::StatusField,
    k8s::sandbox::Injecting,
    runtime::lease::holder::Holder,
};

#[derive(Clone, Debug)]
pub struct Facts {
    /// Where trustplane is installed, or is to be.
    pub namespace: String,
    pub server: Server,
    /// Whether it is that of `trustplane sandbox`, and who injects there.
    pub sandbox: Option<Injecting>,
    pub route_api: Answer<RouteApi>,
    pub status_field: Answer<StatusField>,
    /// The rights to install, of the user.
    pub installer: Answer<Reviewed>,
    /// The rights of the controller's account.
    pub account: Answer<Reviewed>,
    /// The admission policy; none where the API server does not know the kind.
    pub policy: Answer<Option<PolicyFound>>,
    pub enforcement: Enforcement,
    pub deployment: Answer<Option<DeploymentFound>>,
    /// Other namespaces with such a Deployment, where it is not in this one.
    pub elsewhere: Vec<String>,
    pub lease: Answer<Holder>,
    pub routes: Answer<RoutesFound>,
    pub federate: FederateFound,
    /// `trustplane authority`: none where it is not installed.
    pub authority: Answer<Option<authority::Installation>>,
    /// `trustplane review`: none where it is not installed.
    pub review: Answer<Option<review::Installation>>,
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
        use Installed::AsShipped;
        let found = self.policy.as_ref().ok().and_then(Option::as_ref);
        matches!(found, Some(PolicyFound { policy: AsShipped, binding: AsShipped, .. }))
    }
}
