//! The cluster that trustplane review runs in, another one, and the built program.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::api::ApiServer;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::{Value, json};
use testkit::suite;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use tower::{Service as _, service_fn};
use trustplane::demo::{
    api_server,
    loopback::Port,
    serve::{Options, RunningApi},
};
use trustplane::runtime::clock::Clock;

/// Longer than any command takes that is not stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// As somebody wrote it.
pub const CONFIG: &str = "\
# By hand.
clusters:
  # The one that we run in.
  local:
    issuer: https://kubernetes.default.svc   # of Kubernetes itself
# Callers.
authorized_clients: [local/monitoring/*]
";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const CONFIG_MAP: &str = "/api/v1/namespaces/trustplane/configmaps/trustplane-review-config";

/// What was asked for, with everything that was sent.
#[derive(Clone)]
struct Seen {
    path: String,
    all: String,
}

/// A cluster's API server, on a loopback port.
pub struct Cluster {
    pub server: ApiServer,
    running: RunningApi,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The resource that nobody may create, as a review of access has it.
    denied: Arc<Mutex<String>>,
}

impl Cluster {
    pub async fn start() -> Self {
        let clock = Clock::system();
        let server = api_server::server(api_server::store(1000, fastrand::u64(..)), clock.clone());
        let (seen, denied): (Arc<Mutex<Vec<Seen>>>, Arc<Mutex<String>>) = Default::default();
        let front = {
            let (server, seen, denied) = (server.clone(), seen.clone(), denied.clone());
            service_fn(move |request| front(server.clone(), seen.clone(), denied.clone(), request))
        };
        let options = Options { port: Port::Exactly(0), kubeconfig: None };
        let running = RunningApi::start_for_accounts(front, options, &clock).await;
        Self { server, running: running.expect("it is served"), seen, denied }
    }

    pub fn address(&self) -> String {
        self.running.address().to_string()
    }

    /// Of an administrator.
    pub fn kubeconfig(&self) -> &str {
        self.running.kubeconfig().to_str().expect("text")
    }

    /// The CA of its API server.
    pub fn ca(&self) -> String {
        let read = kube::config::Kubeconfig::read_from(self.running.kubeconfig()).expect("one");
        let cluster = read.clusters[0].cluster.clone().expect("a cluster");
        decoded(&json!(cluster.certificate_authority_data.expect("a CA")))
    }

    pub fn get(&self, path: &str) -> Value {
        self.server.request(Method::GET, path, &Value::Null).1
    }

    /// Has one token reviewed by another.
    pub fn review(&self, by: &str, token: &str) -> (u16, Value) {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        self.server.request_as(Some(by), Method::POST, REVIEW, &review)
    }

    /// A token of an account, which is made for it.
    pub fn token_of(&self, namespace: &str, account: &str) -> String {
        self.create("/api/v1/namespaces", json!({ "metadata": { "name": namespace } }));
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.create(&accounts, json!({ "metadata": { "name": account } }));
        let request =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let path = format!("{accounts}/{account}/token");
        let (code, answer) = self.server.request(Method::POST, &path, &request);
        assert_eq!(code, 201, "{answer}");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    pub fn create(&self, path: &str, object: Value) {
        self.server.request(Method::POST, path, &object);
    }

    /// Answers reviews of access to this resource with no.
    pub fn deny(&self, resource: &str) {
        *self.denied.lock().unwrap() = resource.to_owned();
    }

    /// All that clients sent.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|it| it.all.clone()).collect()
    }

    pub fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|it| it.path.clone()).collect()
    }

    pub fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    /// Moves with every change.
    fn version(&self) -> String {
        let all = self.get("/api/v1/configmaps");
        all["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
    }
}

type Answer = Response<Either<apiserver::api::Body, Full<Bytes>>>;

/// Notes each request, and answers what the API server leaves to RBAC.
async fn front(
    mut server: ApiServer,
    seen: Arc<Mutex<Vec<Seen>>>,
    denied: Arc<Mutex<String>>,
    request: Request<Body>,
) -> Result<Answer, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("it is in memory").to_bytes();
    let token = parts.headers.get("authorization").map(|it| it.to_str().unwrap().to_owned());
    let path = parts.uri.path().to_owned();
    let all = format!("{token:?} {}", String::from_utf8_lossy(&body));
    seen.lock().unwrap().push(Seen { path: path.clone(), all: format!("{path} {all}") });
    if path != ACCESS {
        let request = Request::from_parts(parts, Body::from(body));
        return Ok(server.call(request).await?.map(Either::Left));
    }
    let token = token.as_deref().and_then(|it| it.strip_prefix("Bearer "));
    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let (code, mut answer) = server.request_as(token, Method::POST, SELF, &asked);
    if code == 201 {
        answer = serde_json::from_slice(&body).expect("JSON");
        let resource = &answer["spec"]["resourceAttributes"]["resource"];
        let is_denied = *resource == **denied.lock().unwrap();
        answer["status"] = json!({ "allowed": !is_denied });
    }
    let body = Either::Right(Full::from(answer.to_string()));
    Ok(Response::builder().status(code).body(body).expect("an answer"))
}

/// How the program ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    /// With a log that is as talkative as it can be.
    pub err: String,
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.err.lines().filter(|line| line.starts_with("error:"));
        write!(f, "code {}\n{}{}", self.code, self.out, said.collect::<Vec<_>>().join("\n"))
    }
}

impl Ran {
    /// Its output with `-o json`.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub struct Stage {
    /// The cluster that trustplane review runs in.
    pub hub: Cluster,
    pub b: Cluster,
    pub folder: tempfile::TempDir,
}

impl Stage {
    pub async fn start() -> Self {
        let (hub, b) = (Cluster::start().await, Cluster::start().await);
        hub.create("/api/v1/namespaces", json!({ "metadata": { "name": "trustplane" } }));
        let map = json!({
            "metadata": { "name": "trustplane-review-config" }, "data": { "clusters.yaml": CONFIG },
        });
        hub.create("/api/v1/namespaces/trustplane/configmaps", map);
        Self { hub, b, folder: tempfile::tempdir().expect("a folder") }
    }

    pub async fn registered() -> Self {
        let stage = Self::start().await;
        let ran = stage.run(&stage.register()).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        stage
    }

    pub fn register(&self) -> [&str; 5] {
        ["review", "register", "b", "--kubeconfig", self.b.kubeconfig()]
    }

    /// The configuration in the hub.
    pub fn config(&self) -> String {
        self.hub.get(CONFIG_MAP)["data"]["clusters.yaml"].as_str().expect("a text").to_owned()
    }

    /// The first credential for b.
    pub fn token(&self) -> String {
        let secret = self.hub.get(super::CREDENTIAL);
        decoded(&secret["data"]["token"])
    }

    /// Of the hub and of b. They move with every change.
    pub fn versions(&self) -> (String, String) {
        (self.hub.version(), self.b.version())
    }

    pub async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "").await
    }

    /// With this on its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child =
            command(Path::new(self.hub.kubeconfig()), arguments).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // It may have ended without reading.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output()).await;
        let output = output.expect("it ends").expect("it ran");
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        let ran = Ran { code: output.status.code().expect("it exits"), out, err };
        let name = format!("review-{}.log", suite::next_number());
        let text = format!("{arguments:?}\n{}\n{}", ran.out, ran.err);
        suite::write_private(&suite::subfolder("commands").join(name), &text);
        ran
    }
}

fn decoded(base64: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(base64.clone()).expect("base64");
    String::from_utf8(bytes.0).expect("text")
}

/// The program, without what the environment of the tests would tell it.
fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TRUSTPLANE_") {
            command.env_remove(variable);
        }
    }
    // As talkative as it can be: what it prints must hold no token even so.
    command.env("KUBECONFIG", kubeconfig).env("RUST_LOG", "trace").env("NO_COLOR", "1");
    command
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("https_proxy")
        .env_remove("POD_NAMESPACE");
    command.args(arguments).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
