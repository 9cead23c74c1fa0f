//! Nobody gets a key into a Route who could not read it.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{authority::Authority, eventually};
use trustplane::k8s::api_error;

use super::*;
use crate::suite::namespace::{CaseNamespace, PATIENCE, annotation};
use crate::suite::observation::Expected;

/// e2e/role.yaml allows to act in this name.
const VISITOR: &str = "trustplane-e2e-visitor";
const POLICY: &str = "trustplane-route-secrets";

pub async fn a_user_who_may_not_read_the_secret_is_refused(scene: Scene) -> Shown {
    let place = scene.place().await;
    let pair = Authority::new("e2e root").issue(&place.host("*"));
    place.tls("shop-tls", &pair).await;
    place.route(&place.edge("shop")).await;
    let visitor = scene.world.client_as(VISITOR).await;
    let routes = json!({ "apiGroups": ["route.openshift.io"], "resources": ["routes"], "verbs": ["get", "patch"] });
    grant(&place, "edits-routes", json!([routes])).await;
    let label = json!({ "metadata": { "labels": { "team": "web" } } });
    accepted(&place, &visitor, label).await;

    let (code, why) =
        patch(&place, &visitor, annotation(Some("shop-tls"))).await.expect_err("refused");

    assert_eq!(code, 403, "{why}");
    assert!(why.contains(POLICY), "refused for another reason: {why}");
    place.is_caught_up(&pair).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[]).await;

    // The same user with the rights that were missing.
    let secret = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["shop-tls"], "verbs": ["get"] });
    let host = json!({ "apiGroups": ["route.openshift.io"], "resources": ["routes/custom-host"], "verbs": ["create"] });
    grant(&place, "reads-the-secret", json!([secret, host])).await;
    accepted(&place, &visitor, annotation(Some("shop-tls"))).await;
    place.shows("shop", &pair, MANAGED, &[INJECTED]).await;
    Ok(())
}

/// Gives the visitor these rights here.
async fn grant(place: &CaseNamespace, name: &str, rules: Value) {
    let group = "rbac.authorization.k8s.io";
    let objects = |kind| place.objects(place.world.client.clone(), group, "v1", kind);
    let version = format!("{group}/v1");
    let role = json!({
        "apiVersion": version, "kind": "Role", "metadata": { "name": name }, "rules": rules,
    });
    place.create(&objects("Role"), role).await;
    let binding = json!({
        "apiVersion": version,
        "kind": "RoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": VISITOR }],
    });
    place.create(&objects("RoleBinding"), binding).await;
}

/// Waits until a patch is accepted: rights take a moment to be known.
async fn accepted(place: &CaseNamespace, visitor: &Client, change: Value) {
    eventually(PATIENCE, "the visitor's patch is accepted", async || {
        patch(place, visitor, change.clone()).await
    })
    .await;
}

/// Code and message of a refusal.
async fn patch(
    place: &CaseNamespace,
    visitor: &Client,
    change: Value,
) -> Result<(), (u16, String)> {
    let (routes, change) = (place.routes_as(visitor.clone()), Patch::Merge(change));
    match routes.patch("shop", &PatchParams::default(), &change).await {
        Ok(_) => Ok(()),
        // Of a refusal for lack of rights, which has no content in it.
        Err(kube::Error::Api(status)) if status.code == 403 => Err((403, status.message.clone())),
        Err(error) => Err((0, api_error::ApiError::from(error).to_string())),
    }
}
