//! A hostile tenant: whatever it puts into its own namespace, the controller starts, stays small,
//! and serves the other namespaces.
//!
//! A controller that is limited to namespaces has a watch for each of them. These tests are about
//! the one watch that all tenants share, so most of them have a cluster of their own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::Value;
use testkit::{
    Cluster, Controller, Launch, Namespace, Pair, RouteFixture, SecretFixture, eventually,
    eventually_equals, hostile,
    pair::{self, Order},
};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::AbortHandle,
    time::Instant,
};

use crate::scene::{PATIENCE, SILENCE, Scene};

/// Half of what deploy/base gives the controller.
const MEMORY: f64 = 128.0;
/// A renewal takes a fraction of a second. This is for a busy machine.
const RENEWAL: Duration = Duration::from_secs(10);
/// A certificate with more of them does not fit into a Secret.
const NAMES: usize = 30_000;
/// More P-521 certificates do not fit into a Secret.
const CHAIN: usize = 1_700;
/// How often such a chain is changed before the neighbour renews.
const LEAD: usize = 40;

/// Each attack has the machine for itself: two at once would hold up each other's API server.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A cluster with one controller for two tenants. What the neighbour asks for is in place.
struct Tenants {
    cluster: Cluster,
    hostile: Namespace,
    neighbour: Scene,
    _alone: MutexGuard<'static, ()>,
}

impl Tenants {
    /// The controller comes upon what `prepare` left in the hostile namespace.
    async fn after(name: &str, prepare: impl AsyncFnOnce(&Namespace)) -> Self {
        let _alone = ONE_AT_A_TIME.lock().await;
        let cluster = Cluster::start_another(name).await;
        let hostile = cluster.namespace("hostile").await;
        let ns = cluster.namespace("neighbour").await;
        let issued = pair::issued("shop.example.com");
        SecretFixture::tls("shop-tls", &issued).create(&ns).await;
        RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
        prepare(&hostile).await;
        let controller = start(Launch::everywhere(&cluster)).await;
        let neighbour = Scene { ns, controller };
        neighbour.holds("shop", &issued).await;
        Self { cluster, hostile, neighbour, _alone }
    }

    /// Renews the neighbour's Secret, and waits until its Route holds the new pair.
    async fn renewal_arrives(&self) {
        let renewed = pair::issued("shop.example.com");
        let ns = &self.neighbour.ns;
        SecretFixture::tls("shop-tls", &renewed).replace(ns).await;
        eventually(RENEWAL, "the neighbour's renewal", async || {
            if ns.route_holds("shop", &renewed).await { Ok(()) } else { Err("the pair before it") }
        })
        .await;
    }

    /// Secrets of the hostile namespace that the controller read, in order.
    fn hostile_reads(&self) -> Vec<String> {
        self.cluster.audit().secrets_read_by_account(self.hostile.name())
    }
}

/// Starts a controller that logs as an installed one does: traces of large objects would take
/// memory and time of their own.
async fn start(launch: Launch) -> Controller {
    let mut controller = launch.env("RUST_LOG", "info").start();
    controller.ready().await;
    controller
}

#[tokio::test]
async fn secrets_of_one_mebibyte_that_no_route_names_do_not_fill_the_memory() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let ns = Cluster::get().await.namespace("mebibytes").await;
    create_all(&ns, 60, |number| hostile::junk_secret(&format!("junk-{number}"))).await;
    let names = (0..NAMES).map(|number| format!("shop-{number}.example.com"));
    let Pair { certificate, key, .. } =
        names.fold(Order::of("shop.example.com"), |order, name| order.and(&name)).make();
    create_all(&ns, 40, |number| {
        hostile::tls_secret(&format!("names-{number}"), &certificate, &key)
    })
    .await;

    let controller = start(Launch::within(&ns)).await;

    assert_small(&controller);
    let audit = ns.cluster().audit();
    assert_eq!(audit.secrets_read_by_account(ns.name()), Vec::<String>::new());
}

#[tokio::test]
async fn a_chain_of_thousands_of_certificates_holds_up_nobody_elses_renewal() {
    let chains = [pair::slow_chain(CHAIN), pair::slow_chain(CHAIN)];
    let tenants = Tenants::after("unnamed-chain", async |hostile| {
        SecretFixture::tls("long", &chains[0]).create(hostile).await;
    })
    .await;

    let changes = renew_over_and_over(&tenants.hostile, &["long"], &chains, 8);
    changes.reach(LEAD).await;
    tenants.renewal_arrives().await;

    assert_eq!(tenants.hostile_reads(), Vec::<String>::new());
}

#[tokio::test]
async fn a_chain_of_thousands_that_a_route_names_holds_up_nobody_elses_renewal() {
    let chains = [pair::slow_chain(CHAIN), pair::slow_chain(CHAIN)];
    let tenants = Tenants::after("named-chain", async |hostile| {
        SecretFixture::tls("long", &chains[0]).create(hostile).await;
        RouteFixture::edge("long").annotated("long").create(hostile).await;
    })
    .await;

    let changes = renew_over_and_over(&tenants.hostile, &["long"], &chains, 8);
    changes.reach(LEAD).await;
    tenants.renewal_arrives().await;

    let refused = Some((Some("Default".to_owned()), "SecretInvalid".to_owned()));
    eventually_equals(PATIENCE, "the Route's condition", refused, async || {
        tenants.hostile.certificate_condition("long").await
    })
    .await;
    let (reads, changes) = (tenants.hostile_reads().len(), changes.count());
    assert!(reads <= changes + 1, "{reads} reads for {changes} changes");
}

#[tokio::test]
async fn five_hundred_routes_that_name_one_missing_secret_cost_no_read_at_a_resync() {
    const ROUTES: usize = 500;
    let ns = Cluster::get().await.namespace("missing").await;
    create_all(&ns, ROUTES, |number| {
        RouteFixture::edge(&format!("shop-{number}")).annotated("absent").json().clone()
    })
    .await;
    let flags = ["--resync", "2s", "--secret-missing-grace", "1s"];
    let _controller = start(Launch::within(&ns).flags(&flags)).await;
    let is_told = |write: &&testkit::Write| write.object().ends_with("/status");
    eventually_equals(6 * PATIENCE, "Routes whose status is written", ROUTES, async || {
        ns.writes().to_objects().iter().filter(is_told).count()
    })
    .await;
    ns.quiet(SILENCE).await;
    let reads = || ns.cluster().audit().secrets_read_by_account(ns.name()).len();
    let at_first = reads();

    tokio::time::sleep(Duration::from_secs(5)).await;

    assert_eq!(reads() - at_first, 0, "at two resyncs");
    assert!(at_first <= 5, "{at_first} reads of one Secret that is not there");
}

#[tokio::test]
async fn a_flood_of_large_objects_and_changes_costs_others_neither_memory_nor_time() {
    const CHAINS: [&str; 3] = ["chain-0", "chain-1", "chain-2"];
    let small = [pair::with_chain("shop.example.com"), pair::with_chain("shop.example.com")];
    let small_names: Vec<String> = (0..20).map(|number| format!("small-{number}")).collect();
    let small_names: Vec<&str> = small_names.iter().map(|name| &**name).collect();
    let chain = pair::long_chain(2_000);
    let tenants = Tenants::after("flood", async |ns| {
        for name in &small_names {
            SecretFixture::tls(name, &small[0]).create(ns).await;
        }
        for name in CHAINS {
            SecretFixture::tls(name, &chain).create(ns).await;
            RouteFixture::edge(name).annotated(name).create(ns).await;
        }
        create_all(ns, 60, |number| hostile::junk_secret(&format!("junk-{number}"))).await;
        many_managers(ns, 15).await;
        create_all(ns, 20, |number| hostile::large_route(&format!("large-{number}"), "absent"))
            .await;
    })
    .await;

    let changes = renew_over_and_over(&tenants.hostile, &small_names, &small, 20);
    for number in 1..=3 {
        changes.reach(20 * number).await;
        tenants.renewal_arrives().await;
    }

    assert_small(&tenants.neighbour.controller);
    let mut reads = tenants.hostile_reads();
    reads.retain(|name| !CHAINS.contains(&&**name) && name != "absent");
    assert_eq!(reads, Vec::<String>::new(), "no Route names these Secrets");
}

fn assert_small(controller: &Controller) {
    let peak = controller.peak_memory();
    assert!(peak < MEMORY, "{peak:.0} MiB of memory at its peak");
}

/// Creates an object for each number, some at once.
async fn create_all(ns: &Namespace, count: usize, object: impl Fn(usize) -> Value) {
    let objects = (0..count).map(|number| send(ns.client(), create(ns, &object(number))));
    stream::iter(objects).buffer_unordered(8).for_each(async |_| ()).await;
}

/// Secrets with 1.3 MB of managedFields.
async fn many_managers(ns: &Namespace, count: usize) {
    let name = |number: usize| format!("managed-{number}");
    create_all(ns, count, |number| hostile::many_fields_secret(&name(number))).await;
    let managed = |number: usize| hostile::many_managers_secret(&name(number));
    let changes =
        (0..count).map(|number| send(ns.client(), replace(ns, &name(number), &managed(number))));
    stream::iter(changes).buffer_unordered(8).for_each(async |_| ()).await;
    let secret = ns.secrets().get_metadata(&name(0)).await.expect("the Secret is there");
    let managers = secret.metadata.managed_fields.unwrap_or_default();
    let bytes = serde_json::to_vec(&managers).map_or(0, |text| text.len());
    assert!(bytes > 1_300_000, "only {bytes} bytes of managedFields in {} entries", managers.len());
}

/// A tenant who changes Secrets for as long as this lives.
struct Changes {
    count: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// Puts one of these pairs after the other into the Secrets, so many times a second in all.
fn renew_over_and_over(ns: &Namespace, secrets: &[&str], pairs: &[Pair], rate: u32) -> Changes {
    // The first is in place already: a Secret's turn always comes with another pair.
    let requests: Vec<Request<Vec<u8>>> = pairs
        .iter()
        .rev()
        .flat_map(|Pair { certificate, key, .. }| {
            let secret = move |name: &&str| hostile::tls_secret(name, certificate, key);
            secrets.iter().map(move |name| replace(ns, name, &secret(name)))
        })
        .collect();
    let (client, count) = (ns.client().clone(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    let task = tokio::spawn(async move {
        for request in requests.iter().cycle() {
            let next = Instant::now() + Duration::from_secs(1) / rate;
            send(&client, request.clone()).await;
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep_until(next).await;
        }
    });
    Changes { count, task: task.abort_handle() }
}

impl Changes {
    /// How many there were.
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until there were so many.
    async fn reach(&self, count: usize) {
        eventually(PATIENCE, "changes of the hostile tenant", async || match self.count() {
            seen if seen >= count => Ok(()),
            seen => Err(seen),
        })
        .await;
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn create(ns: &Namespace, object: &Value) -> Request<Vec<u8>> {
    let (api, kind) = match object["kind"].as_str() {
        Some("Route") => ("apis/route.openshift.io/v1", "routes"),
        _ => ("api/v1", "secrets"),
    };
    let path = format!("/{api}/namespaces/{}/{kind}", ns.name());
    request(Request::post(path), object)
}

/// For the API server this is the cheapest way to change a large object.
fn replace(ns: &Namespace, name: &str, secret: &Value) -> Request<Vec<u8>> {
    let path = format!("/api/v1/namespaces/{}/secrets/{name}", ns.name());
    request(Request::put(path), secret)
}

/// Asks for no more than the metadata in return: the tenant is not to keep us busy.
fn request(to: http::request::Builder, object: &Value) -> Request<Vec<u8>> {
    let short = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let request = to.header("content-type", "application/json").header("accept", short);
    request.body(object.to_string().into_bytes()).expect("a request")
}

async fn send(client: &Client, request: Request<Vec<u8>>) {
    client.request_text(request).await.expect("the API server takes it");
}
