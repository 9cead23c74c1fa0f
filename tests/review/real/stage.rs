//! The servers that all tests share, and what is installed on them.

use std::{io, sync::OnceLock, time::Duration};

use serde_json::{Value, json};
use testkit::{
    Access, at, eventually,
    review::{
        Account, Address, Etcd, KeyKind, Member, Options, Product, Profile, RawAnswer, SigningKey,
        TokenOrder,
    },
    suite,
};
use tokio::runtime::Runtime;

/// Of A and B: what most clusters call themselves.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
pub const SOON: Duration = Duration::from_secs(60);
/// By its certificate, D is this user of A.
const WEBHOOK_USER: &str = "webhook-of-d";
const NAMESPACE: &str = "trustplane";
/// Shorter than `token_duration`, so that it is not renewed.
const CREDENTIAL_SECONDS: u64 = 160 * 3600;

static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();

pub struct Stage {
    pub etcd: Etcd,
    /// The local cluster. Its users keep their names. RSA.
    pub a: Member,
    /// Has the same issuer. Names of its users begin with `b:`. P-256.
    pub b: Member,
    /// Has an issuer of its own, and the prefix `c:`. P-521.
    pub c: Member,
    /// Asks us about tokens by its webhook. Has no prefix. P-384.
    pub d: Member,
    pub product: Product,
    /// A token of an account that may ask.
    pub caller: String,
    /// Of the product in A.
    account: Access,
    /// The proxies run on it.
    _runtime: Runtime,
}

impl Stage {
    /// Starts with the first test, and ends with the process.
    pub async fn get() -> &'static Self {
        // In its own thread and runtime: the first test's runtime ends before the others are done.
        let start = || STAGE.get_or_init(start_all).as_ref();
        let started = tokio::task::spawn_blocking(start).await.expect("starting does not panic");
        started.unwrap_or_else(|why| panic!("{why}"))
    }

    pub fn remotes(&self) -> [&Member; 2] {
        [&self.b, &self.c]
    }

    /// What a service is told about a token.
    pub async fn review(&self, token: &str, audiences: &[&str]) -> Value {
        status(&self.product.review(&self.caller, token, audiences).await)
    }

    /// What the product asks the local cluster with.
    pub fn pod_token(&self) -> &str {
        &self.account.token
    }

    /// Another `trustplane review` with this configuration, in a namespace of its own.
    pub async fn another(&self, name: &'static str, config: String) -> Product {
        let namespace = format!("{name}-{}", suite::next_number());
        copy_rights(&self.a, &namespace).await;
        let options = Options { name, config, namespace, flags: Vec::new() };
        Product::start(&self.a, &self.account, Address::choose(), &options)
    }

    /// Another one that is ready.
    pub async fn another_ready(&self, name: &'static str, config: String) -> Product {
        let mut product = self.another(name, config).await;
        product.ready().await;
        product
    }

    /// A configuration with the local cluster and these entries; whoever may ask the shared one may ask here.
    pub fn config(&self, entries: &[String]) -> String {
        let local = format!("  a:\n    issuer: {ISSUER}\n");
        let authorized = "authorized_clients: [\"a/callers/*\"]\n";
        format!("clusters:\n{local}{}{authorized}", entries.concat())
    }
}

/// The status of a review that was answered.
pub fn status(answer: &RawAnswer) -> Value {
    let review = answer.json();
    assert_eq!(answer.code, 201, "{review}");
    review["status"].clone()
}

pub fn is_authenticated(status: &Value) -> bool {
    status["authenticated"] == true
}

/// The entry of a remote cluster in a configuration, with files for its CA and its credential.
pub fn entry(member: &Member, url: &str, credential: &str) -> String {
    let ca = member.file("ca.crt", &member.ca().root());
    let token = member.file("token", credential);
    format!(
        "  {}:\n    issuer: {}\n    api_server: {url}\n    ca_cert: {}\n    token_path: {}\n",
        member.name(),
        member.issuer(),
        ca.display(),
        token.display()
    )
}

fn prefixed(member: &Member, entry: &str) -> String {
    let prefix = format!("\"{}:\"", member.name());
    format!("{entry}    username_prefix: {prefix}\n    groups_prefix: {prefix}\n")
}

fn start_all() -> Result<Stage, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let parts = runtime.block_on(start_parts())?;
    let (etcd, [a, b, c, d], product, caller, account) = parts;
    Ok(Stage { etcd, a, b, c, d, product, caller, account, _runtime: runtime })
}

type Parts = (Etcd, [Member; 4], Product, String, Access);

async fn start_parts() -> Result<Parts, String> {
    let etcd = Etcd::start().map_err(|error| error.to_string())?;
    let address = Address::choose();
    let webhook = webhook_flags(&etcd, &address).map_err(|error| error.to_string())?;
    let start = |name, issuer: &str, kind, flags| {
        let (issuer, signing) = (issuer.to_owned(), SigningKey::new(kind));
        Member::start(&etcd, Profile { name, issuer, signing, public_keys: Vec::new(), flags })
    };
    let (a, b, c, d) = tokio::try_join!(
        start("a", ISSUER, KeyKind::Rsa, Vec::new()),
        start("b", ISSUER, KeyKind::P256, Vec::new()),
        start("c", "https://c.clusters.test", KeyKind::P521, Vec::new()),
        start("d", "https://d.clusters.test", KeyKind::P384, webhook),
    )?;
    tokio::try_join!(
        install_local(&a),
        install(&b, "deploy/review/remote"),
        install(&c, "deploy/review/remote"),
        install(&d, "deploy/review/remote"),
    )?;
    let token = token_of(&a, NAMESPACE, "trustplane-review").await;
    let account = Access { url: a.proxy().url(), ..a.admin().with_token(token) };
    let entry_of = async |member: &Member| {
        let credential = credential(member, CREDENTIAL_SECONDS).await;
        entry(member, &member.proxy().url(), &credential)
    };
    let (of_b, of_c, of_d) = tokio::join!(entry_of(&b), entry_of(&c), entry_of(&d));
    let entries = [prefixed(&b, &of_b), prefixed(&c, &of_c), of_d].concat();
    let config = format!(
        "clusters:\n  # Local cluster\n  a:\n    issuer: \"{ISSUER}\"\n{entries}\
         renewal:\n  interval: 1h\n  token_duration: 168h\n  renew_before: 48h\n\
         authorized_clients: [\"a/callers/*\"]\n"
    );
    let may_review = json!({
        "metadata": { "name": "webhook-of-d" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WEBHOOK_USER }],
    });
    a.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &may_review).await;
    let caller = a.account("callers", "reviewer").await;
    let caller = a.token(&caller).await;
    let options =
        Options { name: "review", config, namespace: NAMESPACE.to_owned(), flags: Vec::new() };
    let mut product = Product::start(&a, &account, address, &options);
    product.ready().await;
    Ok((etcd, [a, b, c, d], product, caller, account))
}

/// So that D asks us about every token that it does not know. Its default version is v1beta1.
fn webhook_flags(etcd: &Etcd, address: &Address) -> io::Result<Vec<String>> {
    let folder = etcd.private_folder("webhook");
    let pair = address.client_certificate(WEBHOOK_USER);
    let path = folder.join("kubeconfig");
    for (name, content) in
        [("ca.crt", address.authority()), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)]
    {
        suite::write_private(&folder.join(name), content);
    }
    let server = format!("{}/webhook/tokenreviews", address.url());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "review",
        "clusters": [{ "name": "review", "cluster": { "server": server, "certificate-authority": "ca.crt" } }],
        "users": [{ "name": "d", "user": { "client-certificate": "tls.crt", "client-key": "tls.key" } }],
        "contexts": [{ "name": "review", "context": { "cluster": "review", "user": "d" } }],
    });
    suite::write_private(&path, &config.to_string());
    Ok(vec![format!("--authentication-token-webhook-config-file={}", path.display())])
}

async fn install(member: &Member, folder: &str) -> Result<(), String> {
    let folder = at(folder).display().to_string();
    member.kubectl(&["apply", "--server-side", "-k", &folder]).await.map(drop)
}

async fn install_local(member: &Member) -> Result<(), String> {
    install(member, "deploy/review/namespace").await?;
    install(member, "deploy/review").await
}

/// Lets us review the tokens of a cluster.
pub async fn install_remote(member: &Member) {
    let installed = install(member, "deploy/review/remote").await;
    installed.unwrap_or_else(|why| panic!("{why}"));
}

async fn token_of(member: &Member, namespace: &str, name: &str) -> String {
    let account =
        Account { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
    member.token_as(TokenOrder::of(&account).seconds(CREDENTIAL_SECONDS)).await
}

/// A token of ours in a remote cluster.
pub async fn credential(member: &Member, seconds: u64) -> String {
    let account = remote_account();
    member.token_as(TokenOrder::of(&account).seconds(seconds)).await
}

/// Of deploy/review/remote.
pub fn remote_account() -> Account {
    let name = "trustplane-review".to_owned();
    Account { namespace: name.clone(), name, uid: String::new() }
}

/// Lets the product write into another namespace what it may write into its own.
async fn copy_rights(local: &Member, namespace: &str) {
    let object = json!({ "metadata": { "name": namespace } });
    local.create("/api/v1/namespaces", &object).await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    for kind in ["roles", "rolebindings"] {
        let all = local.find(&format!("{path}/{NAMESPACE}/{kind}")).await.expect("a list");
        for object in all["items"].as_array().expect("items") {
            let name = object["metadata"]["name"].clone();
            let mut copy = object.clone();
            copy["metadata"] = json!({ "name": name });
            local.create(&format!("{path}/{namespace}/{kind}"), &copy).await;
        }
    }
    let attributes = json!({ "verb": "create", "resource": "secrets", "namespace": namespace });
    let user = format!("system:serviceaccount:{NAMESPACE}:trustplane-review");
    until_allowed(local, &user, &json!({ "resourceAttributes": attributes })).await;
}

/// Waits until a right is in force, which takes a moment.
pub async fn until_allowed(member: &Member, user: &str, attributes: &Value) {
    let mut spec = attributes.clone();
    spec["user"] = json!(user);
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    eventually(SOON, "a role is in force", async || {
        let answer = member.create(path, &json!({ "spec": spec })).await;
        if answer["status"]["allowed"] == true { Ok(()) } else { Err(answer["status"].clone()) }
    })
    .await;
}
