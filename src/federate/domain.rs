//! The domain below which a cluster's Routes get their hosts, as OpenShift's own configuration has it.

use http::Request;
use kube::Client;
use serde::Deserialize;

use super::render::{self, Setting};
use crate::{
    api::spire_server::Federation,
    kit::call::{self, CallError},
};

const INGRESS: &str = "/apis/config.openshift.io/v1/ingresses/cluster";

#[derive(Deserialize)]
struct Ingress {
    spec: Domains,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Domains {
    /// What an administrator chose for the Routes of users.
    #[serde(default)]
    apps_domain: String,
    /// What the cluster was installed with.
    #[serde(default)]
    domain: String,
}

/// What the command line chose, completed by what the cluster knows where a Route needs it.
pub async fn completed(
    setting: &Setting,
    federation: Option<&Federation>,
    client: &Client,
) -> Result<Setting, CallError> {
    let mut setting = setting.clone();
    let homeless = |it: &&Federation| it.manages_route() && render::host(it, &setting).is_none();
    if federation.filter(homeless).is_some() {
        setting.apps_domain = of_cluster(client).await?;
    }
    Ok(setting)
}

/// The domain; none where this is no OpenShift, or where we may not ask.
async fn of_cluster(client: &Client) -> Result<Option<String>, CallError> {
    let request = Request::get(INGRESS).body(Vec::new()).expect("a constant path is a request");
    match call::bounded(client.request::<Ingress>(request)).await {
        Ok(Ingress { spec: Domains { apps_domain, domain } }) => {
            Ok([apps_domain, domain].into_iter().find(|it| !it.is_empty()))
        }
        Err(CallError::NotFound | CallError::Forbidden) => Ok(None),
        Err(error) => Err(error),
    }
}
