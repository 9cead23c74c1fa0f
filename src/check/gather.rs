//! Asks the API server for everything that is judged. Nothing is changed: what is posted are
//! questions about rights, which are not stored.

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::version::Info, kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, Client, api::ListParams};

use super::{
    authority,
    facts::Facts,
    federate,
    found::{Answer, Reviewed, RouteApi, Server},
    policy,
    probe::Enforcement,
    questions, review,
    rights::{self, ManifestError, Right},
    routes,
};
use crate::{
    api::route::{API_VERSION, GROUP, VERSION},
    inject::act::capability,
    k8s::{
        api_error::{self, ApiError},
        sandbox,
    },
    names::{ACCOUNT, INJECT_DEPLOYMENT, INJECT_LEASE},
    runtime::{clock::Clock, lease::holder},
};

#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error("{0}")]
    Call(#[from] ApiError),
    #[error("{0}")]
    Manifest(#[from] ManifestError),
}

/// Fails only where the API server does not answer at all.
pub async fn gather(client: &Client, url: &str, namespace: &str) -> Result<Facts, GatherError> {
    let version = api_error::with_timeout(client.apiserver_version()).await?;
    let sandbox = sandbox::recognise(client, &version).await;
    let server = server(version, url);
    let deployment =
        questions::deployment(client, namespace, INJECT_DEPLOYMENT, "TRUSTPLANE_NAMESPACE").await;
    let elsewhere = match deployment {
        Ok(None) => elsewhere(client).await,
        _ => Vec::new(),
    };
    let found = deployment.as_ref().ok().and_then(Option::as_ref);
    let served = found.map_or_else(Vec::new, |found| found.served.clone());
    let account = found.map_or(ACCOUNT, |found| &found.account);

    let mut needed = rights::of_controller(&served)?;
    if found.is_none_or(|found| found.elects) {
        needed.extend(rights::of_election(namespace)?);
    }
    if found.is_some_and(|found| found.reviews_tokens) {
        needed.extend(rights::of_metrics());
    }
    let granted = [rights::of_controller(&[])?, rights::of_election(namespace)?].concat();
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let clock = Clock::system();
    let (
        route_api,
        status_field,
        installer,
        account,
        policy,
        lease,
        routes,
        federate,
        authority,
        review,
    ) = tokio::join!(
        route_api(client),
        capability::status_field(client),
        installer(client, namespace, granted),
        questions::review(client, Some(&user), needed),
        questions::policy(client, policy::ROUTE_SECRETS),
        holder::read(client, namespace, INJECT_LEASE, &clock),
        routes::gather(client, &served, clock.now()),
        federate::gather(client, namespace, &clock),
        authority::gather(client, namespace, &clock),
        review::gather(client, namespace, &clock),
    );
    Ok(Facts {
        namespace: namespace.to_owned(),
        server,
        sandbox,
        route_api,
        status_field,
        installer,
        account,
        policy: policy?,
        enforcement: Enforcement::NotTested,
        deployment,
        elsewhere,
        lease,
        routes,
        federate: federate?,
        authority: authority?,
        review: review?,
    })
}

fn server(version: Info, url: &str) -> Server {
    // Some distributions write the minor version as `30+`.
    let number = |text: &str| {
        text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default()
    };
    Server {
        url: url.trim_end_matches('/').to_owned(),
        version: version.git_version.trim_start_matches('v').to_owned(),
        number: (number(&version.major), number(&version.minor)),
    }
}

async fn route_api(client: &Client) -> Answer<RouteApi> {
    let services: Api<APIService> = Api::all(client.clone());
    let service = api_error::with_timeout(services.get_opt(&format!("{VERSION}.{GROUP}"))).await;
    if let Ok(Some(service)) = &service
        && let Some(aggregated) = aggregated(service)
    {
        return Ok(aggregated);
    }
    match api_error::with_timeout(client.list_api_group_resources(API_VERSION)).await {
        Ok(list) if list.resources.iter().any(|it| it.name == "routes") => {}
        Ok(_) | Err(ApiError::NotFound) => return Ok(RouteApi::Missing),
        Err(error) => return Err(error),
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = api_error::with_timeout(definitions.get_opt(&format!("routes.{GROUP}"))).await;
    let local = matches!(service, Ok(Some(_))) || matches!(definition, Ok(Some(_)));
    Ok(if local { RouteApi::Crd } else { RouteApi::Served })
}

/// An APIService without a Service is the API server's own.
fn aggregated(service: &APIService) -> Option<RouteApi> {
    let reference = service.spec.as_ref()?.service.as_ref()?;
    let name = |part: &Option<String>| part.clone().unwrap_or_default();
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unavailable = conditions
        .filter(|condition| condition.type_ == "Available" && condition.status != "True")
        .map(|condition| name(&condition.message))
        .next();
    let service = format!("{}/{}", name(&reference.namespace), name(&reference.name));
    Some(RouteApi::Aggregated { service, unavailable })
}

/// The namespaces that have a Deployment of this name; none where they may not be seen.
async fn elsewhere(client: &Client) -> Vec<String> {
    let api: Api<Deployment> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={INJECT_DEPLOYMENT}"));
    let found = api_error::with_timeout(api.list(&named)).await;
    found.into_iter().flatten().filter_map(|it| it.metadata.namespace).collect()
}

/// The rights that the user lacks to install. To grant a role, a user must have its rights or be
/// allowed to grant others.
async fn installer(client: &Client, namespace: &str, role: Vec<Right>) -> Answer<Reviewed> {
    let mut needed = rights::to_install(namespace);
    let grants = questions::review(client, None, rights::to_grant_any().into()).await?;
    if !grants.missing.is_empty() {
        needed.extend(role);
    }
    questions::review(client, None, needed).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_read_with_and_without_a_plus() {
        let info = |minor: &str| Info {
            major: "1".into(),
            minor: minor.into(),
            git_version: "v1.30.4-eks".into(),
            ..Info::default()
        };
        let read = server(info("30+"), "https://api.example.com:6443/");
        assert_eq!((read.number, read.version.as_str()), ((1, 30), "1.30.4-eks"));
        assert_eq!(read.url, "https://api.example.com:6443");
        assert_eq!(server(info("36"), "").number, (1, 36));
    }

    #[test]
    fn an_apiservice_with_a_service_is_an_aggregated_server_and_says_when_it_is_not_available() {
        let service = |spec, status| {
            let service: APIService = serde_json::from_value(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {},
                "spec": spec, "status": { "conditions": [{ "type": "Available", "status": status, "message": "no endpoints" }] },
            }))
            .unwrap();
            aggregated(&service)
        };
        let openshift = json!({
            "group": GROUP, "groupPriorityMinimum": 9900, "versionPriority": 15,
            "service": { "namespace": "openshift-apiserver", "name": "api" },
        });
        let at = |unavailable: Option<&str>| {
            let unavailable = unavailable.map(str::to_owned);
            Some(RouteApi::Aggregated { service: "openshift-apiserver/api".into(), unavailable })
        };
        assert_eq!(service(openshift.clone(), "True"), at(None));
        assert_eq!(service(openshift, "False"), at(Some("no endpoints")));
        let local = json!({ "group": GROUP, "groupPriorityMinimum": 1000, "versionPriority": 100 });
        assert_eq!(service(local, "True"), None);
    }
}
