//! Writes that the API server refuses for good: who is told, and what the condition claims.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    Cluster, Controller, Namespace, Pair, RouteFixture, SecretFixture, eventually, pair,
};
use trustplane::names::INJECTED_ANNOTATION;

use crate::scene::{PATIENCE, SILENCE, Scene, annotate, note};

/// For the Routes of one namespace, without their status.
fn routes_of(ns: &Namespace) -> (Value, Value) {
    let rule = json!({
        "apiGroups": ["route.openshift.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["routes"],
    });
    (rule, json!({ "matchLabels": { "kubernetes.io/metadata.name": ns.name() } }))
}

async fn create<K>(ns: &Namespace, object: Value)
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("it is well formed");
    let api: Api<K> = Api::all(ns.client().clone());
    api.create(&PostParams::default(), &object).await.expect("it is accepted");
}

/// A webhook that nobody answers for.
async fn dead_webhook(ns: &Namespace) -> String {
    let name = format!("{}.example.com", ns.name());
    let (rule, selector) = routes_of(ns);
    let webhook = json!({
        "metadata": { "name": name },
        "webhooks": [{
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 1, "rules": [rule],
            "namespaceSelector": selector, "clientConfig": { "url": "https://127.0.0.1:1/" },
        }],
    });
    create::<ValidatingWebhookConfiguration>(ns, webhook).await;
    until_refused(ns).await;
    name
}

/// A policy that lets nobody write, and says too much.
async fn policy(ns: &Namespace) -> String {
    let name = format!("{}-no", ns.name());
    let (rule, selector) = routes_of(ns);
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [rule], "namespaceSelector": selector },
            "validations": [{
                "expression": "false", "reason": "Forbidden",
                "messageExpression": "'key: ' + string(has(object.spec.tls.key)) + ' a very secret text'",
            }],
        },
    });
    create::<ValidatingAdmissionPolicy>(ns, policy).await;
    let binding = json!({
        "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    create::<ValidatingAdmissionPolicyBinding>(ns, binding).await;
    until_refused(ns).await;
    name
}

/// The API server takes a moment until it asks them.
async fn until_refused(ns: &Namespace) {
    let change = Patch::Merge(json!({ "metadata": { "labels": { "tried": "yes" } } }));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually(PATIENCE, "writes of Routes are refused", async || {
        match ns.routes().patch("shop", &params, &change).await {
            Ok(_) => Err("accepted"),
            Err(_) => Ok(()),
        }
    })
    .await;
}

async fn managed(prefix: &str, flags: &[&str]) -> (Scene, Pair) {
    managed_on(Cluster::get().await, prefix, flags).await
}

async fn managed_on(cluster: Cluster, prefix: &str, flags: &[&str]) -> (Scene, Pair) {
    let ns = cluster.namespace(prefix).await;
    let controller = Controller::start(&ns, flags).await;
    let scene = Scene { ns, controller };
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    (scene, issued)
}

async fn says(scene: &Scene) -> String {
    let route = scene.ns.route("shop").await;
    let all = route["status"]["certificate"].as_array().cloned().unwrap_or_default();
    let holds = all.iter().find(|one| one["status"] == "True").expect("one is True");
    holds["message"].as_str().unwrap_or_default().to_owned()
}

async fn renew(scene: &Scene) -> Pair {
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    renewed
}

#[tokio::test]
async fn while_a_webhook_is_down_the_condition_an_event_and_a_metric_say_that_a_renewal_is_refused()
{
    let (mut scene, _) = managed("webhook-down", &[]).await;
    let webhook = dead_webhook(&scene.ns).await;

    let renewed = renew(&scene).await;
    scene.settles("shop", "Managed", "InjectionFailed").await;

    let expected = format!("admission webhook {webhook} failed (HTTP 500)");
    let message = says(&scene).await;
    assert!(message.contains(&expected), "{message}");
    let event = scene.event("shop", "InjectionFailed").await;
    assert_eq!((event.kind.as_str(), event.note), ("Warning", message));
    let metrics = scene.controller.metrics().await;
    let counted = "trustplane_routes{state=\"Managed\",reason=\"InjectionFailed\"} 1";
    assert!(metrics.contains(counted), "{metrics}");

    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(scene.ns.client().clone());
    webhooks.delete(&webhook, &DeleteParams::default()).await.expect("it is deleted");
    scene.holds("shop", &renewed).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
}

#[tokio::test]
async fn while_a_webhook_is_down_a_clearing_that_is_refused_is_said_too() {
    let (scene, issued) = managed("clear-down", &["--secret-missing-grace", "1s"]).await;
    dead_webhook(&scene.ns).await;

    scene.ns.delete_secret("shop-tls").await;
    scene.settles("shop", "Managed", "InjectionFailed").await;

    assert!(scene.ns.route_holds("shop", &issued).await, "it keeps what it has");
}

#[tokio::test]
async fn a_denial_by_a_policy_is_told_with_its_name_and_nothing_else_and_tried_again_at_a_resync() {
    let cluster = Cluster::forbidding().await;
    let (scene, _) = managed_on(cluster, "policy-denies", &["--resync", "3s"]).await;
    let policy = policy(&scene.ns).await;

    let renewed = renew(&scene).await;
    let event = scene.event("shop", "InjectionFailed").await;

    let expected = format!("admission policy {policy} denied the request (HTTP 403)");
    assert!(event.note.contains(&expected), "{}", event.note);
    for not_so in ["secret text", "grant its account"] {
        assert!(!event.note.contains(not_so), "{}", event.note);
        assert!(!scene.controller.log().contains(not_so));
    }
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(scene.ns.client().clone());
    bindings.delete(&policy, &DeleteParams::default()).await.expect("it is deleted");
    scene.holds("shop", &renewed).await;
}

#[tokio::test]
async fn a_pair_that_grows_beyond_what_is_stored_is_told_and_not_sent_again_and_again() {
    let (scene, issued) = managed("too-large", &["--resync", "1s"]).await;
    let large = json!({ "example.com/large": "x".repeat(100 * 1024) });
    scene.ns.patch_route("shop", json!({ "metadata": { "annotations": large } })).await;
    // JSON makes six bytes of each.
    let text = "\u{1}".repeat(250 * 1024);
    let large = pair::issued("shop.example.com");
    let certificate = format!("{text}\n{}", large.certificate);
    SecretFixture::tls("shop-tls", &large).certificate(certificate).replace(&scene.ns).await;

    scene.settles("shop", "Managed", "InjectionFailed").await;
    let message = says(&scene).await;
    assert!(message.contains("larger than the API server stores"), "{message}");
    assert!(scene.ns.route_holds("shop", &issued).await, "it keeps what it has");
    let sent = scene.ns.quiet(SILENCE).await.len();
    tokio::time::sleep(3 * std::time::Duration::from_secs(1)).await;
    assert_eq!(scene.ns.quiet(SILENCE).await.len(), sent, "not at a resync");

    let renewed = renew(&scene).await;
    scene.holds("shop", &renewed).await;
}

#[tokio::test]
async fn a_route_that_moves_to_an_external_certificate_keeps_no_key_of_ours() {
    let (scene, _) = managed("external", &[]).await;
    // The API refuses the certificate beside the new field, and says so; it says nothing of the key.
    let external = json!({ "certificate": null, "externalCertificate": { "name": "own" } });
    scene.ns.patch_route("shop", json!({ "spec": { "tls": external } })).await;

    scene.settles("shop", "Custom", "ExternalCertificate").await;

    let route = scene.ns.route("shop").await;
    assert_eq!((note(&route), &route["spec"]["tls"]["key"]), (None, &Value::Null));
    assert_eq!(route["spec"]["tls"]["externalCertificate"]["name"], "own");
}

#[tokio::test]
async fn a_key_that_is_left_beside_an_external_certificate_goes_without_the_annotation_too() {
    let (scene, _) = managed("external-left", &[]).await;
    let annotations = scene.ns.route("shop").await["metadata"]["annotations"].clone();
    assert!(annotations[INJECTED_ANNOTATION].is_string());
    let external = json!({ "certificate": null, "externalCertificate": { "name": "own" } });
    let change = json!({
        "metadata": { "annotations": { trustplane::names::SECRET_NAME_ANNOTATION: null } },
        "spec": { "tls": external },
    });
    scene.ns.patch_route("shop", change).await;

    scene.settles("shop", "Custom", "ExternalCertificate").await;

    let route = scene.ns.route("shop").await;
    assert_eq!((note(&route), &route["spec"]["tls"]["key"]), (None, &Value::Null));
    assert_eq!(scene.reasons("shop").await, ["CertificateInjected"], "nobody is warned");
}

#[tokio::test]
async fn a_misspelt_annotation_is_pointed_out_once() {
    let mut scene = Scene::new("misspelt").await;
    let route = RouteFixture::edge("shop").annotation("router.openshift.io/tls-secret-name", "a");
    route.create(&scene.ns).await;

    scene.settles("shop", "Default", "NoCertificate").await;
    let event = scene.event("shop", "AnnotationMisspelt").await;
    assert!(
        event.note.contains("Did you mean route.openshift.io/tls-secret-name?"),
        "{}",
        event.note
    );
    assert_eq!(says(&scene).await, event.note);

    let before = scene.ns.quiet(SILENCE).await.len();
    scene.restart(&[]).await;
    assert_eq!(scene.ns.quiet(SILENCE).await.len(), before, "a restart says nothing");
    annotate(&scene.ns, "shop", Some("shop-tls")).await;
    scene.settles("shop", "Default", "SecretNotFound").await;
}

#[tokio::test]
async fn a_certificate_that_clients_refuse_is_named_in_the_condition_and_counted_by_kind() {
    let mut scene = Scene::new("warned").await;
    SecretFixture::tls("shop-tls", &pair::issued("other.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;

    scene.settles("shop", "Managed", "SecretInjected").await;

    let message = says(&scene).await;
    assert!(message.contains("Warnings: HostMismatch"), "{message}");
    let metrics = scene.controller.metrics().await;
    let counted = "trustplane_certificate_warnings{reason=\"HostMismatch\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_route_that_was_made_smaller_gets_its_pair() {
    let (scene, _) = managed("made-smaller", &["--resync", "1s"]).await;
    let large = json!({ "example.com/large": "x".repeat(200 * 1024) });
    scene.ns.patch_route("shop", json!({ "metadata": { "annotations": large } })).await;
    // JSON makes six bytes of each: about 1.35 MiB, which fits without the annotation.
    let text = "\u{1}".repeat(230 * 1024);
    let large = pair::issued("shop.example.com");
    let certificate = format!("{text}\n{}", large.certificate);
    SecretFixture::tls("shop-tls", &large).certificate(certificate).replace(&scene.ns).await;
    scene.settles("shop", "Managed", "InjectionFailed").await;

    // docs/inject.md: "tried again when Route or Secret change".
    let small = json!({ "example.com/large": null });
    scene.ns.patch_route("shop", json!({ "metadata": { "annotations": small } })).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
}

#[tokio::test]
async fn a_label_that_satisfies_the_policy_is_a_change_of_the_route() {
    let cluster = Cluster::forbidding().await;
    let (scene, _) = managed_on(cluster, "label-satisfies", &[]).await;
    let name = format!("{}-labelled", scene.ns.name());
    let (rule, selector) = routes_of(&scene.ns);
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [rule], "namespaceSelector": selector },
            "validations": [{
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "reason": "Forbidden",
            }],
        },
    });
    create::<ValidatingAdmissionPolicy>(&scene.ns, policy).await;
    let binding = json!({
        "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    create::<ValidatingAdmissionPolicyBinding>(&scene.ns, binding).await;
    until_refused(&scene.ns).await;
    let renewed = renew(&scene).await;
    scene.settles("shop", "Managed", "InjectionFailed").await;

    scene.ns.patch_route("shop", json!({ "metadata": { "labels": { "team": "shop" } } })).await;
    scene.holds("shop", &renewed).await;
}
