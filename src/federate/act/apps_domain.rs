//! Settings that the command line leaves open and the cluster knows: the domain of its Routes' hosts,
//! and whether it assigns users to Pods.

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
/// The user IDs that OpenShift allows in a namespace; it assigns the first.
const USERS_ANNOTATION: &str = "openshift.io/sa.scc.uid-range";

#[derive(Deserialize)]
struct Ingress {
    spec: Domains,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Domains {
    /// Chosen by an administrator for the Routes of users.
    #[serde(default)]
    apps_domain: String,
    /// Chosen at installation.
    #[serde(default)]
    domain: String,
}

/// Completes the settings of the command line with those of the cluster.
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

/// Whether Pods of this namespace must name a user, or must not.
///
/// OpenShift itself goes by the annotation. A missing API proves less: it may only be unavailable for
/// now, and a wrong answer replaces a running server by one that can't start.
async fn pod_user(namespace: &str, client: &Client) -> Result<PodUser, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let annotations = match api_error::with_timeout(namespaces.get(namespace)).await {
        Ok(found) => found.metadata.annotations.unwrap_or_default(),
        // Nothing can be created in it, and a condition reports that.
        Err(ApiError::NotFound) => return Ok(PodUser::default()),
        Err(error) => return Err(error),
    };
    Ok(match annotations.contains_key(USERS_ANNOTATION) {
        true => PodUser::Assigned,
        false => PodUser::default(),
    })
}

/// None if this is not OpenShift, or if we may not read it.
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
