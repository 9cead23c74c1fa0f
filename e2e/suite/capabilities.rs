//! Features and permissions of the cluster, found out before the first case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;
use testkit::{arguments::Arguments, authority::Authority};
use trustplane::k8s::api_error::{self, ApiError};
use trustplane::names::INJECTED_ANNOTATION;

use super::namespace::CaseNamespace;
use super::observation::{Observations, is_admitted};
use super::permissions::{self, Role};
use super::runner::{Case, CaseVerdict, Pace};
use super::world::World;

/// The admission policy of deploy/policy.
const POLICY: &str = "trustplane-route-secrets";
/// Longest that a router or an injector may take for our first Route.
const WITHIN: Duration = Duration::from_secs(60);

/// Features that not every cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Parts that the case stops and starts, and an audit log.
    OwnStack,
    CertManager,
    /// Roles, impersonation, and our admission policy.
    Permission,
    Ingress,
    /// Minutes: TRUSTPLANE_LONG=1.
    Long,
}

/// Missing features, and why they are missing.
pub struct Capabilities {
    missing: Vec<(Need, String)>,
    /// Our own stack has everything: what is missing there is a failure.
    own_stack: bool,
    /// Only cases of seconds are asked for.
    quick: bool,
}

impl Capabilities {
    /// Looks at a cluster.
    pub async fn of(world: &World, arguments: &Arguments) -> Self {
        let client = &world.client;
        let mut missing = Vec::new();
        if world.own_stack().is_none() {
            missing.push((Need::OwnStack, "needs our own stack: make e2e".to_owned()));
        }
        if std::env::var_os("TRUSTPLANE_LONG").is_none() {
            missing.push((Need::Long, "long: TRUSTPLANE_LONG=1 runs it".to_owned()));
        }
        let looks = [
            (Need::CertManager, "trustplane-e2e-cert-manager", "/apis/cert-manager.io/v1"),
            (
                Need::Permission,
                "trustplane-e2e-permission",
                &*format!(
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{POLICY}"
                ),
            ),
            (Need::Ingress, "trustplane-e2e-ingress", "/apis/networking.k8s.io/v1"),
        ];
        let roles = permissions::roles();
        for (need, role, path) in looks {
            let role = roles.iter().find(|known| known.name() == role).expect("e2e/role.yaml");
            if let Some(why) = why_not(client, role, path).await {
                missing.push((need, why));
            }
        }
        Self { missing, own_stack: world.own_stack().is_some(), quick: arguments.quick }
    }

    /// Why a case is not run.
    pub fn why_not(&self, case: &Case) -> Option<CaseVerdict> {
        let missing = self.missing.iter().find(|(missing, _)| case.needs.contains(missing));
        match missing {
            Some((Need::Long, why)) => Some(CaseVerdict::Skipped(why.clone())),
            Some((_, why)) if self.own_stack => Some(CaseVerdict::Failed(why.clone())),
            Some((_, why)) => Some(CaseVerdict::Skipped(why.clone())),
            None if self.quick && case.pace != Pace::Quick => {
                Some(CaseVerdict::Skipped("--quick leaves it out".to_owned()))
            }
            None => None,
        }
    }
}

async fn why_not(client: &Client, role: &Role, path: &str) -> Option<String> {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    match api_error::with_timeout(client.request_text(request)).await {
        Ok(_) => {}
        Err(ApiError::NotFound) => return Some(format!("the cluster has no {path}")),
        // Whether we may look is among the rights.
        Err(_) => {}
    }
    match role.missing(client).await {
        Some(missing) if missing.is_empty() => None,
        Some(missing) => Some(format!("we may not {}", missing.join(", "))),
        None => Some("the cluster has no access reviews".to_owned()),
    }
}

/// Says which rights the suite needs, and which are missing. Fails where nothing can be done.
pub async fn state_rights(client: &Client) -> Result<(), String> {
    println!("rights that the suite needs (e2e/role.yaml):");
    let mut roles = permissions::roles().into_iter();
    let needed = roles.next().expect("e2e/role.yaml has a role");
    let missing = state(client, &needed).await;
    for role in roles {
        state(client, &role).await;
    }
    match missing {
        Some(missing) if !missing.is_empty() => Err(format!(
            "nothing can run: we may not {}. Grant it with: kubectl apply -f e2e/role.yaml, and a \
             ClusterRoleBinding to {}",
            missing.join(", "),
            needed.name()
        )),
        _ => Ok(()),
    }
}

async fn state(client: &Client, role: &Role) -> Option<Vec<String>> {
    let missing = role.missing(client).await;
    let verdict = match &missing {
        None => "the cluster does not say".to_owned(),
        Some(missing) if missing.is_empty() => "granted".to_owned(),
        Some(missing) => format!("missing: {}", missing.join(", ")),
    };
    println!("  {} ({verdict})", role.name());
    for line in role.lines() {
        println!("    {line}");
    }
    missing
}

/// Tries a Route of our own: whether a router admits it, and whether a trustplane injects into it.
/// Returns where that router is, as far as it says.
pub async fn try_a_route(world: &Arc<World>) -> Result<Option<String>, String> {
    let place = CaseNamespace::new(world.clone(), Observations::default()).await;
    let host = place.host("probe");
    place.tls("probe-tls", &Authority::new("e2e probe").issue(&host)).await;
    place.route(&place.edge("probe").annotated("probe-tls")).await;
    let admitted = awaited(&place, is_admitted).await;
    let admitted = admitted.ok_or_else(|| {
        format!("no router admitted a Route for {host} within {WITHIN:?}. TRUSTPLANE_E2E_DOMAIN sets another domain")
    })?;
    let noted = |route: &Value| route["metadata"]["annotations"].get(INJECTED_ANNOTATION).is_some();
    awaited(&place, noted).await.ok_or_else(|| {
        format!(
            "nothing was injected into Route {}/probe within {WITHIN:?}. Does trustplane run \
             (kubectl -n trustplane get lease trustplane-inject), and for all namespaces?",
            place.name
        )
    })?;
    world.remove_namespace(&place.name).await;
    let name = admitted["status"]["ingress"][0]["routerCanonicalHostname"].as_str();
    Ok(name.map(|name| format!("{name}:443")))
}

async fn awaited(place: &CaseNamespace, is_so: impl Fn(&Value) -> bool) -> Option<Value> {
    let start = Instant::now();
    while start.elapsed() < WITHIN {
        let route = place.look_up("probe").await;
        if is_so(&route) {
            return Some(route);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    None
}
