//! The installation of a controller beside `trustplane inject`: its Deployment with the account, its
//! Lease, and its admission policy. `federate`, `authority` and `review` add what only they have.

use kube::Client;

use super::{
    found::{Answer, DeploymentFound, PolicyFound, Reviewed},
    policy::Shipped,
    questions,
    rights::{self, ManifestError, Right},
};
use crate::runtime::{
    clock::Clock,
    lease::holder::{self, Holder},
};

/// The names of its objects.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    pub deployment: &'static str,
    pub lease: &'static str,
    /// The variable that stands in for its flag `--namespace`.
    pub namespace_variable: &'static str,
    /// None for one that needs none.
    pub policy: Option<Shipped>,
}

#[derive(Clone, Debug)]
pub struct ControllerFound {
    pub deployment: DeploymentFound,
    pub lease: Answer<Holder>,
    pub account: Answer<Reviewed>,
    /// None where the API server does not know the kind, or where there is none to look for.
    pub policy: Answer<Option<PolicyFound>>,
}

impl Controller {
    pub async fn deployment(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Answer<Option<DeploymentFound>> {
        questions::deployment(client, namespace, self.deployment, self.namespace_variable).await
    }

    /// What belongs to its Deployment. `needed` are the rights in its roles.
    pub async fn gather(
        &self,
        client: &Client,
        namespace: &str,
        clock: &Clock,
        deployment: DeploymentFound,
        mut needed: Vec<Right>,
    ) -> Result<ControllerFound, ManifestError> {
        if !deployment.elects {
            needed.retain(|right| right.resource != "leases");
        }
        if deployment.reviews_tokens {
            needed.extend(rights::of_metrics());
        }
        let user = format!("system:serviceaccount:{namespace}:{}", deployment.account);
        let (lease, account, policy) = tokio::join!(
            holder::read(client, namespace, self.lease, clock),
            questions::review(client, Some(&user), needed),
            self.policy(client),
        );
        Ok(ControllerFound { deployment, lease, account, policy: policy? })
    }

    async fn policy(&self, client: &Client) -> Result<Answer<Option<PolicyFound>>, ManifestError> {
        match self.policy {
            Some(policy) => questions::policy(client, policy).await,
            None => Ok(Ok(None)),
        }
    }
}
