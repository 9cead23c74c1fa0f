//! Tests whether the API server enforces the admission policy: tries, as a user who may create
//! Routes and nothing else, to ask for a Secret.
//!
//! It makes a namespace with a Role and a RoleBinding, and deletes all three. The Routes are dry
//! runs, which pass the same admission and are not stored. The same Route without the annotation is
//! the control, before and after: a refusal for any other reason is not taken for the policy's.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::found::Answer;
use crate::{
    api::route::{GROUP, VERSION},
    k8s::api_error::{self, Admission, ApiError},
    names::{FIELD_MANAGER, POLICY, SECRET_NAME_ANNOTATION},
};

/// The name of all objects made here, and the beginning of the namespace's name.
pub const NAME: &str = "trustplane-probe";
/// On all objects made here: it finds what a killed run left behind.
pub const LABEL: (&str, &str) = ("trustplane.dev/probe", "admission-policy");

/// RBAC and admission policies are in force a moment after they were written.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcement {
    NotTested,
    /// A test was requested, and there is no policy to test.
    NothingToTest,
    Enforced,
    NotEnforced,
    Unknown(ProbeError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    #[error("{step}: {cause}")]
    Call { step: &'static str, cause: ApiError },
    #[error("stopped before its end")]
    Stopped,
    #[error("namespace {namespace} could not be deleted: {cause}. The next run deletes it")]
    NotRemoved { namespace: String, cause: ApiError },
}

fn at(step: &'static str) -> impl Fn(ApiError) -> ProbeError {
    move |cause| ProbeError::Call { step, cause }
}

/// The namespace and the user of one run. The user exists in name only.
#[derive(Clone, Debug)]
pub struct Probe {
    name: String,
}

impl Default for Probe {
    fn default() -> Self {
        Self { name: format!("{NAME}-{:016x}", fastrand::u64(..)) }
    }
}

impl Probe {
    pub fn user(&self) -> &str {
        &self.name
    }

    /// Tests it: `admin` makes and removes, `user` is a client that impersonates the user.
    pub async fn run(
        &self,
        admin: &Client,
        user: &Client,
        stop: &CancellationToken,
    ) -> Enforcement {
        match self.try_run(admin, user, stop).await {
            Ok(true) => Enforcement::Enforced,
            Ok(false) => Enforcement::NotEnforced,
            Err(error) => Enforcement::Unknown(error),
        }
    }

    async fn try_run(
        &self,
        admin: &Client,
        user: &Client,
        stop: &CancellationToken,
    ) -> Result<bool, ProbeError> {
        let left = left_behind(admin).await.map_err(at("listing namespaces"))?;
        for namespace in left {
            remove(admin, &namespace).await?;
        }
        let tested = tokio::select! {
            biased;
            () = stop.cancelled() => Err(ProbeError::Stopped),
            tested = self.test(admin, user) => tested,
        };
        // Whatever came of it, nothing stays.
        let removed = remove(admin, &self.name).await;
        let enforced = tested?;
        removed?;
        Ok(enforced)
    }

    async fn test(&self, admin: &Client, user: &Client) -> Result<bool, ProbeError> {
        self.make(admin).await?;
        let routes = self.routes(user);
        let until = Instant::now() + IN_FORCE_WITHIN;
        while let Err(cause) = create(&routes, false).await {
            let comes = matches!(cause, ApiError::Forbidden | ApiError::NotFound);
            if !comes || Instant::now() > until {
                return Err(at("creating a Route as another user")(cause));
            }
            sleep(PAUSE).await;
        }
        let until = Instant::now() + IN_FORCE_WITHIN;
        loop {
            match create(&routes, true).await {
                Ok(()) if Instant::now() > until => return Ok(false),
                Ok(()) => sleep(PAUSE).await,
                Err(ApiError::Denied { by: Admission::Policy(name), .. }) if name == POLICY => {
                    let control = create(&routes, false).await;
                    control.map_err(at("creating a Route as another user again"))?;
                    return Ok(true);
                }
                Err(cause) => return Err(at("creating a Route that asks for a Secret")(cause)),
            }
        }
    }

    async fn make(&self, admin: &Client) -> Result<(), ProbeError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..Default::default() };
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let namespace = Namespace { metadata: named(&self.name), ..Namespace::default() };
        let made = api_error::with_timeout(namespaces.create(&params, &namespace)).await;
        made.map_err(at("creating a namespace"))?;

        let rule = |resource: &str| PolicyRule {
            api_groups: Some(vec![GROUP.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: vec!["create".to_owned()],
            ..PolicyRule::default()
        };
        let rules = Some(vec![rule("routes"), rule("routes/custom-host")]);
        let roles: Api<Role> = Api::namespaced(admin.clone(), &self.name);
        let role = Role { metadata: named(NAME), rules };
        let made = api_error::with_timeout(roles.create(&params, &role)).await;
        made.map_err(at("creating a Role"))?;

        let group = "rbac.authorization.k8s.io".to_owned();
        let (kind, name) = ("Role".into(), NAME.into());
        let role_ref = RoleRef { api_group: Some(group.clone()), kind, name };
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), &self.name);
        let binding = RoleBinding {
            metadata: named(NAME),
            role_ref,
            subjects: Some(vec![Subject {
                api_group: Some(group),
                kind: "User".into(),
                name: self.name.clone(),
                namespace: None,
            }]),
        };
        let made = api_error::with_timeout(bindings.create(&params, &binding)).await;
        made.map(|_| ()).map_err(at("creating a RoleBinding"))
    }

    fn routes(&self, user: &Client) -> Api<DynamicObject> {
        Api::namespaced_with(user.clone(), &self.name, &route_resource())
    }
}

fn route_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, "Route"))
}

fn named(name: &str) -> ObjectMeta {
    let labels = [(LABEL.0.to_owned(), LABEL.1.to_owned())];
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

/// A dry run: it passes admission, and nothing is stored.
async fn create(routes: &Api<DynamicObject>, asks: bool) -> Answer<()> {
    let mut metadata = named(NAME);
    if asks {
        metadata.annotations = Some([(SECRET_NAME_ANNOTATION.to_owned(), NAME.to_owned())].into());
    }
    let mut route = DynamicObject::new(NAME, &route_resource()).data(json!({
        "spec": { "to": { "kind": "Service", "name": NAME }, "tls": { "termination": "edge" } },
    }));
    route.metadata = metadata;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api_error::with_timeout(routes.create(&params, &route)).await.map(|_| ())
}

/// Namespaces of earlier runs. The label alone is not enough: a user who may label namespaces could
/// have any of them deleted.
async fn left_behind(admin: &Client) -> Answer<Vec<String>> {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let labelled = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let found = api_error::with_timeout(namespaces.list(&labelled)).await?;
    let ours = found.items.into_iter().map(|it| it.metadata);
    let ours = ours.filter(|it| it.deletion_timestamp.is_none()).filter_map(|it| it.name);
    Ok(ours.filter(|name| name.starts_with(&format!("{NAME}-"))).collect())
}

/// The binding first, so that its right ends before the namespace is emptied.
async fn remove(admin: &Client, namespace: &str) -> Result<(), ProbeError> {
    let not_removed = |cause| ProbeError::NotRemoved { namespace: namespace.to_owned(), cause };
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), namespace);
    delete(&bindings, NAME).await.map_err(not_removed)?;
    let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
    delete(&roles, NAME).await.map_err(not_removed)?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    delete(&namespaces, namespace).await.map_err(not_removed)
}

async fn delete<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str) -> Answer<()> {
    match api_error::with_timeout(api.delete(name, &DeleteParams::default())).await {
        Ok(_) | Err(ApiError::NotFound) => Ok(()),
        Err(cause) => Err(cause),
    }
}
