//! The cluster that the cases act on, as far as all of them share it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use testkit::{Entry, suite};
use trustplane::inject::act::capability::{self, StatusField};
use trustplane::k8s::api_error::{self, ApiError};

use super::client::{self, Ask, Fingerprint, Served, fingerprint_of};
use crate::reach::Reach;
use crate::stack::Stack;

/// Longest that a namespace may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(120);
/// An API server that says it is ready may still lack some.
const ROLES_KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Marks our namespaces, for people who find one.
const LABEL: &str = "trustplane.dev/e2e";

pub struct World {
    pub client: Client,
    pub reach: Reach,
    router: OnceLock<String>,
    /// The certificate of the router for unknown hosts.
    default: OnceLock<Fingerprint>,
    /// Hosts of all Routes end in it.
    pub domain: String,
    /// Tells the namespaces of this run from those of others.
    pub run: String,
    /// Whether there is a condition to be seen.
    pub condition: StatusField,
    count: AtomicUsize,
    namespaces: Mutex<BTreeSet<String>>,
    /// When the API server forbids everything, since it does not know its roles yet.
    without_roles: Mutex<Vec<Range<DateTime<Utc>>>>,
}

impl World {
    /// Looks at a cluster. Its router is met later.
    pub async fn new(reach: Reach, domain: String) -> Result<Self, String> {
        let client = client_of(config(&reach.kubeconfig).await?)?;
        let condition = capability::status_field(&client).await;
        let condition = condition.map_err(|error| format!("cannot read the Route API: {error}"))?;
        let run: String = (0..4).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect();
        Ok(Self {
            client,
            reach,
            router: OnceLock::new(),
            default: OnceLock::new(),
            domain,
            run,
            condition,
            count: AtomicUsize::new(0),
            namespaces: Mutex::default(),
            without_roles: Mutex::default(),
        })
    }

    /// Remembers which certificate the router shows to who asks for a host that nobody has.
    pub async fn meet_router(&self, router: String) -> Result<(), String> {
        let nobody = format!("nobody.{}.{}", self.run, self.domain);
        let served = client::visit(&router, &nobody, Ask::Nothing).await;
        let shown = served.map_err(|why| {
            format!("no TLS from router {router} (TRUSTPLANE_E2E_ROUTER sets another): {why}")
        })?;
        let shown = shown.fingerprint();
        let own = self.own_stack().map(|stack| fingerprint_of(&stack.default_certificate()));
        if own.is_some_and(|own| own != shown) {
            return Err("an unknown host is not answered with the default certificate".into());
        }
        self.default.get_or_init(|| shown);
        self.router.get_or_init(|| router);
        Ok(())
    }

    /// Where TLS is served.
    pub fn router(&self) -> &str {
        self.router.get().expect("the router was met before the first case")
    }

    /// The certificate of the router for unknown hosts.
    pub fn default(&self) -> Fingerprint {
        *self.default.get().expect("the router was met before the first case")
    }

    /// The stack; none on a foreign cluster.
    pub fn own_stack(&self) -> Option<&Stack> {
        self.reach.stack.as_deref()
    }

    /// The stack, of a case that needs it.
    pub fn stack(&self) -> &Stack {
        self.own_stack().expect("cases that need the stack run on it alone")
    }

    /// Opens a new connection to the router.
    pub async fn visit(&self, host: &str) -> Result<Served, String> {
        client::visit(self.router(), host, self.ask()).await
    }

    /// Only our own stack has a backend.
    pub fn ask(&self) -> Ask {
        if self.reach.stack.is_some() { Ask::Page } else { Ask::Nothing }
    }

    /// Restarts the API server, and remembers when.
    pub async fn without_roles(&self, restart: impl Future<Output = ()>) {
        let start = Utc::now();
        restart.await;
        let times = start..Utc::now() + ROLES_KNOWN_WITHIN;
        self.without_roles.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(times);
    }

    /// Requests of the injector on our own stack that deploy/ does not allow.
    pub fn forbidden(&self) -> Vec<String> {
        let excused = self.without_roles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let entries = self.own_stack().map(|stack| stack.audit().forbidden_by_account());
        let entries = entries.into_iter().flatten();
        let at_fault = |entry: &Arc<Entry>| {
            // A namespace that is going takes no new objects, whoever asks.
            let too_late = (&*entry.verb, &*entry.resource) == ("create", "events");
            !too_late && !excused.iter().any(|times| times.contains(&entry.time))
        };
        entries.filter(at_fault).map(|entry| format!("{entry:?}")).collect()
    }

    /// A client in the name of another.
    pub async fn client_as(&self, user: &str) -> Client {
        let mut config =
            config(&self.reach.kubeconfig).await.expect("the kubeconfig worked before");
        config.auth_info.impersonate = Some(user.to_owned());
        client_of(config).expect("a client")
    }

    /// Makes a namespace that goes at the end of the run, if not before.
    pub async fn make_namespace(&self) -> Result<String, ApiError> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("trustplane-e2e-{}-{number}", self.run);
        let metadata = json!({ "name": name, "labels": { LABEL: self.run } });
        let namespace =
            serde_json::from_value(json!({ "metadata": metadata })).expect("a namespace");
        self.remembered().insert(name.clone());
        api_error::with_timeout(self.all().create(&PostParams::default(), &namespace)).await?;
        Ok(name)
    }

    /// Keeps the Events of a namespace for the last check of the suite, then deletes it.
    pub async fn remove_namespace(&self, name: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), name);
        if let Ok(events) = events.list(&ListParams::default()).await {
            let text = serde_json::to_string_pretty(&events.items).unwrap_or_default();
            let file = suite::subfolder("events").join(format!("{name}.json"));
            suite::write_private(&file, &text);
        }
        // A failure here is tried again at the end.
        let _ = self.all().delete(name, &DeleteParams::default()).await;
    }

    /// Deletes every namespace of this run, and waits until they are gone. Says what is left.
    pub async fn leave_nothing(&self) -> Result<usize, String> {
        let names: Vec<String> = self.remembered().iter().cloned().collect();
        for name in &names {
            let _ = self.all().delete(name, &DeleteParams::default()).await;
        }
        let start = std::time::Instant::now();
        loop {
            let left = self.left(&names).await;
            if left.is_empty() {
                return Ok(names.len());
            }
            if start.elapsed() > GONE_WITHIN {
                return Err(format!("these namespaces are still there: {}", left.join(", ")));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn left(&self, names: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        for name in names {
            if !matches!(self.all().get_opt(name).await, Ok(None)) {
                left.push(name.clone());
            }
        }
        left
    }

    fn all(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    fn remembered(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.namespaces.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

async fn config(path: &Path) -> Result<Config, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| told(&error))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| told(&error))?;
    if matches!(config.cluster_url.host(), Some("127.0.0.1" | "localhost")) {
        // The environment's proxy is not for loopback.
        config.proxy_url = None;
    }
    Ok(config)
}

fn client_of(config: Config) -> Result<Client, String> {
    Client::try_from(config).map_err(|error| error.to_string())
}
