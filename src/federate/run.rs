//! The controller: any change of the SpireServer or of what it owns leads to a pass over all of it.
//!
//! There is one SpireServer and about a dozen objects, so a pass reads each of them anew. Nothing
//! is decided from a cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{ConfigMap, ObjectReference, Service, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    apply::{Mode, Writer},
    conditions::{self, Findings, Outcome, Verdict},
    domain,
    peers::{Anchors, Peers},
    references,
    render::{self, Part, Setting},
    validate,
};
use crate::{
    api::{
        federated_trust_domain::FederatedTrustDomain,
        route::Route,
        spire_server::{self, FederationStatus, SpireServer, SpireServerStatus},
    },
    federate::metrics::Metrics,
    kit::{
        backoff::Backoff,
        call::{self, CallError},
        client::Gate,
        clock::Clock,
        decode::Guarded,
        events::{Message, Publisher, Said},
        watch::{Change, Follow},
    },
    names::FEDERATE_REPORTER,
    spiffe::bundle::Bundle,
};

/// What the command line chose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where and with which images the server runs.
    pub setting: Setting,
    /// What may be done to objects that exist.
    pub mode: Mode,
    /// How often everything is looked at although nothing changed.
    pub resync: Duration,
    /// How long a watch lives.
    pub watch_timeout: Duration,
    /// Who we are in Events.
    pub instance: String,
}

/// Changes come in groups: one pass sees them all.
const GATHER: Duration = Duration::from_millis(100);
/// What is undone so soon after it was put right is undone by somebody.
const CONTEST: Duration = Duration::from_secs(180);
/// So often it is put right at once all the same.
const AT_ONCE: u32 = 5;
/// What is wrong outside of what we watch, such as a Secret, is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

const SERVERS: &str = "SpireServers";
const ANCHORS: &str = "ClusterFederatedTrustDomains";

/// The controller, ready to run.
pub struct Federator {
    client: Client,
    clock: Clock,
    gate: Gate,
    writer: Writer,
    publisher: Publisher,
    options: Options,
    metrics: Metrics,
    peers: Arc<Peers>,
    server: Mutex<Option<SpireServer>>,
    anchors: Mutex<BTreeMap<String, FederatedTrustDomain>>,
    unlisted: Mutex<BTreeSet<&'static str>>,
    changed: Notify,
}

/// How a pass went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// All is as wanted.
    Settled,
    /// Something is not, and no watch will tell when it is.
    LookAgain,
    /// The API server was asked in vain.
    Failed,
}

impl Federator {
    /// Puts the parts together and registers their metrics.
    pub fn new(
        client: Client,
        gate: Gate,
        clock: Clock,
        options: Options,
        peers: Arc<Peers>,
        metrics: Metrics,
    ) -> Arc<Self> {
        let setting = Arc::new(options.setting.clone());
        let instance = options.instance.clone();
        Arc::new(Self {
            writer: Writer::new(client.clone(), setting, options.mode),
            publisher: Publisher::new(client.clone(), clock.clone(), FEDERATE_REPORTER, instance),
            client,
            clock,
            gate,
            options,
            metrics,
            peers,
            server: Mutex::default(),
            anchors: Mutex::default(),
            unlisted: Mutex::new(BTreeSet::from([SERVERS, ANCHORS])),
            changed: Notify::new(),
        })
    }

    /// What readiness waits for, in words.
    pub fn waiting_for(&self) -> Vec<String> {
        lock(&self.unlisted).iter().map(|kind| format!("the list of {kind}")).collect()
    }

    fn listed(&self, kind: &'static str) {
        lock(&self.unlisted).remove(kind);
        self.changed.notify_one();
    }

    /// Runs until asked to stop; a pass that is under way is finished.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut others = JoinSet::new();
        others.spawn(self.clone().follow_server());
        others.spawn(self.clone().follow_anchors());
        others.spawn(self.peers.clone().run());
        self.clone().follow_owned(&mut others);
        let (mut failures, mut next) = (0, Instant::now());
        let mut contest = Contest::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // They run for ever; a replica without one of them must not look well.
                Some(_) = others.join_next() => return,
                () = self.changed.notified() => {}
                () = self.peers.news.notified() => {}
                () = sleep_until(next) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(GATHER.max(contest.pause())) => {}
            }
            if !self.gate.is_open() {
                // What was known goes stale while another replica leads.
                self.peers.forget();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = async { self.gate.clone().opened().await } => {}
            }
            let (pass, put_right) = self.pass().await;
            contest.note(put_right, Instant::now());
            failures = if pass == Pass::Failed { failures + 1 } else { 0 };
            let wait = match pass {
                Pass::Settled => self.options.resync,
                Pass::LookAgain => LOOK_AGAIN.min(self.options.resync),
                Pass::Failed => Backoff::OBJECT.after(failures),
            };
            next = Instant::now() + wait;
        }
    }

    /// Answers how it went, and whether anything had to be put right.
    async fn pass(&self) -> (Pass, bool) {
        if !self.waiting_for().is_empty() {
            return (Pass::Settled, false);
        }
        // Read anew: what the watch brought may be older than our own last write.
        let api: Api<SpireServer> = Api::all(self.client.clone());
        let server = match call::bounded(api.get_opt(spire_server::NAME)).await {
            Ok(server) => server,
            Err(error) => return (self.failed("SpireServer", &error), false),
        };
        let living = server.filter(|server| server.metadata.deletion_timestamp.is_none());
        let Some(server) = living else {
            self.peers.want(&[]);
            return (Pass::Settled, false);
        };
        let setting = match self.setting().await {
            Ok(setting) => setting,
            Err(error) => return (self.failed("the domain of Routes", &error), false),
        };
        let findings = self.put_everything(&server, &setting).await;
        if findings.problems.is_empty() {
            let federation = server.spec.federation.as_ref();
            self.peers.want(federation.map(|it| &*it.federates_with).unwrap_or_default());
        }
        let reported = self.report(&server, &findings).await;
        if let Err(error) = &reported {
            self.failed("status or Event", error);
        }
        let any = |is: fn(&Outcome) -> bool| findings.outcomes.iter().any(|(_, it)| is(it));
        let put_right = any(|it| matches!(it, Outcome::Updated(_)));
        let pass = if reported.is_err() || any(|it| matches!(it, Outcome::Failed(..))) {
            Pass::Failed
        } else if any(|it| matches!(it, Outcome::Taken(_) | Outcome::NoNamespace(_)))
            || !findings.references.is_empty()
        {
            Pass::LookAgain
        } else {
            Pass::Settled
        };
        (pass, put_right)
    }

    fn failed(&self, what: &'static str, error: &CallError) -> Pass {
        tracing::warn!(what, %error, "could not be read or written");
        self.metrics.failed(error.category());
        Pass::Failed
    }

    /// What the command line chose, completed by what the cluster knows.
    async fn setting(&self) -> Result<Setting, CallError> {
        let mut setting = self.options.setting.clone();
        if setting.apps_domain.is_none() {
            setting.apps_domain = domain::of_cluster(&self.client).await?;
        }
        Ok(setting)
    }

    async fn put_everything(&self, server: &SpireServer, setting: &Setting) -> Findings {
        let federation = server.spec.federation.as_ref();
        let mut findings = Findings {
            problems: validate::problems(&server.spec),
            create_only: self.options.mode == Mode::CreateOnly,
            host: federation.and_then(|federation| render::host(federation, setting)),
            ..Findings::default()
        };
        if !findings.problems.is_empty() {
            return findings;
        }
        findings.references =
            references::problems(&self.client, &setting.namespace, federation).await;
        let owner = server.metadata.uid.as_deref().unwrap_or_default();
        for mut rendered in render::render(server, setting) {
            // A Pod that starts with an old configuration would never learn of the new one.
            let outcome = if rendered.part == Part::StatefulSet && !findings.configured() {
                render::forget_configuration(&mut rendered.object);
                self.writer.put_missing(&rendered, owner).await
            } else {
                self.writer.put(&rendered, owner).await
            };
            self.metrics.put(&outcome);
            if let Outcome::Failed(_, error) = &outcome {
                tracing::warn!(part = ?rendered.part, %error, "could not be put in place");
            }
            findings.outcomes.push((rendered.part, outcome));
        }
        findings
    }

    /// Status and Events.
    async fn report(&self, server: &SpireServer, findings: &Findings) -> Result<(), CallError> {
        let federation = self.federation_status(server, findings);
        let peers = federation.as_ref().map(|it| it.peers.clone()).unwrap_or_default();
        let findings = &Findings { peers, ..findings.clone() };
        let verdicts = conditions::verdicts(server, findings);
        let standing = &server.status;
        let generation = server.metadata.generation.unwrap_or_default();
        let now = self.clock.now();
        let status = SpireServerStatus {
            conditions: conditions::stamped(&standing.conditions, &verdicts, generation, now),
            federation,
        };
        if status != *standing {
            self.writer.write_status(server, &status).await?;
        }
        self.tell(server, findings, &verdicts).await
    }

    fn federation_status(
        &self,
        server: &SpireServer,
        findings: &Findings,
    ) -> Option<FederationStatus> {
        let federation = server.spec.federation.as_ref()?;
        let standing = server.status.federation.as_ref();
        if !findings.problems.is_empty() {
            // The server runs on with what it was last told, and so do its peers.
            return standing.cloned();
        }
        let standing = standing.map(|it| &*it.peers).unwrap_or_default();
        // Where the endpoint is not ours to expose, only its owner can say where it is.
        let known = federation.manages_route() || federation.route_host.is_some();
        let host = findings.host.as_ref().filter(|_| known);
        Some(FederationStatus {
            endpoint_url: host.map(|host| format!("https://{host}")),
            peers: self.peers.statuses(standing),
        })
    }

    async fn tell(
        &self,
        server: &SpireServer,
        findings: &Findings,
        verdicts: &[Verdict],
    ) -> Result<(), CallError> {
        if self.options.mode == Mode::DryRun {
            return Ok(());
        }
        let regarding = reference(server);
        let message = |kind, reason, action, note: String| Message {
            regarding: regarding.clone(),
            kind,
            reason,
            action,
            note,
        };
        let wrong = |it: &&Verdict| it.status == "False" && !it.message.is_empty();
        let worth = |it: &&Verdict| !["Ready", "StatefulSetAvailable"].contains(&it.about);
        for verdict in verdicts.iter().filter(wrong).filter(worth) {
            let note = verdict.message.clone();
            let message = message("Warning", verdict.reason, "Reconcile", note);
            self.publisher.stands(&message, Said::NotYet).await?;
        }
        for (part, outcome) in &findings.outcomes {
            if let Outcome::Updated(fields) = outcome {
                let note = format!(
                    "{part:?} was made what the SpireServer asks for: {}",
                    fields.join(", ")
                );
                self.publisher.happened(&message("Normal", "Updated", "Update", note)).await?;
            }
        }
        Ok(())
    }

    async fn follow_server(self: Arc<Self>) {
        let api = Api::<Guarded<SpireServer>>::all(self.client.clone());
        self.follow(api, None, SERVERS, |this, change| match change {
            Change::Applied(server) => {
                let changed = {
                    let mut standing = lock(&this.server);
                    let of = |it: &SpireServer| {
                        (
                            it.metadata.uid.clone(),
                            it.metadata.generation,
                            it.status.clone(),
                            it.metadata.deletion_timestamp.is_some(),
                        )
                    };
                    let same = standing.as_ref().is_some_and(|old| of(old) == of(&server));
                    *standing = Some(server);
                    !same
                };
                if changed {
                    this.changed.notify_one();
                }
            }
            Change::Deleted(_) => this.changed.notify_one(),
            Change::Listed(places) => {
                if places.is_empty() {
                    tracing::info!("there is no SpireServer; nothing to do until there is one");
                }
                this.listed(SERVERS);
            }
            _ => {}
        })
        .await;
    }

    async fn follow_anchors(self: Arc<Self>) {
        let api = Api::<Guarded<FederatedTrustDomain>>::all(self.client.clone());
        self.follow(api, None, ANCHORS, |this, change| {
            let listed = match change {
                Change::Applied(domain) => {
                    let name = domain.metadata.name.clone().unwrap_or_default();
                    lock(&this.anchors).insert(name, domain);
                    false
                }
                Change::Deleted(place) => {
                    lock(&this.anchors).remove(&*place.name);
                    false
                }
                Change::Listed(places) => {
                    let standing = |name: &str| places.iter().any(|it| *it.name == *name);
                    lock(&this.anchors).retain(|name, _| standing(name));
                    true
                }
                // Nobody installed the API: there are none.
                Change::Failing(CallError::NotFound, _) => true,
                _ => return,
            };
            this.peers.trust(anchors(&lock(&this.anchors)));
            if listed {
                this.listed(ANCHORS);
            }
        })
        .await;
    }

    fn follow_owned(self: Arc<Self>, tasks: &mut JoinSet<()>) {
        self.clone().notice_here::<ConfigMap>(tasks, "ConfigMaps");
        self.clone().notice_here::<Service>(tasks, "Services");
        self.clone().notice_here::<StatefulSet>(tasks, "StatefulSets");
        self.clone().notice_here::<ServiceAccount>(tasks, "ServiceAccounts");
        self.clone().notice_here::<Role>(tasks, "Roles");
        self.clone().notice_here::<RoleBinding>(tasks, "RoleBindings");
        self.clone().notice_here::<Route>(tasks, "Routes");
        let roles = Api::<Guarded<Noticed<ClusterRole>>>::all(self.client.clone());
        tasks.spawn(self.clone().notice(roles, Some("metadata.name=spire-server"), "ClusterRoles"));
        let bindings = Api::<Guarded<Noticed<ClusterRoleBinding>>>::all(self.client.clone());
        let name = Some("metadata.name=spire-server");
        tasks.spawn(self.notice(bindings, name, "ClusterRoleBindings"));
    }

    fn notice_here<K>(self: Arc<Self>, tasks: &mut JoinSet<()>, kind: &'static str)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Send
            + Sync
            + 'static,
    {
        let namespace = self.options.setting.namespace.clone();
        let api = Api::<Guarded<Noticed<K>>>::namespaced(self.client.clone(), &namespace);
        tasks.spawn(self.notice(api, None, kind));
    }

    /// Any word of an object by one of our names calls for a pass.
    async fn notice<K>(
        self: Arc<Self>,
        api: Api<Guarded<Noticed<K>>>,
        fields: Option<&'static str>,
        kind: &'static str,
    ) where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        const OURS: [&str; 4] =
            [render::SERVER, render::CONTROLLER_MANAGER, render::ROUTE, render::BUNDLE];
        self.follow(api, fields, kind, |this, change| {
            let ours = match &change {
                Change::Applied(it) => {
                    it.metadata.name.as_deref().is_some_and(|it| OURS.contains(&it))
                }
                Change::Deleted(place) => OURS.contains(&&*place.name),
                Change::Listed(_) => true,
                _ => false,
            };
            if ours {
                this.changed.notify_one();
            }
        })
        .await;
    }

    async fn follow<K>(
        self: Arc<Self>,
        api: Api<Guarded<K>>,
        fields: Option<&'static str>,
        kind: &'static str,
        mut heed: impl FnMut(&Self, Change<K>),
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let follow = Follow { api, fields, timeout: self.options.watch_timeout };
        follow
            .run(|change| {
                if let Change::Failing(error, times) = &change {
                    if *error != CallError::NotFound {
                        tracing::warn!(kind, %error, times, "watch failed");
                    } else if *times == 1 {
                        tracing::warn!(
                            kind,
                            "the API server has no such kind; install its CRD, see docs/federate.md"
                        );
                    }
                    self.metrics.watch_restarted(kind);
                }
                heed(&self, change);
            })
            .await;
    }
}

/// Somebody keeps undoing what we put right: the pauses grow until they stop.
#[derive(Default)]
struct Contest {
    last: Option<Instant>,
    rounds: u32,
}

impl Contest {
    fn note(&mut self, put_right: bool, now: Instant) {
        if !put_right {
            return;
        }
        let again = self.last.is_some_and(|last| now - last < CONTEST);
        self.rounds = if again { self.rounds.saturating_add(1) } else { 0 };
        self.last = Some(now);
    }

    fn pause(&self) -> Duration {
        match self.rounds.checked_sub(AT_ONCE) {
            Some(rounds) if rounds > 0 => Backoff::OBJECT.ceiling(rounds),
            _ => Duration::ZERO,
        }
    }
}

/// The bundles that can be read; one that can't is as good as none, and its peer says so.
fn anchors(domains: &BTreeMap<String, FederatedTrustDomain>) -> Anchors {
    let bundle = |domain: &FederatedTrustDomain| {
        // One of another class is not heeded by our controller manager either.
        let class = domain.spec.class_name.as_deref();
        let ours = class.is_none_or(|class| class == render::CONTROLLER_MANAGER);
        let document = domain.spec.trust_domain_bundle.as_deref().filter(|_| ours)?;
        Some((domain.spec.trust_domain.clone(), Arc::new(Bundle::parse(document.as_bytes()).ok()?)))
    };
    domains.values().filter_map(bundle).collect()
}

fn reference(server: &SpireServer) -> ObjectReference {
    ObjectReference {
        api_version: Some(spire_server::API_VERSION.to_owned()),
        kind: Some(spire_server::KIND.to_owned()),
        name: server.metadata.name.clone(),
        uid: server.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// An object of which only the name matters.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Noticed<K> {
    metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Noticed<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), kind: PhantomData }
    }
}

impl<K> Debug for Noticed<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Noticed").field(&self.metadata.name).finish()
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Noticed<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
