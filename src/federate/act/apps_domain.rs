//! What the command line leaves open and the cluster knows: the domain below which its Routes get their
//! hosts, and whether it assigns users to Pods.

use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde::Deserialize;

use crate::{
    api::spire_server::Federation,
    federate::decide::render::{self, PodUser, RenderContext},
    k8s::api_error::{self, ApiError},
};

const INGRESS: &str = "/apis/config.openshift.io/v1/ingresses/cluster";
/// The users that OpenShift lets Pods of a namespace run as; it assigns the first of them.
const USERS_ANNOTATION: &str = "openshift.io/sa.scc.uid-range";

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

/// What the command line chose, completed by what the cluster knows.
pub async fn completed(
    setting: &RenderContext,
    federation: Option<&Federation>,
    client: &Client,
) -> Result<RenderContext, ApiError> {
    let mut setting = setting.clone();
    let homeless = |it: &&Federation| it.manages_route() && render::host(it, &setting).is_none();
    if federation.filter(homeless).is_some() {
        setting.apps_domain = of_cluster(client).await?;
    }
    if setting.pod_user.is_none() {
        setting.pod_user = Some(pod_user(&setting.namespace, client).await?);
    }
    Ok(setting)
}

/// Whether a user must be named for Pods of this namespace, or must not.
///
/// The annotation is what OpenShift itself goes by. That an API is not served says less: it may be
/// that it is not served yet, and a wrong answer here replaces a server that runs by one that can't.
async fn pod_user(namespace: &str, client: &Client) -> Result<PodUser, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let annotations = match api_error::with_timeout(namespaces.get(namespace)).await {
        Ok(found) => found.metadata.annotations.unwrap_or_default(),
        // Nothing can be made in it, and that is told elsewhere.
        Err(ApiError::NotFound) => return Ok(PodUser::default()),
        Err(error) => return Err(error),
    };
    Ok(match annotations.contains_key(USERS_ANNOTATION) {
        true => PodUser::Assigned,
        false => PodUser::default(),
    })
}

/// The domain; none where this is no OpenShift, or where we may not ask.
async fn of_cluster(client: &Client) -> Result<Option<String>, ApiError> {
    let request = Request::get(INGRESS).body(Vec::new()).expect("a constant path is a request");
    match api_error::with_timeout(client.request::<Ingress>(request)).await {
        Ok(Ingress { spec: Domains { apps_domain, domain } }) => {
            Ok([apps_domain, domain].into_iter().find(|it| !it.is_empty()))
        }
        Err(ApiError::NotFound | ApiError::Forbidden) => Ok(None),
        Err(error) => Err(error),
    }
}
