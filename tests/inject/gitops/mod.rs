//! Routes from Git, by every way to apply them: what the manifest says is what stands, or the API
//! server refuses it and docs/gitops.md has the step that leads there.

mod tools;

use futures::future::join_all;
use serde_json::{Value, json};
use testkit::{Pair, RouteFixture, SecretFixture, eventually, eventually_equals, pair};
use trustplane::names::{
    FIELD_MANAGER, INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION,
};

use crate::scene::{PATIENCE, Scene};
use tools::Tool;

const MANUAL: &str = include_str!("../../../docs/gitops.md");

/// The block of this language in the manual that contains this.
fn shown(language: &str, part: &str) -> &'static str {
    let blocks = MANUAL.split(&format!("```{language}\n")).skip(1).collect::<Vec<_>>();
    let mut found =
        blocks.iter().filter_map(|rest| rest.split("```").next()).filter(|it| it.contains(part));
    let block = found.next().unwrap_or_else(|| panic!("no {language} with {part}"));
    assert!(found.next().is_none(), "several blocks have {part}");
    block
}

/// Prints the mark of an injected certificate, and nothing where there is none.
fn see_that_it_is_gone() -> &'static str {
    shown("sh", "get route shop")
}

/// Removes annotation, certificate and key at once.
fn remove_all_at_once() -> &'static str {
    shown("sh", "--type=merge")
}

/// Removes what server-side apply leaves of `spec.tls`.
fn remove_tls() -> &'static str {
    shown("sh", "--type=json")
}

/// One Route of one tool.
struct Story<'a> {
    scene: &'a Scene,
    tool: Tool,
    /// Of the Route and of its Secret.
    name: &'static str,
    /// The first pair in the Secret.
    first: Pair,
}

/// Tells a story for each tool, all at the same time in one namespace.
async fn with_each_tool(prefix: &str, story: impl AsyncFn(Story<'_>)) {
    let scene = &Scene::new(prefix).await;
    join_all(Tool::ALL.map(|tool| story(Story::of(scene, tool)))).await;
}

impl<'a> Story<'a> {
    fn of(scene: &'a Scene, tool: Tool) -> Self {
        let name = tool.name();
        Self { scene, tool, name, first: pair::issued(&format!("{name}.example.com")) }
    }

    fn edge(&self) -> RouteFixture {
        RouteFixture::edge(self.name)
    }

    fn annotated(&self) -> RouteFixture {
        self.edge().annotated(self.name)
    }

    async fn live(&self) -> Value {
        self.scene.ns.route(self.name).await
    }

    async fn apply(&self, manifest: &RouteFixture) {
        let applied = self.tool.apply(&self.scene.ns, manifest.json()).await;
        applied.unwrap_or_else(|why| panic!("{:?}: {why}", self.tool));
    }

    /// Applies what stands already, and insists that nothing becomes of it.
    async fn apply_again(&self, manifest: &RouteFixture) {
        let before = self.live().await["metadata"]["resourceVersion"].take();
        self.apply(manifest).await;
        let after = self.live().await["metadata"]["resourceVersion"].take();
        assert_eq!(after, before, "{:?} changed something", self.tool);
        self.shows_no_difference(manifest).await;
    }

    async fn shows_no_difference(&self, manifest: &RouteFixture) {
        if self.tool != Tool::Helm {
            let difference = self.tool.diff(&self.scene.ns, manifest.json()).await;
            assert!(difference.is_ok_and(|shown| shown.is_empty()), "{:?} differs", self.tool);
        }
    }

    /// Applies what is refused, and insists that nothing becomes of it.
    async fn is_refused(&self, manifest: &RouteFixture, because: &str) {
        let before = self.live().await["metadata"]["resourceVersion"].take();
        let refusal = self.tool.apply(&self.scene.ns, manifest.json()).await;
        let refusal = refusal.expect_err("the API server refuses it");
        assert!(refusal.contains(because), "{:?}: {refusal}", self.tool);
        assert_eq!(self.live().await["metadata"]["resourceVersion"], before, "{:?}", self.tool);
    }

    async fn says(&self, state: &str, reason: &str) {
        let state = (state != "none").then(|| state.to_owned());
        let expected = Some((state, reason.to_owned()));
        eventually_equals(PATIENCE, self.name, expected, async || {
            self.scene.ns.certificate_condition(self.name).await
        })
        .await;
    }

    /// From nothing to a Route that holds the Secret's pair.
    async fn is_managed(&self) {
        SecretFixture::tls(self.name, &self.first).create(&self.scene.ns).await;
        self.apply(&self.annotated()).await;
        self.holds(&self.first).await;
    }

    async fn holds(&self, pair: &Pair) {
        self.scene.holds(self.name, pair).await;
        self.says("Managed", "SecretInjected").await;
    }

    /// Waits until the Route is what the manifest says, and nothing else is in `spec.tls`.
    async fn until_as_in(&self, manifest: &RouteFixture) {
        let what = format!("{}: what the manifest says", self.name);
        eventually(PATIENCE, &what, async || {
            let live = self.live().await;
            let annotations = &live["metadata"]["annotations"];
            let left = [SECRET_NAME_ANNOTATION, INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION]
                .iter()
                .any(|name| annotations[name].is_string());
            let same = live["spec"]["tls"] == manifest.json()["spec"]["tls"];
            if same && !left { Ok(()) } else { Err(fields_of(&live["spec"]["tls"])) }
        })
        .await;
    }

    /// Runs what the manual shows, for this Route.
    async fn run(&self, commands: &str) -> String {
        let ours = commands
            .replace("-n shop", &format!("-n {}", self.scene.ns.name()))
            .replace("route shop", &format!("route {}", self.name));
        self.scene.ns.cluster().shell(&ours).await
    }

    /// As the manual says: first the annotation goes, and then certificate and key do.
    async fn remove_the_annotation_and_wait(&self) {
        self.apply(&self.edge()).await;
        eventually(PATIENCE, "the manual's command prints nothing", async || {
            let printed = self.run(see_that_it_is_gone()).await;
            if printed.is_empty() { Ok(()) } else { Err(printed) }
        })
        .await;
        self.until_as_in(&self.edge()).await;
    }
}

/// Names only: values may be a key.
fn fields_of(tls: &Value) -> Vec<String> {
    tls.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
}

#[tokio::test]
async fn what_was_injected_stays_however_often_a_tool_applies_the_same() {
    with_each_tool("git-renew", async |story| {
        story.apply(&story.edge()).await;
        story.says("Default", "NoCertificate").await;
        story.is_managed().await;
        story.apply_again(&story.annotated()).await;

        let renewed = pair::issued(&format!("{}.example.com", story.name));
        SecretFixture::tls(story.name, &renewed).replace(&story.scene.ns).await;
        story.holds(&renewed).await;
        story.apply_again(&story.annotated()).await;

        story.remove_the_annotation_and_wait().await;
        story.says("Default", "NoCertificate").await;
        story.apply_again(&story.edge()).await;
    })
    .await;
}

/// From edge to `target` and back, by the manual's order and by the other.
async fn goes_there_and_back(
    story: &Story<'_>,
    target: &RouteFixture,
    (state, reason): (&str, &str),
    because: &str,
) {
    story.is_managed().await;

    // At once: with the annotation gone, and with the annotation still there.
    story.is_refused(target, because).await;
    story.is_refused(&target.clone().annotated(story.name), because).await;
    story.holds(&story.first).await;

    story.remove_the_annotation_and_wait().await;
    story.apply(target).await;
    story.until_as_in(target).await;
    story.says(state, reason).await;
    story.apply_again(target).await;

    story.apply(&story.annotated()).await;
    story.holds(&story.first).await;

    // Git has both changes in one commit already.
    story.is_refused(target, because).await;
    let printed = story.run(remove_all_at_once()).await;
    assert!(printed.ends_with(" patched\n"), "{printed}");
    story.apply(target).await;
    story.until_as_in(target).await;

    story.apply(&story.annotated()).await;
    story.holds(&story.first).await;
}

#[tokio::test]
async fn from_edge_to_passthrough_it_is_refused_until_certificate_and_key_are_gone() {
    with_each_tool("git-passthrough", async |story| {
        let target = RouteFixture::passthrough(story.name);
        let says = ("none", "PassthroughTermination");
        goes_there_and_back(&story, &target, says, "with termination passthrough").await;
    })
    .await;
}

#[tokio::test]
async fn from_edge_to_an_external_certificate_it_is_refused_until_certificate_and_key_are_gone() {
    with_each_tool("git-external", async |story| {
        let target = story.edge().external_certificate("external");
        let says = ("Custom", "ExternalCertificate");
        let because = "certificate and externalCertificate exclude each other";
        goes_there_and_back(&story, &target, says, because).await;
    })
    .await;
}

#[tokio::test]
async fn from_edge_to_no_tls_the_manuals_order_leads_there_and_back() {
    with_each_tool("git-no-tls", async |story| {
        let target = RouteFixture::insecure(story.name);
        story.is_managed().await;

        story.remove_the_annotation_and_wait().await;
        story.apply(&target).await;
        story.until_as_in(&target).await;
        story.says("none", "RouteNotSecured").await;
        story.apply_again(&target).await;

        story.apply(&story.annotated()).await;
        story.holds(&story.first).await;
    })
    .await;
}

#[tokio::test]
async fn from_edge_to_no_tls_at_once_server_side_apply_leaves_edge_and_the_manual_removes_it() {
    with_each_tool("git-no-tls-at-once", async |story| {
        let target = RouteFixture::insecure(story.name);
        story.is_managed().await;

        story.apply(&target).await;

        if story.tool.is_server_side() {
            // The API puts it where `spec.tls` is, and certificate and key were in there. TLS is
            // never switched off by us, and the tool sees nothing to do.
            story.until_as_in(&story.edge()).await;
            story.says("Default", "NoCertificate").await;
            story.shows_no_difference(&target).await;
            let printed = story.run(remove_tls()).await;
            assert!(printed.ends_with(" patched\n"), "{printed}");
        }
        story.until_as_in(&target).await;
        story.says("none", "RouteNotSecured").await;
        story.apply_again(&target).await;

        story.apply(&story.annotated()).await;
        story.holds(&story.first).await;
    })
    .await;
}

/// Fields that the manual tells Argo CD to ignore.
fn ignored() -> (Vec<String>, Value) {
    let application: Value =
        serde_saphyr::from_str(shown("yaml", "ignoreDifferences")).expect("YAML");
    let spec = &application["spec"];
    let options = &spec["syncPolicy"]["syncOptions"];
    assert_eq!(options, &json!(["ServerSideApply=true", "RespectIgnoreDifferences=true"]));
    let mut rule = spec["ignoreDifferences"][0].clone();
    let pointers = rule["jsonPointers"].take();
    let pointers = serde_json::from_value(pointers).expect("a list of JSON pointers");
    (pointers, rule)
}

fn step(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

/// What Argo CD applies with `RespectIgnoreDifferences=true`: ignored fields as they are in the
/// cluster, whatever Git says.
fn respecting_ignored(manifest: &RouteFixture, live: &Value) -> Value {
    let mut manifest = manifest.json().clone();
    for pointer in ignored().0 {
        let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
        match live.pointer(&pointer) {
            Some(value) => {
                let steps = pointer.split('/').skip(1).map(step);
                *steps.fold(&mut manifest, |place, field| &mut place[field]) = value.clone();
            }
            None => {
                let parent = manifest.pointer_mut(parent).and_then(Value::as_object_mut);
                parent.map(|fields| fields.remove(&step(field)));
            }
        }
    }
    manifest
}

#[tokio::test]
async fn the_fields_that_argo_cd_is_told_to_ignore_are_those_that_we_write() {
    let scene = Scene::new("git-ignored").await;
    let story = Story::of(&scene, Tool::ArgoCdServerSide);
    story.is_managed().await;
    let live = story.live().await;

    let managers = live["metadata"]["managedFields"].as_array().expect("a list").iter();
    let mut ours = managers
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["subresource"].is_null());
    let fields = &ours.next().expect("we wrote something")["fieldsV1"];
    assert!(ours.next().is_none(), "one kind of write");
    let mut written = Vec::new();
    collect_fields(fields, String::new(), &mut written);

    let (mut pointers, rule) = ignored();
    pointers.sort();
    written.sort();
    assert_eq!(written, pointers);
    assert_eq!(rule["managedFieldsManagers"], json!([FIELD_MANAGER]));
    assert_eq!((&rule["group"], &rule["kind"]), (&json!("route.openshift.io"), &json!("Route")));
}

/// The leaves of a field set, as JSON pointers.
fn collect_fields(fields: &Value, place: String, found: &mut Vec<String>) {
    let mut steps = fields.as_object().expect("a field set").iter().peekable();
    if steps.peek().is_none() {
        found.push(place.clone());
    }
    for (name, inside) in steps {
        let Some(name) = name.strip_prefix("f:") else { continue };
        let name = name.replace('~', "~0").replace('/', "~1");
        collect_fields(inside, format!("{place}/{name}"), found);
    }
}

/// A chart, say, that has empty strings for certificate and key.
#[tokio::test]
async fn with_what_argo_cd_is_told_to_ignore_even_a_manifest_with_these_fields_changes_nothing() {
    let scene = Scene::new("git-respects").await;
    let story = Story::of(&scene, Tool::ArgoCdServerSide);
    let empty = |route: RouteFixture| {
        route.with("/spec/tls/certificate", json!("")).with("/spec/tls/key", json!(""))
    };
    let sync = async |manifest: &RouteFixture| {
        let manifest = respecting_ignored(manifest, &story.live().await);
        story.tool.apply(&scene.ns, &manifest).await.expect("it is accepted");
    };
    SecretFixture::tls(story.name, &story.first).create(&scene.ns).await;
    story.apply(&empty(story.annotated())).await;
    story.holds(&story.first).await;

    sync(&empty(story.annotated())).await;
    story.holds(&story.first).await;
    let renewed = pair::issued("renewed.example.com");
    SecretFixture::tls(story.name, &renewed).replace(&scene.ns).await;
    story.holds(&renewed).await;
    sync(&empty(story.annotated())).await;
    story.holds(&renewed).await;

    // They are ours, whoever applied them last, and go with the annotation.
    sync(&empty(story.edge())).await;
    story.until_as_in(&story.edge()).await;
    sync(&empty(story.edge())).await;
    story.until_as_in(&story.edge()).await;
}

/// Why the manual wants `ServerSideApply=true` there.
#[tokio::test]
async fn without_server_side_apply_what_argo_cd_ignores_is_copied_into_an_annotation() {
    let scene = Scene::new("git-copies").await;
    let story = Story::of(&scene, Tool::ArgoCd);
    story.is_managed().await;
    let is_copied = async || {
        let live = story.live().await;
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let applied = live["metadata"]["annotations"][applied].as_str().expect("kubectl's note");
        let applied: Value = serde_json::from_str(applied).expect("JSON");
        applied["spec"]["tls"]["key"] == json!(story.first.key)
    };
    assert!(!is_copied().await);

    let manifest = respecting_ignored(&story.annotated(), &story.live().await);
    story.tool.apply(&scene.ns, &manifest).await.expect("it is accepted");

    assert!(is_copied().await);
}
