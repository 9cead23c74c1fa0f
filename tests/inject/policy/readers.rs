//! Users who read a key without the right to read Routes: the rows of docs/security.md's first table that
//! are easily overlooked. Each is tried by somebody with that one right.

use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy,
};
use kube::core::GroupVersionKind;
use serde::Serialize;
use serde_json::{Value, json};
use testkit::{Pair, RouteFixture, SecretFixture, pair};

use crate::{
    policy::{guarded, users::Person},
    scene::Scene,
};

const MANUAL: &str = include_str!("../../../docs/security.md");
const SECRET: &str = "shop-tls";

/// A Route that holds a Secret's pair.
async fn managed(prefix: &str) -> (Scene, Pair) {
    let scene = guarded::scene(prefix).await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated(SECRET).create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    (scene, issued)
}

/// Somebody with this right and no other. The manual names it among those who read keys.
async fn somebody_who_may(scene: &Scene, verb: &str, resource: &str) -> Api<DynamicObject> {
    let (_, readers) = MANUAL.split_once("## Who can read a key").expect("the section");
    let (table, _) = readers.split_once("\n\n**").expect("the end of its table");
    let names = |row: &&str| {
        row.contains(&format!("`{verb}`")) && row.contains("status") == resource.contains("status")
    };
    assert_eq!(table.lines().filter(names).count(), 1, "{verb} {resource} is a row of\n{table}");
    let right =
        json!({ "apiGroups": ["route.openshift.io"], "resources": [resource], "verbs": [verb] });
    let name = format!("{verb}-{}", resource.replace('/', "-"));
    let person = Person::new(&scene.ns, &name, &[right]).await;
    let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
    let routes: Api<DynamicObject> = Api::namespaced_with(
        person.client().clone(),
        scene.ns.name(),
        &ApiResource::from_gvk(&kind),
    );
    let refused = routes.get("shop").await.map(drop).expect_err("they may not read Routes");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    routes
}

async fn version(scene: &Scene) -> Value {
    scene.ns.route("shop").await["metadata"]["resourceVersion"].take()
}

/// Whether what the server answered holds the key. Never shown itself.
fn holds_key(answer: &impl Serialize, pair: &Pair) -> bool {
    let mut waiting = vec![serde_json::to_value(answer).expect("an answer is JSON")];
    while let Some(value) = waiting.pop() {
        match value {
            Value::String(text) if text.contains(pair.key.trim()) => return true,
            Value::Array(values) => waiting.extend(values),
            Value::Object(fields) => waiting.extend(fields.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    false
}

#[tokio::test]
async fn who_may_delete_a_route_reads_its_key_without_deleting_it() {
    let (scene, issued) = managed("reads-deleting").await;
    let routes = somebody_who_may(&scene, "delete", "routes").await;
    let before = version(&scene).await;

    let only_tried = DeleteParams {
        dry_run: true,
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    let answer = routes.delete("shop", &only_tried).await.expect("they may");

    let answered = answer.left().expect("the server answers the Route");
    assert!(holds_key(&answered, &issued));
    assert_eq!(version(&scene).await, before, "it is still there, unchanged");
}

#[tokio::test]
async fn who_may_delete_all_routes_at_once_reads_their_keys_without_deleting_them() {
    let (scene, issued) = managed("reads-collecting").await;
    let routes = somebody_who_may(&scene, "deletecollection", "routes").await;
    let before = version(&scene).await;

    let only_tried = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let answer = routes.delete_collection(&only_tried, &ListParams::default()).await;

    let answered = answer.expect("they may").left().expect("the server answers the Routes");
    assert!(answered.items.iter().any(|route| holds_key(route, &issued)));
    assert_eq!(version(&scene).await, before, "it is still there, unchanged");
}

#[tokio::test]
async fn who_may_write_or_read_a_routes_status_reads_its_key() {
    let (scene, issued) = managed("reads-status").await;

    let routes = somebody_who_may(&scene, "patch", "routes/status").await;
    let nothing = Patch::Merge(json!({}));
    let answered = routes.patch_status("shop", &PatchParams::default(), &nothing).await;
    assert!(holds_key(&answered.expect("they may"), &issued));

    let routes = somebody_who_may(&scene, "get", "routes/status").await;
    assert!(holds_key(&routes.get_status("shop").await.expect("they may"), &issued));
}
