//! What a caller did wrong is told as kube-apiserver tells it: the same request goes to both.

use http::{Method, Request};
use serde_json::{Value, json};
use testkit::{
    Access,
    review::{RawAnswer, ask},
};

use super::stage::{Stage, until_allowed};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const LIMIT: usize = 3 * 1024 * 1024;

struct Case {
    name: &'static str,
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

impl Case {
    fn post(name: &'static str, body: &Value) -> Self {
        Self {
            name,
            method: Method::POST,
            path: PATH.to_owned(),
            headers: vec![("content-type", "application/json")],
            body: body.to_string().into_bytes(),
        }
    }

    fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// Another path, or parameters.
    fn path(self, path: &str) -> Self {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{PATH}?{path}") };
        Self { path, ..self }
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value));
        self
    }

    fn without_content_type(self) -> Self {
        Self { headers: Vec::new(), ..self }
    }

    fn body(self, body: &str) -> Self {
        Self { body: body.as_bytes().to_vec(), ..self }
    }

    async fn ask(&self, server: &Access) -> RawAnswer {
        let request = Request::builder().method(self.method.clone()).uri(&self.path);
        let request = self
            .headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = ask(server, request.body(self.body.clone()).expect("a request")).await;
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// What clients go by.
#[derive(Debug, PartialEq)]
struct Answered {
    code: u16,
    kind: String,
    reason: String,
    warnings: Vec<String>,
}

fn answered(answer: &RawAnswer) -> Answered {
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let warnings = answer.headers.get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned());
    Answered {
        code: answer.code,
        kind: text("kind"),
        reason: text("reason"),
        warnings: warnings.collect(),
    }
}

/// Asks both as the same caller, and compares.
async fn told_alike(cases: Vec<Case>, caller: &str) {
    let stage = Stage::get().await;
    let theirs = stage.a.admin().with_token(caller.to_owned());
    compare(&cases, &stage.product.address.access(caller), &theirs).await;
}

async fn compare(cases: &[Case], ours: &Access, theirs: &Access) {
    let mut differences = Vec::new();
    for case in cases {
        let (ours, theirs) = tokio::join!(case.ask(ours), case.ask(theirs));
        let (we, they) = (answered(&ours), answered(&theirs));
        if we != they {
            differences.push(format!("{}: ours {we:?}, kube-apiserver's {they:?}", case.name));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// The caller of both, who may create TokenReviews in A, too.
async fn caller() -> &'static str {
    let stage = Stage::get().await;
    let bind = json!({
        "metadata": { "name": "callers-may-review" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "callers", "name": "reviewer" }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    // Another test may have been faster.
    let _ = stage.a.call("POST", path, Some(&bind)).await;
    let attributes = json!({ "resourceAttributes": {
        "verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews",
    } });
    until_allowed(&stage.a, "system:serviceaccount:callers:reviewer", &attributes).await;
    &stage.caller
}

fn review() -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": "no.such.token" },
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut review = review();
    review[name] = value;
    review
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_without_a_token_is_refused_in_kubernetes_words() {
    let stage = Stage::get().await;
    let caller = caller().await;
    let specs = [json!({}), json!(null), json!({ "token": "" }), json!({ "token": null })];
    for spec in specs {
        let case = Case::post("no token", &with("spec", spec));
        let ours = case.ask(&stage.product.address.access(caller)).await;
        let theirs = case.ask(&stage.a.admin().with_token(caller.to_owned())).await;
        assert_eq!((ours.code, ours.json()), (theirs.code, theirs.json()));
        assert_eq!(ours.code, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_body_is_refused_as_by_kube_apiserver() {
    let post = || Case::post("", &review());
    let named = |name, case: Case| Case { name, ..case };
    let too_long = "a".repeat(LIMIT);
    let cases = vec![
        named("broken JSON", post().body("{\"spec\":")),
        named("not JSON at all", post().body("token")),
        named("an empty body", post().body("")),
        named("a list", post().body("[]")),
        Case::post("another kind", &with("kind", json!("SubjectAccessReview"))),
        Case::post("another version", &with("apiVersion", json!("authentication.k8s.io/v1beta1"))),
        Case::post("another group", &with("apiVersion", json!("v1"))),
        Case::post("spec is a list", &with("spec", json!([]))),
        Case::post("spec is a text", &with("spec", json!("token"))),
        Case::post("the token is a number", &with("spec", json!({ "token": 7 }))),
        Case::post("audiences is a text", &with("spec", json!({ "token": "t", "audiences": "a" }))),
        Case::post("metadata is a list", &with("metadata", json!([]))),
        Case::post("too long", &with("spec", json!({ "token": too_long }))),
        Case::post("neither kind nor version", &json!({ "spec": { "token": "t" } })),
        Case::post("no version", &json!({ "kind": "TokenReview", "spec": { "token": "t" } })),
        Case::post(
            "no kind",
            &json!({ "apiVersion": "authentication.k8s.io/v1", "spec": { "token": "t" } }),
        ),
    ];
    told_alike(cases, caller().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_and_paths_that_a_review_does_not_have_are_refused_as_by_kube_apiserver() {
    let post = |name| Case::post(name, &review());
    let cases = vec![
        post("GET").method(Method::GET),
        post("PUT").method(Method::PUT),
        post("PATCH").method(Method::PATCH),
        post("DELETE").method(Method::DELETE),
        post("a named one").path(&format!("{PATH}/one")),
        post("GET of a named one").path(&format!("{PATH}/one")).method(Method::GET),
        post("in a namespace")
            .path("/apis/authentication.k8s.io/v1/namespaces/default/tokenreviews"),
        post("an older version").path("/apis/authentication.k8s.io/v1beta1/tokenreviews"),
        post("another resource").path("/apis/authentication.k8s.io/v1/nosuchreviews"),
        // Of another group, kube-apiserver says "404 page not found" in plain text, and we say it in a Status.
    ];
    let stage = Stage::get().await;
    // Who may do anything there: others are forbidden what does not exist.
    let ours = stage.product.address.access(&stage.caller);
    compare(&cases, &ours, stage.a.admin()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_types_are_taken_and_refused_as_by_kube_apiserver() {
    let post = |name| Case::post(name, &review());
    let yaml = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: t}\n";
    let cases = vec![
        post("a form").header("content-type", "application/x-www-form-urlencoded"),
        post("CBOR").header("content-type", "application/cbor"),
        post("XML").header("content-type", "application/xml"),
        post("text").header("content-type", "text/plain"),
        post("a charset").header("content-type", "application/json; charset=utf-8"),
        post("no type").without_content_type(),
        post("YAML").header("content-type", "application/yaml").body(yaml),
        post("XML is asked for").header("accept", "application/xml"),
        post("CBOR or XML is asked for").header("accept", "application/cbor, application/xml"),
        post("XML or JSON is asked for").header("accept", "application/xml, application/json"),
        post("anything is asked for").header("accept", "*/*"),
    ];
    told_alike(cases, caller().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_taken_and_refused_as_by_kube_apiserver() {
    let mut unknown = review();
    unknown["spec"]["colour"] = json!("red");
    let of_unknown = |name, parameters: &str| Case::post(name, &unknown).path(parameters);
    let post = |name, parameters: &str| Case::post(name, &review()).path(parameters);
    let cases = vec![
        Case::post("an unknown field", &unknown),
        of_unknown("strict", "fieldValidation=Strict"),
        of_unknown("warned of", "fieldValidation=Warn"),
        of_unknown("ignored", "fieldValidation=Ignore"),
        of_unknown("an unknown validation", "fieldValidation=Loose"),
        post("a dry run", "dryRun=All"),
        post("an unknown dry run", "dryRun=x"),
        post("a short time", "timeout=5s"),
        post("no time", "timeout=0"),
        post("no number", "timeout=abc"),
        post("a number alone", "timeout=5"),
        post("pretty", "pretty=true"),
        post("an unknown parameter", "colour=red"),
    ];
    told_alike(cases, caller().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_is_unknown_gets_401_and_one_that_may_not_ask_403_as_from_kube_apiserver() {
    let stage = Stage::get().await;
    caller().await;
    let post = |name| Case::post(name, &review());
    told_alike(vec![post("an unknown caller")], "no.such.token").await;
    let account = stage.a.account("not-callers", "reviewer").await;
    let token = stage.a.token(&account).await;
    told_alike(vec![post("a caller without the right")], &token).await;
    // Kubernetes' words, too.
    let [ours, theirs] = [stage.product.address.access(&token), stage.a.admin().with_token(token)];
    let case = post("a caller without the right");
    let [ours, theirs] = [case.ask(&ours).await.json(), case.ask(&theirs).await.json()];
    assert_eq!(ours["message"], theirs["message"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_request_in_the_audit_log_is_the_callers() {
    let stage = Stage::get().await;
    let account = stage.b.account("audit-id", "app").await;
    let token = stage.b.token(&account).await;
    let body = json!({ "spec": { "token": token } });
    let case = Case::post("with an ID", &body).header("audit-id", "f00d-7");
    let answer = case.ask(&stage.product.address.access(&stage.caller)).await;
    assert_eq!(answer.headers["audit-id"], "f00d-7");
    let asked = |log: &std::path::Path| {
        let text = std::fs::read_to_string(log).expect("an audit log");
        text.lines().any(|line| line.contains("\"auditID\":\"f00d-7\""))
    };
    assert!(asked(&stage.b.audit_log().await));
    assert!(!asked(&stage.c.audit_log().await));
}
