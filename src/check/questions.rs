//! Questions to the API server that several checks ask.

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
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};

use super::{
    crd::ShippedCrd,
    found::{Answer, DeploymentFound, Installed, PolicyFound, Reviewed},
    policy::{self, Shipped},
    rights::{ManifestError, Right},
};
use crate::k8s::api_error::{self, ApiError};

/// Questions about rights that are asked at once.
const AT_ONCE: usize = 8;

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

pub(super) fn variable<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let variable = container.env.iter().flatten().find(|variable| variable.name == name)?;
    variable.value.as_deref().filter(|value| !value.is_empty())
}

/// Asks about each right of this user, or of the user who asks.
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

/// A policy and its binding; none where the kinds are not known.
pub(super) async fn policy(
    client: &Client,
    shipped: Shipped,
) -> Result<Answer<Option<PolicyFound>>, ManifestError> {
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
        namespace: policy
            .and_then(|policy| shipped.guarded_namespace(&policy["spec"]).map(str::to_owned)),
    };
    Ok(Ok(Some(found)))
}

/// An API that a CustomResourceDefinition of ours defines.
pub(super) async fn crd(
    client: &Client,
    shipped: ShippedCrd,
) -> Result<Answer<Installed>, ManifestError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match api_error::with_timeout(api.get_opt(shipped.name)).await {
        Err(error) => Ok(Err(error)),
        Ok(found) => Ok(Ok(shipped.compare(found.as_ref())?)),
    }
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
}
