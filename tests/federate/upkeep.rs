//! What a controller keeps off the objects that it makes: credentials of its proxy, and labels of earlier
//! versions.

use std::time::Duration;

use serde_json::{Value, json};
use trustplane::federate::decide::render::Component;

use testkit::{
    eventually,
    spire::Names,
    stage::{self, Stage},
};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_proxy_with_credentials_is_told_of_and_its_password_gets_nowhere() {
    let stage = Stage::start("federation-proxy").await;
    stage.create(stage::spiffe()).await;
    let names = Names::start().await;
    let proxy = format!("http://me:hunter2@{}", names.address());
    let environment = [("HTTPS_PROXY".to_owned(), proxy)];
    let mut controller = stage.controller_with(&[], &environment).await;
    let told = eventually(SOON, "an Event tells of it", async || {
        let told = stage.events().await;
        let found = told.iter().find(|it| it.starts_with("Warning ProxyWithheld")).cloned();
        found.ok_or(told)
    })
    .await;
    assert!(told.contains("is not given HTTPS_PROXY"), "{told}");
    stage.until_field(Component::Route, "/metadata/name", json!("spire-server-federation")).await;
    let set = stage.object(Component::StatefulSet).await;
    let containers = set["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    let server = containers.iter().find(|it| it["name"] == "spire-server").expect("the server");
    let names = server["env"].as_array().cloned().unwrap_or_default();
    assert!(names.iter().all(|it| it["name"] != "HTTPS_PROXY"), "{names:?}");
    let everywhere = [
        set.to_string(),
        stage.object(Component::ServerConfigMap).await.to_string(),
        stage.server().await.to_string(),
        stage.events().await.join("\n"),
        controller.metrics().await,
    ];
    for text in everywhere {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_label_of_an_earlier_version_is_taken_off_a_role_on_a_real_api_server() {
    const FOLDED: &str = "rbac.authorization.k8s.io/aggregate-to-view";
    const NOTE: &str = "/metadata/annotations/trustplane.dev~1fields";
    let stage = Stage::start("federation-old-label").await;
    stage.create(stage::spiffe()).await;
    let controller = stage.controller(&[]).await;
    stage.until_field(Component::Route, "/metadata/name", json!("spire-server-federation")).await;
    drop(controller);

    // As it was created then: the note says which fields are ours.
    let role = stage.object(Component::ClusterRole).await;
    let note = role.pointer(NOTE).and_then(Value::as_str).unwrap_or_else(|| panic!("{role}"));
    let mut note: Value = serde_json::from_str(note).expect("JSON");
    note["metadata"]["labels"][FOLDED] = json!(0);
    let labels = json!({ FOLDED: "true", "team": "theirs" });
    let annotations = json!({ "trustplane.dev/fields": note.to_string() });
    let earlier = json!({ "metadata": { "labels": labels, "annotations": annotations } });
    stage.meddle(Component::ClusterRole, earlier).await;

    let _again = stage.controller(&[]).await;
    let label = format!("/metadata/labels/{}", FOLDED.replace('/', "~1"));
    stage.until_field(Component::ClusterRole, &label, Value::Null).await;
    stage.until_field(Component::ClusterRole, "/metadata/labels/team", json!("theirs")).await;
}
