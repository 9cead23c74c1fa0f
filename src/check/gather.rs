//! Asks the API server for everything that is judged. Nothing is changed: what is posted are
//! questions about rights, which are not stored.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
            SubjectAccessReview, SubjectAccessReviewSpec,
        },
        core::v1::Container,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::version::Info,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::Value;

use super::{
    facts::{Answer, DeploymentFound, Facts, PolicyFound, Reviewed, RouteApi, Server},
    federate,
    policy::{self, Shipped},
    probe::Enforcement,
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

/// Questions about rights that are asked at once.
const AT_ONCE: usize = 8;

/// Why nothing can be said at all.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// No API server answers.
    #[error("{0}")]
    Call(#[from] ApiError),
    /// The program itself is broken.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
}

/// Asks for everything. Fails where the API server does not answer at all.
pub async fn gather(client: &Client, url: &str, namespace: &str) -> Result<Facts, GatherError> {
    let version = api_error::with_timeout(client.apiserver_version()).await?;
    let sandbox = sandbox::recognise(client, &version).await;
    let server = server(version, url);
    let deployment = deployment(client, namespace, INJECT_DEPLOYMENT, "TRUSTPLANE_NAMESPACE").await;
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
    let (route_api, status_field, installer, account, policy, lease, routes, federate) = tokio::join!(
        route_api(client),
        capability::status_field(client),
        installer(client, namespace, granted),
        review(client, Some(&user), needed),
        policy(client, policy::ROUTE_SECRETS),
        holder::read(client, namespace, INJECT_LEASE, &clock),
        routes::look(client, &served, clock.now()),
        federate::look(client, namespace, &clock),
    );
    Ok(Facts {
        namespace: namespace.to_owned(),
        server,
        sandbox,
        route_api,
        status_field,
        installer,
        account,
        policy: policy?.map(|found| found.map(|(found, _)| found)),
        enforcement: Enforcement::NotTested,
        deployment,
        elsewhere,
        lease,
        routes,
        federate: federate?,
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

/// The Deployment of this name. The variable is the one that stands in for its flag `--namespace`.
pub(super) async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    served: &str,
) -> Answer<Option<DeploymentFound>> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = api_error::with_timeout(api.get_opt(name)).await?;
    Ok(found.as_ref().map(|found| read_deployment(found, served)))
}

/// The namespaces that have a Deployment of this name; none where they may not be seen.
async fn elsewhere(client: &Client) -> Vec<String> {
    let api: Api<Deployment> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={INJECT_DEPLOYMENT}"));
    let found = api_error::with_timeout(api.list(&named)).await;
    found.into_iter().flatten().filter_map(|it| it.metadata.namespace).collect()
}

fn read_deployment(deployment: &Deployment, served_variable: &str) -> DeploymentFound {
    let spec = &deployment.spec;
    let pod = spec.template.spec.clone().unwrap_or_default();
    let container = pod.containers.first().cloned().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let dry_run = is_on(&container, "--dry-run", "TRUSTPLANE_DRY_RUN");
    let annotations = deployment.metadata.annotations.as_ref();
    DeploymentFound {
        release: annotations.and_then(|all| all.get("meta.helm.sh/release-name")).cloned(),
        image: container.image.clone().unwrap_or_default(),
        replicas: spec.replicas.unwrap_or(1),
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        account: pod.service_account_name.unwrap_or_else(|| "default".to_owned()),
        served: served(&container, served_variable),
        elects: is_on(&container, "--leader-elect", "TRUSTPLANE_LEADER_ELECT") && !dry_run,
        dry_run,
        reviews_tokens: reviews_tokens(&container),
    }
}

/// Whether a switch of the program is on, by the last of its flags or by its variable.
fn is_on(container: &Container, flag: &str, name: &str) -> bool {
    const OFF: [&str; 6] = ["0", "n", "no", "f", "false", "off"];
    let on = |value: &str| !OFF.contains(&value.to_lowercase().as_str());
    let said = |argument: &String| match argument.strip_prefix(flag)? {
        "" | "=true" => Some(true),
        "=false" => Some(false),
        _ => None,
    };
    let mut flags = container.args.iter().flatten().filter_map(said);
    flags.next_back().unwrap_or_else(|| variable(container, name).is_some_and(on))
}

fn reviews_tokens(container: &Container) -> bool {
    let arguments = container.args.as_deref().unwrap_or_default();
    let flag = arguments.iter().position(|argument| argument.starts_with("--metrics-auth"));
    match flag.map(|at| (arguments[at].as_str(), arguments.get(at + 1))) {
        Some(("--metrics-auth", value)) => value.is_some_and(|value| value == "token"),
        Some((flag, _)) => flag == "--metrics-auth=token",
        None => variable(container, "TRUSTPLANE_METRICS_AUTH") == Some("token"),
    }
}

/// The namespaces that the program's flags, or the variable for them, name.
fn served(container: &Container, name: &str) -> Vec<String> {
    let mut named = Vec::new();
    let mut arguments = container.args.iter().flatten();
    while let Some(argument) = arguments.next() {
        let value = match argument.as_str() {
            "--namespace" | "-n" => arguments.next().map(String::as_str),
            argument => argument
                .strip_prefix("--namespace=")
                .or_else(|| argument.strip_prefix("-n").filter(|_| !argument.starts_with("--"))),
        };
        named.extend(value);
    }
    if named.is_empty() {
        named.extend(variable(container, name));
    }
    let names = named.iter().flat_map(|value| value.trim_start_matches('=').split(','));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn variable<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let variable = container.env.iter().flatten().find(|variable| variable.name == name)?;
    variable.value.as_deref().filter(|value| !value.is_empty())
}

/// What whoever asks lacks to install. Who grants a role must have its rights, or be allowed to
/// grant what they do not have.
async fn installer(client: &Client, namespace: &str, role: Vec<Right>) -> Answer<Reviewed> {
    let mut needed = rights::to_install(namespace);
    let grants = review(client, None, rights::to_grant_any().into()).await?;
    if !grants.missing.is_empty() {
        needed.extend(role);
    }
    review(client, None, needed).await
}

/// Asks about each right of this user, or of whoever asks.
pub(super) async fn review(
    client: &Client,
    user: Option<&str>,
    rights: Vec<Right>,
) -> Answer<Reviewed> {
    let asked = rights.len();
    let answers = stream::iter(rights).map(async |right| {
        let allowed = is_allowed(client, user, right.attributes()).await?;
        Ok::<_, ApiError>((!allowed).then_some(right))
    });
    let missing: Vec<Option<Right>> = answers.buffered(AT_ONCE).try_collect().await?;
    Ok(Reviewed { asked, missing: missing.into_iter().flatten().collect() })
}

async fn is_allowed(
    client: &Client,
    user: Option<&str>,
    attributes: ResourceAttributes,
) -> Answer<bool> {
    let params = PostParams::default();
    let status = match user {
        None => {
            let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            api_error::with_timeout(api.create(&params, &review)).await?.status
        }
        Some(user) => {
            let api: Api<SubjectAccessReview> = Api::all(client.clone());
            let spec = SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                groups: Some(groups(user)),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            api_error::with_timeout(api.create(&params, &review)).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}

/// The groups that every ServiceAccount is in: rights may be granted to them.
fn groups(user: &str) -> Vec<String> {
    let namespace = user.split(':').nth(2).unwrap_or_default();
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ]
}

/// A policy and its binding, with the spec of the policy; none where the kinds are not known.
pub(super) async fn policy(
    client: &Client,
    shipped: Shipped,
) -> Result<Answer<Option<(PolicyFound, Value)>>, ManifestError> {
    // A server that does not know the kind answers like one that lacks the object.
    let known =
        api_error::with_timeout(client.list_api_group_resources("admissionregistration.k8s.io/v1"));
    match known.await {
        Ok(list) if list.resources.iter().any(|it| it.kind == policy::POLICY) => {}
        Ok(_) => return Ok(Ok(None)),
        Err(error) => return Ok(Err(error)),
    }
    let object = async |kind: &str| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api_error::with_timeout(api.get_opt(shipped.name))
            .await
            .map(|found| found.map(|found| found.data))
    };
    let (policy, binding) = match tokio::join!(object(policy::POLICY), object(policy::BINDING)) {
        (Ok(policy), Ok(binding)) => (policy, binding),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    let found = PolicyFound {
        policy: shipped.compare(policy::POLICY, policy.as_ref())?,
        binding: shipped.compare(policy::BINDING, binding.as_ref())?,
    };
    let spec = policy.map_or(Value::Null, |mut policy| policy["spec"].take());
    Ok(Ok(Some((found, spec))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VARIABLE: &str = "TRUSTPLANE_NAMESPACE";

    fn served(container: &Container) -> Vec<String> {
        super::served(container, VARIABLE)
    }

    fn container(args: &[&str], variable: &str) -> Container {
        let env = json!([{ "name": VARIABLE, "value": variable }]);
        serde_json::from_value(json!({ "name": "inject", "args": args, "env": env })).unwrap()
    }

    #[test]
    fn the_namespaces_that_are_served_are_read_off_flags_and_variable_as_the_program_does() {
        let of = |args: &[&str]| served(&container(args, ""));
        assert_eq!(of(&["inject", "--leader-elect"]), [""; 0]);
        assert_eq!(of(&["inject", "--namespace=shop"]), ["shop"]);
        assert_eq!(of(&["inject", "--namespace", "shop,blog"]), ["shop", "blog"]);
        assert_eq!(of(&["inject", "-n", "shop", "-nblog"]), ["shop", "blog"]);
        assert_eq!(served(&container(&["inject"], "a,b")), ["a", "b"]);
        assert_eq!(served(&container(&["inject", "-n=c"], "a,b")), ["c"], "a flag wins");
    }

    #[test]
    fn switches_are_read_off_flags_and_variables_as_the_program_does() {
        let read = |args: &[&str], name: &str, value: &str| {
            let env = json!([{ "name": name, "value": value }]);
            let container = json!({ "name": "inject", "args": args, "env": env });
            let deployment = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
                "spec": { "selector": {}, "template": { "spec": { "containers": [container] } } },
            }));
            let found = read_deployment(&deployment.unwrap(), VARIABLE);
            (found.elects, found.dry_run, found.reviews_tokens)
        };
        assert_eq!(read(&["inject", "--leader-elect"], "", ""), (true, false, false));
        assert_eq!(read(&["--leader-elect", "--dry-run"], "", ""), (false, true, false));
        let off = ["--leader-elect", "--leader-elect=false", "--dry-run=false"];
        assert_eq!(
            read(&off, "TRUSTPLANE_LEADER_ELECT", "1"),
            (false, false, false),
            "the last wins"
        );
        assert_eq!(read(&["--leader-elect=true"], "", ""), (true, false, false));
        let namespace = read(&["--leader-elect-namespace=a"], "", "");
        assert_eq!(namespace, (false, false, false), "another flag");
        assert_eq!(read(&["--metrics-auth=token"], "", ""), (false, false, true));
        assert_eq!(read(&["--metrics-auth", "token"], "", ""), (false, false, true));
        let none_wins = read(&["--metrics-auth=none"], "TRUSTPLANE_METRICS_AUTH", "token");
        assert_eq!(none_wins, (false, false, false));
        assert_eq!(read(&[], "TRUSTPLANE_METRICS_AUTH", "token"), (false, false, true));
        assert_eq!(read(&[], "TRUSTPLANE_LEADER_ELECT", "1"), (true, false, false));
        for off in ["", "0", "No", "false", "off"] {
            assert_eq!(read(&[], "TRUSTPLANE_LEADER_ELECT", off), (false, false, false), "{off}");
        }
    }

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
