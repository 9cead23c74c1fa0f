//! A cluster with deploy/policy in force, and the words of its refusals.

use std::time::Duration;

use testkit::{Cluster, RouteFixture, eventually};
use tokio::sync::OnceCell;

use crate::{
    policy::users::{self, Person, Refusal},
    scene::Scene,
};

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policy");

/// A namespace of the shared cluster, with the policy in force and a controller at work.
pub async fn scene(prefix: &str) -> Scene {
    cluster().await;
    Scene::new(prefix).await
}

/// The shared cluster, with the policy in force.
pub async fn cluster() -> Cluster {
    static IN_FORCE: OnceCell<()> = OnceCell::const_new();
    let cluster = Cluster::get().await;
    IN_FORCE.get_or_init(async || install(&cluster).await).await;
    cluster
}

/// Applies the policy and waits until it is in force, which takes the API server a moment.
pub async fn install(cluster: &Cluster) {
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", POLICY]).await;
    applied.expect("the policy is accepted");
    let ns = cluster.namespace("probe").await;
    let nobody = Person::new(&ns, "nobody", &[users::edit_routes()]).await;
    let asking = RouteFixture::edge("shop").annotated("shop-tls");
    eventually(Duration::from_secs(30), "the policy is in force", async || {
        nobody.try_to_create(&asking).await.err().ok_or("a Route was accepted")
    })
    .await;
}

/// The right that somebody lacks.
#[derive(Clone, Copy)]
pub enum Missing {
    Secret,
    CustomHost,
    Both,
}

/// Word for word what somebody is told who may not have this Secret in this Route.
pub fn refusal(
    scene: &Scene,
    who: &Person,
    route: &str,
    secret: &str,
    missing: Missing,
) -> Refusal {
    let (user, namespace) = (&who.user, scene.ns.name());
    let missing = match missing {
        Missing::Both => format!(
            "{user} may neither get Secret \"{secret}\" nor create routes/custom-host in namespace {namespace}."
        ),
        Missing::Secret => {
            format!("{user} may not get Secret \"{secret}\" in namespace {namespace}.")
        }
        Missing::CustomHost => format!(
            "{user} may get Secret \"{secret}\", but may not create routes/custom-host in namespace {namespace}."
        ),
    };
    forbidden(
        route,
        &format!(
            "{missing} Both rights, get on the Secret and create on routes/custom-host, are needed to set the \
             annotation route.openshift.io/tls-secret-name, or to change the owners of a Route that has it: the \
             key of the Secret goes into the Route. An administrator can grant what is missing with a Role and a \
             RoleBinding, or make this change for you."
        ),
    )
}

/// A refusal by the policy, with this text.
pub fn forbidden(route: &str, text: &str) -> Refusal {
    Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: format!(
            "routes.route.openshift.io \"{route}\" is forbidden: ValidatingAdmissionPolicy \
             'trustplane-route-secrets' with binding 'trustplane-route-secrets' denied request: {text}"
        ),
    }
}
