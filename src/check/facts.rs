//! What was found on a cluster. `lines` judges it.

use std::collections::HashSet;

use crate::{
    check::rights::Right,
    inject::{
        capability::StatusField,
        condition::Standing,
        facts::{Custody, Holding, ObjectRef, Owner, RouteFacts, Tls},
        survey::Survey,
        words::Reason,
    },
    kit::{call::CallError, lease::holder::Holder},
};

/// What the API server answered, or why it did not.
pub type Answer<T> = Result<T, CallError>;

/// Everything that is judged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Where trustplane is installed, or is to be.
    pub namespace: String,
    /// The API server.
    pub server: Server,
    /// Who serves Routes.
    pub route_api: Answer<RouteApi>,
    /// Whether `.status.certificate` is kept.
    pub status_field: Answer<StatusField>,
    /// What whoever asks may do, of what installing needs.
    pub installer: Answer<Reviewed>,
    /// What the controller's account may do, of what it needs.
    pub account: Answer<Reviewed>,
    /// The admission policy; none where the API server does not know the kind.
    pub policy: Answer<Option<PolicyFound>>,
    /// The Deployment.
    pub deployment: Answer<Option<DeploymentFound>>,
    /// Other namespaces with such a Deployment, where it is not in this one.
    pub elsewhere: Vec<String>,
    /// Who leads.
    pub lease: Answer<Holder>,
    /// The Routes of the namespaces that are served.
    pub routes: Answer<RoutesFound>,
}

impl Facts {
    /// The namespaces that the controller serves; none for all.
    pub fn served(&self) -> &[String] {
        match &self.deployment {
            Ok(Some(deployment)) => &deployment.served,
            _ => &[],
        }
    }
}

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub url: String,
    /// As it calls its version.
    pub version: String,
    /// The same, to compare.
    pub number: (u32, u32),
}

/// Who serves Routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteApi {
    /// Nobody.
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
    /// How many.
    pub asked: usize,
    /// Those that are not granted.
    pub missing: Vec<Right>,
}

/// Policy and binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFound {
    /// What it says.
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

/// The Deployment of `trustplane inject`.
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
    /// The ServiceAccount.
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

/// The Routes, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutesFound {
    /// All of them.
    pub all: usize,
    /// Those that ask for a Secret and are ours to write.
    pub annotated: usize,
    /// Those that hold a pair of ours.
    pub managed: usize,
    /// Those that ask, but belong to an Ingress.
    pub left_alone: usize,
    /// Those that ask and do not hold what they ask for, with the reason where it is known.
    pub failing: Vec<(ObjectRef, Option<String>)>,
    /// Those that name a TLS Secret that is not there, with its name.
    pub without_secret: Answer<Vec<(ObjectRef, String)>>,
    /// Those that can't be decoded.
    pub undecodable: Vec<ObjectRef>,
}

impl RoutesFound {
    /// Counts.
    pub fn count(survey: Survey, secrets: Answer<HashSet<ObjectRef>>) -> Self {
        let of = |custody| survey.routes.iter().filter(move |route| route.custody == custody);
        let asking: Vec<_> = of(Custody::Free).filter(|route| route.is_annotated()).collect();
        let fails = |route: &&&RouteFacts| {
            let injected = |it: &Standing| it.reason == Some(Reason::SecretInjected);
            !is_managed(route) || route.conditions.first().is_some_and(|it| !injected(it))
        };
        let without_secret = secrets.map(|secrets| {
            let absent = |route: &&RouteFacts| {
                let secret = route.deciding_secret().filter(|secret| !secrets.contains(secret))?;
                Some((route.at.clone(), secret.name.to_string()))
            };
            asking.iter().filter_map(absent).collect()
        });
        Self {
            all: survey.routes.len() + survey.undecodable.len(),
            annotated: asking.len(),
            managed: of(Custody::Free).filter(|route| is_managed(route)).count(),
            left_alone: of(Custody::Ingress).filter(|route| route.is_annotated()).count(),
            failing: asking
                .iter()
                .filter(fails)
                .map(|route| (route.at.clone(), reason(route).map(str::to_owned)))
                .collect(),
            without_secret,
            undecodable: survey.undecodable,
        }
    }
}

fn is_managed(route: &RouteFacts) -> bool {
    matches!(route.tls, Tls::Terminated { holding: Holding::Certificate(_, Owner::Ours), .. })
}

/// What its condition says, where there is one of ours.
fn reason(route: &RouteFacts) -> Option<&str> {
    route.conditions.first()?.reason.map(Reason::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        inject::note::Note,
        names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION},
    };

    fn route(name: &str, secret: &str, held: bool, reason: Option<&str>) -> Value {
        let note = Note::of("1", "certificate", "key").to_string();
        let mut route = json!({
            "metadata": { "name": name, "namespace": "web", "uid": "1", "annotations": {} },
            "spec": { "tls": { "termination": "edge" } },
        });
        if !secret.is_empty() {
            route["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = json!(secret);
        }
        if held {
            route["metadata"]["annotations"][INJECTED_ANNOTATION] = json!(note);
            route["spec"]["tls"]["certificate"] = json!("certificate");
            route["spec"]["tls"]["key"] = json!("key");
        }
        if let Some(reason) = reason {
            let condition = json!({ "type": "Default", "status": "False", "reason": reason });
            route["status"]["certificate"] = json!([condition]);
        }
        route
    }

    fn survey(routes: &[Value]) -> Survey {
        let read =
            |route: &Value| RouteFacts::read(&serde_json::from_value(route.clone()).unwrap());
        Survey { routes: routes.iter().map(read).collect(), undecodable: Vec::new() }
    }

    #[test]
    fn routes_are_counted_by_what_they_ask_for_and_what_they_hold() {
        let mut owned = route("owned", "shop-tls", false, None);
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": "2", "controller": true,
        }]);
        let routes = survey(&[
            route("plain", "", false, Some("NoCertificate")),
            route("good", "shop-tls", true, Some("SecretInjected")),
            route("kept", "shop-tls", true, Some("SecretInvalidKeepingLast")),
            route("empty", "absent", false, Some("SecretNotFound")),
            route("new", "shop-tls", false, None),
            owned,
        ]);
        let secrets = HashSet::from([ObjectRef::new("web", "shop-tls")]);

        let found = RoutesFound::count(routes, Ok(secrets));

        assert_eq!((found.all, found.annotated, found.managed, found.left_alone), (6, 4, 2, 1));
        let failing: Vec<_> =
            found.failing.iter().map(|(at, why)| (&*at.name, why.as_deref())).collect();
        assert_eq!(
            failing,
            [
                ("kept", Some("SecretInvalidKeepingLast")),
                ("empty", Some("SecretNotFound")),
                ("new", None)
            ]
        );
        let absent = (ObjectRef::new("web", "empty"), "absent".to_owned());
        assert_eq!(found.without_secret, Ok(vec![absent]));
    }

    #[test]
    fn without_the_right_to_list_secrets_none_is_called_missing() {
        let routes = survey(&[route("new", "shop-tls", false, None)]);
        let found = RoutesFound::count(routes, Err(CallError::Forbidden));
        assert_eq!(found.without_secret, Err(CallError::Forbidden));
    }
}
