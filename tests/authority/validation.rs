//! The CRDs of the authority. Every rule with words of its own is found by walking the schema, and some object
//! here must break it: a new rule fails the test until there is one. The sandbox judges as the real API server
//! does.

use std::collections::BTreeSet;

use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testkit::{Cluster, TestServer, at, tools::text_of};
use tokio::sync::OnceCell;

const GROUP: &str = "trustplane.dev";
const RULES: &str = "x-kubernetes-validations";

/// Makes two tests of each case.
macro_rules! on_both {
    ($($case:ident,)+) => {
        mod real {
            $(#[tokio::test] async fn $case() {
                super::$case(super::real_server().await).await;
            })+
        }
        mod sandbox {
            $(#[tokio::test] async fn $case() {
                super::$case(testkit::TestServer::sandbox().await).await;
            })+
        }
    };
}

on_both! {
    every_rule_for_join_tokens_refuses_an_object_with_its_own_words,
    every_rule_for_federations_refuses_an_object_with_its_own_words,
    what_lies_on_a_bound_of_a_join_token_is_accepted_and_what_lies_beyond_is_refused_by_its_name,
}

async fn real_server() -> TestServer {
    static SERVED: OnceCell<()> = OnceCell::const_new();
    let server = TestServer::real().await;
    if let TestServer::Real(cluster) = &server {
        SERVED.get_or_init(|| install(cluster)).await;
    }
    server
}

async fn install(cluster: &Cluster) {
    let folder = at("crds/spiffe").display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", &folder]).await;
    applied.expect("the CRDs are accepted");
    let crds = ["crd/jointokens.trustplane.dev", "crd/spiffefederations.trustplane.dev"];
    let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
    cluster.kubectl(&[&wait[..], &crds].concat()).await.expect("they are served");
}

/// Objects that break a rule.
enum Breach {
    New(Value),
    /// What is there, and what it may not become.
    Change(Value, Value),
}

use Breach::{Change, New};

struct Kind {
    api: Api<DynamicObject>,
}

impl Kind {
    async fn on(server: &TestServer, kind: &str, plural: &str) -> Self {
        let kind = GroupVersionKind::gvk(GROUP, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Self { api: Api::all_with(server.admin().await, &resource) }
    }

    async fn would_create(&self, object: &Value) -> Result<(), String> {
        answer(self.api.create(&dry(), &typed(object)).await)
    }

    async fn refusal(&self, breach: &Breach) -> Result<(), String> {
        let (before, after) = match breach {
            New(object) => return self.would_create(object).await,
            Change(before, after) => (before, after),
        };
        let created = self.api.create(&PostParams::default(), &typed(before)).await;
        let created = created.expect("it is accepted");
        let mut object = typed(after);
        object.meta_mut().resource_version = created.resource_version();
        let outcome = answer(self.api.replace(&created.name_any(), &dry(), &object).await);
        self.api.delete(&created.name_any(), &DeleteParams::default()).await.expect("it goes");
        outcome
    }
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn typed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("an object")
}

fn answer(outcome: kube::Result<DynamicObject>) -> Result<(), String> {
    match outcome {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("no answer: {error}"),
    }
}

fn schema(file: &str) -> Value {
    let crd: Value = serde_saphyr::from_str(&text_of(file)).expect("the CRD is YAML");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// The messages of all rules below a schema, and their number: rules of two fields may share one.
fn messages(schema: &Value) -> (usize, BTreeSet<String>) {
    let (mut count, mut found) = (0, BTreeSet::new());
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                for rule in value[RULES].as_array().into_iter().flatten() {
                    count += 1;
                    let words = rule["message"].as_str().expect("each rule has words of its own");
                    found.insert(words.to_owned());
                }
                open.extend(fields.iter().filter(|(name, _)| *name != RULES).map(|(_, it)| it));
            }
            Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
    (count, found)
}

/// Each object is refused with the words of a rule, and each rule refuses an object.
async fn all_are_broken(kind: &Kind, file: &str, good: &[Value], breaches: &[Breach]) {
    for object in good {
        kind.would_create(object).await.unwrap_or_else(|why| panic!("refused: {object}\n{why}"));
    }
    let (count, mut unbroken) = messages(&schema(file));
    assert!(count > 0 && !unbroken.is_empty());
    let all = unbroken.clone();
    for breach in breaches {
        let (New(object) | Change(_, object)) = breach;
        let why = kind.refusal(breach).await.expect_err(&object.to_string());
        let told: Vec<_> = all.iter().filter(|words| why.contains(*words)).collect();
        assert!(!told.is_empty(), "{object} is refused without the words of a rule: {why}");
        unbroken.retain(|words| !told.contains(&words));
    }
    println!("{file}: {count} rules, {} objects that break them", breaches.len());
    assert!(unbroken.is_empty(), "add an object that breaks: {unbroken:#?}");
}

fn join_token(spec: Value) -> Value {
    json!({
        "apiVersion": "trustplane.dev/v1", "kind": "JoinToken",
        "metadata": { "name": "rules" }, "spec": spec,
    })
}

/// A token for agents, with this rule.
fn allowing(pattern: &str) -> Value {
    join_token(json!({
        "roles": ["Agent"], "joinMethod": "spiffe",
        "spiffe": { "allow": [{ "spiffeID": pattern }] },
    }))
}

fn agent() -> Value {
    allowing("spiffe://td-b.test/ci/*")
}

fn bot(name: &str) -> Value {
    with(with(agent(), "/spec/roles", json!(["Bot"])), "/spec/botName", json!(name))
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let place = pointer.split('/').skip(1).fold(&mut object, |place, name| &mut place[name]);
    *place = value;
    object
}

async fn every_rule_for_join_tokens_refuses_an_object_with_its_own_words(server: TestServer) {
    let kind = Kind::on(&server, "JoinToken", "jointokens").await;
    let both = with(bot("deploy"), "/spec/roles", json!(["Bot", "Agent"]));
    let good = [
        agent(),
        bot("deploy"),
        bot("..."),
        both,
        allowing("spiffe://td-b.test/**"),
        allowing("spiffe://td-b.test/a/b*c*/x"),
        allowing("spiffe://td_b.test/.*/..."),
    ];
    let mut breaches = vec![
        New(with(agent(), "/spec/roles", json!(["Bot"]))),
        New(with(agent(), "/spec/botName", json!("deploy"))),
    ];
    breaches.extend(["a/b", ".", "..", "a b", "ä", "a%2e", "*"].map(|name| New(bot(name))));
    let patterns = [
        "spiffe://td-b.test",
        "spiffe://td-b.test/",
        "spiffe://td-b.test//a",
        "spiffe://TD-b.test/a",
        "td-b.test/a",
        "https://td-b.test/a",
        "spiffe://td-b.test/a?b",
        "spiffe://td-b.test/%2e",
        "spiffe://*/a",
        "spiffe://*.test/a",
        "spiffe://td-b.test/../a",
        "spiffe://td-b.test/a/.",
        "spiffe://td-b.test/**/a",
        "spiffe://td-b.test/a**",
        "spiffe://td-b.test/***",
        "spiffe://td-b.test/a/**b",
    ];
    breaches.extend(patterns.map(|pattern| New(allowing(pattern))));
    breaches.push(New(allowing(&format!("spiffe://{}/a", "a".repeat(256)))));
    let file = "crds/spiffe/trustplane.dev_jointokens.yaml";
    all_are_broken(&kind, file, &good, &breaches).await;
}

fn federation(source: Value) -> Value {
    json!({
        "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation",
        "metadata": { "name": "td-rules.test" }, "spec": { "bundleSource": source },
    })
}

fn web(field: &str, value: Value) -> Value {
    let source = json!({ "bundleEndpointURL": "https://td-rules.test/" });
    federation(json!({ "httpsWeb": with(source, &format!("/{field}"), value) }))
}

fn spiffe(field: &str, value: Value) -> Value {
    let source = json!({
        "bundleEndpointURL": "https://td-rules.test/",
        "endpointSPIFFEID": "spiffe://td-rules.test/server",
        "bundleBootstrap": "{}",
    });
    federation(json!({ "httpsSPIFFE": with(source, &format!("/{field}"), value) }))
}

async fn every_rule_for_federations_refuses_an_object_with_its_own_words(server: TestServer) {
    let kind = Kind::on(&server, "SPIFFEFederation", "spiffefederations").await;
    let fixed = federation(json!({ "static": { "bundle": "{}" } }));
    let named = |name: &str| with(fixed.clone(), "/spec/trustDomain", json!(name));
    let pem = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let key = format!("{pem}-----BEGIN PRIVATE KEY-----\n");
    let elsewhere = federation(json!({ "httpsSPIFFE": {
        "bundleEndpointURL": "https://td-c.test/", "endpointSPIFFEID": "spiffe://td-c.test/server",
    } }));
    let unproven = federation(json!({ "httpsSPIFFE": {
        "bundleEndpointURL": "https://td-rules.test/",
        "endpointSPIFFEID": "spiffe://td-rules.test/server",
    } }));
    let good = [
        fixed.clone(),
        named("under_score"),
        elsewhere,
        web("pins", json!(["a".repeat(64)])),
        web("caBundle", json!(pem)),
        web("bundleEndpointURL", json!("https://td-rules.test:8443/b?c")),
        spiffe("endpointSPIFFEID", json!("spiffe://td-rules.test/a/...")),
    ];
    let two = json!({
        "static": { "bundle": "{}" },
        "httpsWeb": { "bundleEndpointURL": "https://td-rules.test/" },
    });
    let mut breaches = vec![
        New(unproven),
        New(named("TD.test")),
        New(named("spiffe://td.test")),
        Change(fixed.clone(), named("other.test")),
        Change(named("other.test"), fixed.clone()),
        Change(named("other.test"), named("third.test")),
        New(federation(json!({}))),
        New(federation(two)),
        New(web("caBundle", json!("certificate"))),
        New(web("caBundle", json!(key))),
        New(web("pins", json!(["A".repeat(64)]))),
        New(web("pins", json!(["a".repeat(63)]))),
        New(spiffe("endpointSPIFFEID", json!("spiffe://td-rules.test"))),
        New(spiffe("endpointSPIFFEID", json!("spiffe://TD-rules.test/a"))),
        New(spiffe("endpointSPIFFEID", json!("spiffe://td-rules.test/../a"))),
    ];
    let urls = [
        "http://td-rules.test/",
        "https:///a",
        "https://bücher.test/",
        "https://me:pw@td-rules.test/",
        "https://td-rules.test:0/",
        "https://td-rules.test:65536/",
        "https://td-rules.test/#a",
    ];
    for url in urls {
        breaches.push(New(web("bundleEndpointURL", json!(url))));
        breaches.push(New(spiffe("bundleEndpointURL", json!(url))));
    }
    let file = "crds/spiffe/trustplane.dev_spiffefederations.yaml";
    all_are_broken(&kind, file, &good, &breaches).await;
}

/// So many rules, each for another ID.
fn rules(count: usize) -> Value {
    (0..count).map(|number| json!({ "spiffeID": format!("spiffe://td-b.test/{number}") })).collect()
}

async fn what_lies_on_a_bound_of_a_join_token_is_accepted_and_what_lies_beyond_is_refused_by_its_name(
    server: TestServer,
) {
    let kind = Kind::on(&server, "JoinToken", "jointokens").await;
    let field = |name: &str, value: Value| with(agent(), &format!("/spec/{name}"), value);
    // As long as it may be, the trust domain with the 255 bytes that SPIFFE allows.
    let id = |domain: usize, whole: usize| {
        let start = format!("spiffe://{}/", "a".repeat(domain));
        json!([{ "spiffeID": format!("{start}{}", "a".repeat(whole - start.len())) }])
    };
    let accepted = [
        field("spiffe/allow", rules(64)),
        field("spiffe/allow", id(255, 2048)),
        field("maxUses", json!(1)),
        field("maxUses", json!(1000)),
        field("expires", json!("2030-06-15T12:00:00Z")),
        bot(&"a".repeat(255)),
    ];
    for object in accepted {
        kind.would_create(&object).await.unwrap_or_else(|why| panic!("{object}\n{why}"));
    }
    let twice = json!([{ "spiffeID": "spiffe://a.test/a" }, { "spiffeID": "spiffe://a.test/a" }]);
    let beyond = [
        (field("roles", json!([])), "spec.roles"),
        (field("roles", json!(["Agent", "Agent"])), "spec.roles[1]"),
        (field("roles", json!(["Node"])), "spec.roles[0]"),
        (field("joinMethod", json!("token")), "spec.joinMethod"),
        (field("spiffe/allow", json!([])), "spec.spiffe.allow"),
        (field("spiffe/allow", rules(65)), "spec.spiffe.allow"),
        (field("spiffe/allow", twice), "spec.spiffe.allow[1]"),
        (field("spiffe/allow", json!([{}])), "spec.spiffe.allow[0].spiffeID"),
        (field("spiffe/allow", id(256, 2048)), "spec.spiffe.allow[0].spiffeID"),
        (field("spiffe/allow", id(255, 2049)), "spec.spiffe.allow[0].spiffeID"),
        (field("maxUses", json!(0)), "spec.maxUses"),
        (field("maxUses", json!(1001)), "spec.maxUses"),
        (field("expires", json!("tomorrow")), "spec.expires"),
        (bot(""), "spec.botName"),
        (bot(&"a".repeat(256)), "spec.botName"),
    ];
    for (object, name) in beyond {
        let why = kind.would_create(&object).await.expect_err(name);
        assert!(why.contains(name), "{object}\n{why}");
    }
    for missing in ["roles", "joinMethod", "spiffe"] {
        let mut object = agent();
        object["spec"].as_object_mut().expect("a spec").remove(missing);
        let why = kind.would_create(&object).await.expect_err(missing);
        assert!(why.contains(&format!("spec.{missing}: Required value")), "{why}");
    }
}
