//! A cluster with `trustplane federate` installed as deploy/trust-domain and deploy/federate install it.

use std::{path::Path, time::Duration};

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use trustplane::federate::{act::apply, decide::render::Component};

use crate::{
    Access, Cluster, Controller, Entry, Launch, at, eventually,
    proxy::Proxy,
    suite,
    tied::{self, Tied},
    toolbox, trustplane_binary,
};

/// Account of `trustplane federate`.
pub const ACCOUNT: &str = "system:serviceaccount:trustplane:trustplane-federate";
/// Namespace of the SPIRE server.
pub const NAMESPACE: &str = "spire";
/// Name of the cluster in its SPIRE server's configuration.
pub const CLUSTER_NAME: &str = "cluster-a";

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Stage {
    /// The API server.
    pub cluster: Cluster,
    pub admin: Client,
    /// The trust domain of its SPIRE server.
    pub trust_domain: String,
    domain: String,
}

impl Stage {
    /// Starts a new cluster, because each has one SpireServer.
    pub async fn start(name: &str) -> Self {
        Self::of("td-a.test", "apps.test", name).await
    }

    /// Starts a cluster with this trust domain and this domain for Routes.
    pub async fn of(trust_domain: &str, domain: &str, name: &str) -> Self {
        let cluster = Cluster::start_another(name).await;
        for folder in ["deploy/trust-domain", "deploy/federate"] {
            install(&cluster, folder).await;
        }
        Self::on(cluster, trust_domain, domain).await
    }

    /// The same without the installation.
    pub async fn on(cluster: Cluster, trust_domain: &str, domain: &str) -> Self {
        let admin = cluster.admin().await;
        Self { cluster, admin, trust_domain: trust_domain.to_owned(), domain: domain.to_owned() }
    }

    /// Runs the controller as its Deployment does, with further flags.
    pub async fn controller(&self, flags: &[&str]) -> Controller {
        self.controller_with(flags, &[]).await
    }

    /// The same with an environment.
    pub async fn controller_with(
        &self,
        flags: &[&str],
        environment: &[(String, String)],
    ) -> Controller {
        let domain = format!("--apps-domain={}", self.domain);
        self.controller_anywhere(&[flags, &[&domain]].concat(), environment).await
    }

    /// The same without the domain for Routes.
    pub async fn controller_anywhere(
        &self,
        flags: &[&str],
        environment: &[(String, String)],
    ) -> Controller {
        let arguments =
            ["federate", "--namespace=spire", "--listen=127.0.0.1:0", "--log-format=json"];
        let kubeconfig = self.cluster.kubeconfig(&self.account().await);
        let launch = Launch::exactly("federate", &arguments, kubeconfig);
        let launch = launch.flags(flags).env("RUST_LOG", "trustplane=debug");
        let set = |launch: Launch, (name, value): &(String, String)| launch.env(name, value);
        let mut controller = environment.iter().fold(launch, set).start();
        controller.ready().await;
        controller
    }

    /// Runs `trustplane federate` to its end, with the controller's account. Returns its exit code
    /// and standard output.
    pub async fn run(&self, flags: &[&str]) -> (i32, String) {
        let kubeconfig = self.cluster.kubeconfig(&self.account().await);
        let mut command = tokio::process::Command::new(trustplane_binary());
        command.args(["federate", "--namespace=spire"]).args(flags).env("KUBECONFIG", kubeconfig);
        command.arg(format!("--apps-domain={}", self.domain)).kill_on_drop(true);
        let ended = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = ended.expect("it ends by itself").expect("the program runs");
        let code = output.status.code().unwrap_or(-1);
        (code, String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Events about the SpireServer, as `Warning PeersUnreachable: ...`.
    pub async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.admin.clone(), "default");
        let events = events.list(&Default::default()).await.expect("the Events").items;
        let words = |it: &Event| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let count = it.series.as_ref().map_or(1, |series| series.count);
            let words = format!("{} {}: {}", text(&it.type_), text(&it.reason), text(&it.note));
            if count > 1 { format!("{words} (x{count})") } else { words }
        };
        events.iter().map(words).collect()
    }

    /// Waits for an Event that begins like this, and returns all of them. An Event may follow its condition later.
    pub async fn until_event(&self, beginning: &str) -> Vec<String> {
        eventually(TIMEOUT, &format!("an Event {beginning:?}"), async || {
            let events = self.events().await;
            let is_there = events.iter().any(|it| it.starts_with(beginning));
            if is_there { Ok(events) } else { Err(events) }
        })
        .await
    }

    /// Writes an object's status, like a controller or a router.
    pub async fn report(&self, part: Component, status: Value) {
        let (api, patch) = (self.api(part), Patch::Merge(json!({ "status": status })));
        let written = api.patch_status(name_of(part), &PatchParams::default(), &patch).await;
        written.expect("the status is taken");
    }

    /// Writes the status of an admitted Route, like a router.
    pub async fn admit_route(&self) {
        let host = self.object(Component::Route).await["spec"]["host"].clone();
        let conditions = json!([{ "type": "Admitted", "status": "True" }]);
        let ingress = json!([{ "routerName": "test", "host": host, "conditions": conditions }]);
        self.report(Component::Route, json!({ "ingress": ingress })).await;
    }

    /// Writes the status of a ready StatefulSet with the newest configuration.
    pub async fn run_pod(&self) {
        let generation =
            self.object(Component::StatefulSet).await["metadata"]["generation"].clone();
        let status = json!({
            "observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
        });
        self.report(Component::StatefulSet, status).await;
    }

    /// Access with the controller's account.
    pub async fn account(&self) -> Access {
        let token = self.cluster.token_of("trustplane", "trustplane-federate").await;
        self.cluster.admin_access().with_token(token)
    }

    /// Runs the controller through a proxy that fails on demand.
    pub async fn controller_through(&self, proxy: &Proxy) -> Controller {
        let domain = format!("--apps-domain={}", self.domain);
        let arguments = ["federate", &domain, "--listen=127.0.0.1:0", "--log-format=json"];
        let kubeconfig = self.cluster.kubeconfig(&self.account().await.through(proxy.url()));
        let mut controller = Launch::exactly("federate", &arguments, kubeconfig).start();
        controller.ready().await;
        controller
    }

    /// Starts the real garbage collector.
    pub fn collector(&self) -> Tied {
        let kubeconfig = self.cluster.kubeconfig(self.cluster.admin_access());
        let folder = suite::subfolder(&format!("collector-{}", suite::next_number()));
        let program =
            toolbox().unwrap_or_else(|why| panic!("{why}")).join("kube-controller-manager");
        let mut command = tied::command(Path::new(&program), &folder.join("collector.log"), None);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                "--controllers=garbage-collector-controller",
                "--use-service-account-credentials",
            ])
            .args(["--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"]);
        Tied::spawn(command).expect("the garbage collector starts")
    }

    /// Host of its bundle endpoint.
    pub fn host(&self) -> String {
        format!("spire-server-federation-{NAMESPACE}.{}", self.domain)
    }

    fn servers(&self) -> Api<DynamicObject> {
        spire_servers(self.admin.clone())
    }

    /// Creates the SpireServer.
    pub async fn create(&self, federation: Value) {
        let mut server = server(federation);
        server["spec"]["trustDomain"] = json!(self.trust_domain);
        let server = serde_json::from_value(server).expect("an object");
        let created = self.servers().create(&PostParams::default(), &server).await;
        created.expect("the SpireServer is accepted");
    }

    /// Changes the SpireServer.
    pub async fn change(&self, change: Value) {
        let changed =
            self.servers().patch("cluster", &PatchParams::default(), &Patch::Merge(change)).await;
        changed.expect("the change is accepted");
    }

    /// Deletes the SpireServer.
    pub async fn delete(&self) {
        self.servers().delete("cluster", &Default::default()).await.expect("it can be deleted");
    }

    /// The current SpireServer.
    pub async fn server(&self) -> Value {
        json!(self.servers().get("cluster").await.expect("the SpireServer"))
    }

    /// Status, reason and message of one of its conditions.
    pub async fn condition(&self, about: &str) -> (String, String, String) {
        let server = self.server().await;
        let conditions = server["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|it| it["type"] == about).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    /// Waits until a condition has this status and reason. Returns its message.
    pub async fn until_condition(&self, about: &str, status: &str, reason: &str) -> String {
        let what = format!("{about} is {status} ({reason})");
        eventually(TIMEOUT, &what, async || {
            let found = self.condition(about).await;
            if (&*found.0, &*found.1) == (status, reason) {
                Ok(found.2)
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await
    }

    fn api(&self, part: Component) -> Api<DynamicObject> {
        let resource = apply::resource(part);
        match part {
            Component::ClusterRole | Component::ClusterRoleBinding => {
                Api::all_with(self.admin.clone(), &resource)
            }
            _ => Api::namespaced_with(self.admin.clone(), NAMESPACE, &resource),
        }
    }

    /// One of the rendered objects, if it exists.
    pub async fn find(&self, part: Component) -> Option<Value> {
        let found = self.api(part).get_opt(name_of(part)).await.expect("the API server answers");
        found.map(|object| json!(object))
    }

    /// One of the rendered objects, which must exist.
    pub async fn object(&self, part: Component) -> Value {
        self.find(part).await.unwrap_or_else(|| panic!("there is no {part:?}"))
    }

    /// Changes one of the rendered objects.
    pub async fn meddle(&self, part: Component, change: Value) {
        let changed = self
            .api(part)
            .patch(name_of(part), &PatchParams::default(), &Patch::Merge(change))
            .await;
        changed.expect("the change is accepted");
    }

    /// Applies an object of any kind as administrator, even of a new CRD.
    pub async fn apply(&self, object: &Value) {
        let file = self.cluster.scratch().join(format!("{}.json", suite::next_number()));
        suite::write_private(&file, &object.to_string());
        let file = file.display().to_string();
        eventually(TIMEOUT, "an object is accepted", async || {
            self.cluster.kubectl(&["apply", "--server-side", "-f", &file]).await
        })
        .await;
    }

    /// Deletes one of the rendered objects.
    pub async fn remove(&self, part: Component) {
        self.api(part).delete(name_of(part), &Default::default()).await.expect("it can be deleted");
    }

    /// Waits until an object's field has this value.
    pub async fn until_field(&self, part: Component, pointer: &str, wanted: Value) {
        let what = format!("{pointer} of {part:?} is {wanted}");
        eventually(TIMEOUT, &what, async || {
            let object = self.find(part).await.unwrap_or_default();
            let found = object.pointer(pointer).cloned().unwrap_or_default();
            if found == wanted { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// Waits until the ConfigMap of peers holds this peer's bundle. Returns it.
    pub async fn until_kept(&self, trust_domain: &str) -> String {
        let what = format!("what was fetched of {trust_domain} is kept");
        eventually(TIMEOUT, &what, async || {
            let object = self.find(Component::PeersConfigMap).await.unwrap_or_default();
            let text = object["data"][trust_domain].as_str().map(str::to_owned);
            text.ok_or_else(|| object.to_string())
        })
        .await
    }

    /// Waits until the controller has written nothing for a while. Returns all its writes but
    /// Leases and Events, as `create configmaps/spire-server`.
    pub async fn writes(&self) -> Vec<String> {
        let now = || {
            let entries = self.cluster.audit().entries();
            let ours = |it: &&std::sync::Arc<Entry>| {
                it.user == ACCOUNT
                    && it.is_write()
                    && !["leases", "events"].contains(&&*it.resource)
            };
            let words = |it: &std::sync::Arc<Entry>| format!("{} {}", it.verb, object_of(it));
            entries.iter().filter(ours).map(words).collect::<Vec<_>>()
        };
        let mut writes = now();
        let mut quiet = 0;
        while quiet < 8 {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let newer = now();
            quiet = if newer.len() == writes.len() { quiet + 1 } else { 0 };
            writes = newer;
        }
        writes
    }

    /// Forbidden requests of the controller.
    pub fn refused(&self) -> Vec<String> {
        let entries = self.cluster.audit().entries();
        let refused = entries.iter().filter(|it| it.user == ACCOUNT && it.code == 403);
        refused.map(|it| format!("{} {}", it.verb, it.object())).collect()
    }
}

/// The name of a create is in its object, not in its URI.
fn object_of(entry: &Entry) -> String {
    let sent = entry.request_object.as_ref().and_then(|it| it["metadata"]["name"].as_str());
    match sent.filter(|_| entry.verb == "create") {
        Some(name) => format!("{}/{name}", entry.resource),
        None => entry.object(),
    }
}

fn name_of(part: Component) -> &'static str {
    match part {
        Component::BundleConfigMap => "spire-bundle",
        Component::ControllerManagerConfigMap => "spire-controller-manager",
        Component::Route => "spire-server-federation",
        Component::PeersConfigMap => "trustplane-peers",
        _ => "spire-server",
    }
}

/// A SpireServer with this federation, or without if it is null.
pub fn server(federation: Value) -> Value {
    let mut server = json!({
        "apiVersion": "operator.openshift.io/v1alpha1",
        "kind": "SpireServer",
        "metadata": { "name": "cluster" },
        "spec": {
            "trustDomain": "td-a.test",
            "clusterName": CLUSTER_NAME,
            "jwtIssuer": "https://oidc.td-a.test",
        },
    });
    if !federation.is_null() {
        server["spec"]["federation"] = federation;
    }
    server
}

/// Federation with profile https_spiffe and no peers.
pub fn spiffe() -> Value {
    json!({ "bundleEndpoint": { "profile": "https_spiffe" } })
}

/// Federation with profile https_web behind a router with the certificate.
pub fn web(secret: &str) -> Value {
    let serving_cert = json!({ "externalSecretRef": secret });
    json!({ "bundleEndpoint": { "profile": "https_web", "httpsWeb": { "servingCert": serving_cert } } })
}

/// The SpireServers of a cluster, with all fields.
pub fn spire_servers(client: Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "operator.openshift.io".into(),
        version: "v1alpha1".into(),
        api_version: "operator.openshift.io/v1alpha1".into(),
        kind: "SpireServer".into(),
        plural: "spireservers".into(),
    };
    Api::all_with(client, &resource)
}

/// Applies a folder with the SpireServer CRD, and waits until it is served.
pub async fn install(cluster: &Cluster, folder: &str) {
    let folder = at(folder).display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", &folder]).await;
    applied.expect("the folder is accepted");
    let crd = "crd/spireservers.operator.openshift.io";
    let served =
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", crd]).await;
    served.expect("the SpireServer API is served");
}
