//! Promises to operators: flags, exit codes, metrics, readiness, a dry run that writes nothing.

use std::{process::Command, time::Duration};

use testkit::{
    Cluster, Controller, Launch, Namespace, Pair, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Fault, Gate, Proxy},
};

use crate::scene::{PATIENCE, SILENCE, Scene};

fn trustplane(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trustplane"))
        .args(arguments)
        .env("KUBECONFIG", "/nonexistent")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .expect("the binary runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    (output.status.code().expect("it exits"), text.concat())
}

#[test]
fn help_starts_with_what_it_does_and_shows_an_example_and_every_flags_variable() {
    let (code, help) = trustplane(&["inject", "--help"]);
    assert_eq!(code, 0);
    assert!(
        help.starts_with("Copies the certificate and key of a TLS Secret into every Route"),
        "{help}"
    );
    assert!(
        help.contains("kubectl annotate route shop route.openshift.io/tls-secret-name=shop-tls")
    );
    for variable in [
        "NAMESPACE",
        "DRY_RUN",
        "ON_INVALID_SECRET",
        "SECRET_MISSING_GRACE",
        "STATUS",
        "LEADER_ELECT",
        "LISTEN",
        "CONCURRENCY",
        "RESYNC",
        "WATCH_TIMEOUT",
        "LOG_FORMAT",
    ] {
        assert!(help.contains(&format!("[env: TRUSTPLANE_{variable}=")), "{variable}\n{help}");
    }
}

#[test]
fn mistakes_on_the_command_line_and_a_missing_cluster_say_what_to_do() {
    let (code, said) = trustplane(&["inject", "--concurrency", "0"]);
    assert_eq!(code, 2, "{said}");
    for name in ["", "Shop", "a b", "shop,", "-x"] {
        let (code, said) = trustplane(&["inject", &format!("--namespace={name}")]);
        assert_eq!(code, 2, "an empty name must not mean all namespaces: {said}");
        assert!(said.contains("leave the flag out to serve all namespaces"), "{said}");
    }
    let (code, said) = trustplane(&["inject", "--listen", ":8080"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("127.0.0.1:8080"), "{said}");
    let (code, said) = trustplane(&["inject", "--resync", "soon"]);
    assert_eq!(code, 2, "{said}");
    let (code, said) = trustplane(&["inject", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("Set KUBECONFIG"), "{said}");
    assert_eq!(said.matches("/nonexistent").count(), 1, "said once: {said}");
    let (code, said) = trustplane(&[]);
    assert_eq!(code, 2, "{said}");
}

#[tokio::test]
async fn a_dry_run_tells_every_plan_and_writes_nothing() {
    let ns = Cluster::get().await.namespace("dryrun").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    RouteFixture::edge("blog").annotated("absent").create(&ns).await;

    let controller = Controller::start(&ns, &["--dry-run", "--leader-elect"]).await;

    eventually(PATIENCE, "both plans are logged", async || {
        let log = controller.log();
        let told = |route: &str, what: &str| {
            let route = format!("{}/{route}", ns.name());
            log.lines().any(|line| line.contains(what) && line.contains(&route))
        };
        let injects = told("shop", "would inject certificate and key of the Secret");
        let says = told("blog", "would write the status alone") && log.contains("was not found");
        if injects && says { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert_eq!(ns.quiet(SILENCE).await, []);
}

#[tokio::test]
async fn status_annotated_leaves_other_routes_alone_and_keeps_true_what_it_said() {
    let scene = Scene::with_flags("annotated", &["--status", "annotated"]).await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("blog").create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    scene.annotate("shop", None).await;
    scene.settles("shop", "Default", "NoCertificate").await;
    assert_eq!(scene.ns.certificate_condition("blog").await, None);
}

#[tokio::test]
async fn status_off_injects_and_says_nothing_in_status() {
    let issued = pair::issued("shop.example.com");
    let mut scene = Scene::with_flags("off", &["--status", "off"]).await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    RouteFixture::edge("blog").annotated("absent").create(&scene.ns).await;
    scene.holds("shop", &issued).await;
    scene.event("blog", "SecretNotFound").await;
    let before = scene.ns.quiet(SILENCE).await;
    assert_eq!(before.to("routes/shop/status"), []);
    assert_eq!(before.to("routes/blog/status"), []);

    scene.restart(&["--status", "off", "--resync", "1s"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = scene.ns.quiet(SILENCE).await.since(before.len());
    assert_eq!(after, [], "the Event itself remembers that it was said");
}

#[tokio::test]
async fn where_the_api_server_has_no_such_field_no_status_is_tried() {
    let cluster = Cluster::start_without_certificate_status("openshift").await;
    let ns = cluster.namespace("fixed").await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    RouteFixture::edge("blog").annotated("absent").create(&ns).await;
    let mut controller = Launch::everywhere(&cluster).start();
    controller.ready().await;
    let scene = Scene { ns, controller };

    scene.holds("shop", &issued).await;
    scene.event("blog", "SecretNotFound").await;
    let writes = scene.ns.quiet(SILENCE).await;
    assert_eq!(writes.to_objects(), ["patch routes/shop"]);
    assert_eq!(writes.to_events().len(), 2);
}

#[tokio::test]
async fn one_controller_serves_all_namespaces() {
    let cluster = Cluster::start_another("everywhere").await;
    let mut controller = Launch::everywhere(&cluster).start();
    controller.ready().await;
    for _ in 0..5 {
        let ns = cluster.namespace("tenant").await;
        let issued = pair::issued("shop.example.com");
        SecretFixture::tls("shop-tls", &issued).create(&ns).await;
        RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
        eventually(PATIENCE, "its pair", async || {
            if ns.route_holds("shop", &issued).await { Ok(()) } else { Err("not yet") }
        })
        .await;
    }
}

#[tokio::test]
async fn metrics_tell_states_expiry_writes_and_times() {
    let mut scene = Scene::new("metrics").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    RouteFixture::edge("blog").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    scene.settles("blog", "Default", "NoCertificate").await;
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
    scene.ns.quiet(SILENCE).await;

    let metrics = scene.controller.metrics().await;
    let ns = scene.ns.name();
    for line in [
        "trustplane_routes{state=\"Managed\",reason=\"SecretInjected\"} 1".to_owned(),
        "trustplane_routes{state=\"Default\",reason=\"NoCertificate\"} 1".to_owned(),
        format!("trustplane_certificate_not_after_seconds{{namespace=\"{ns}\",route=\"shop\"}} 1"),
        "trustplane_writes_total{kind=\"pair\",outcome=\"ok\"} 2".to_owned(),
        "trustplane_writes_total{kind=\"event\",outcome=\"ok\"} 2".to_owned(),
        "trustplane_reconcile_duration_seconds_count".to_owned(),
        "\ntrustplane_queue_depth 0\n".to_owned(),
        "\ntrustplane_leader 1\n".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    // The renewal, and the first injection where the watch brought the Secret after the Route.
    let timed = metrics
        .lines()
        .find_map(|line| line.strip_prefix("trustplane_secret_to_route_seconds_count "));
    assert!(matches!(timed, Some("1" | "2")), "{timed:?}\n{metrics}");
    assert_eq!(scene.controller.page("/livez").await.0, 200);
}

/// A controller whose write of a pair is held up on its way to the API server.
async fn held_up(prefix: &str, issued: &Pair) -> (Namespace, Controller, Proxy, Gate) {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace(prefix).await;
    let gate = Gate::closed();
    let closed = gate.clone();
    let proxy = Proxy::start(&cluster, move |asked| match asked.is_write_to("routes/shop") {
        true => Fault::HoldBeforeForward(closed.clone()),
        false => Fault::Forward,
    })
    .await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());
    let mut controller = Launch::within(&ns).kubeconfig(kubeconfig).start();
    controller.ready().await;
    SecretFixture::tls("shop-tls", issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    gate.reached_by(1).await;
    (ns, controller, proxy, gate)
}

#[tokio::test]
async fn sigterm_finishes_the_write_under_way_and_exits_well() {
    let issued = pair::issued("shop.example.com");
    let (ns, mut controller, _proxy, gate) = held_up("graceful", &issued).await;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        gate.open();
    });

    let (code, took) = controller.terminate().await;

    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(ns.route_holds("shop", &issued).await, "what was under way was finished");
    let said = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
    assert_eq!(ns.certificate_condition("shop").await, said);
}

#[tokio::test]
async fn sigterm_is_obeyed_in_time_even_when_the_api_server_hangs() {
    let issued = pair::issued("shop.example.com");
    let (_ns, mut controller, _proxy, _gate) = held_up("hanging", &issued).await;

    let (code, took) = controller.terminate().await;

    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn our_requests_carry_our_name_and_version() {
    let scene = Scene::new("agent").await;
    scene.ns.quiet(SILENCE).await;
    let requests = scene.ns.cluster().audit().by_account();
    let ours: Vec<_> = requests.iter().filter(|entry| entry.namespace == scene.ns.name()).collect();
    assert!(!ours.is_empty());
    let agent = concat!("trustplane/", env!("CARGO_PKG_VERSION"));
    assert!(ours.iter().all(|entry| entry.user_agent == agent), "{:?}", ours[0].user_agent);
}

#[tokio::test]
async fn secrets_of_other_types_are_neither_listed_nor_watched() {
    let scene = Scene::new("selector").await;
    scene.ns.quiet(SILENCE).await;
    let requests = scene.ns.cluster().audit().by_account();
    let ours = requests.iter().filter(|entry| {
        entry.namespace == scene.ns.name() && entry.resource == "secrets" && entry.verb != "get"
    });
    let (selecting, other): (Vec<&str>, Vec<&str>) = ours
        .map(|entry| entry.uri.as_str())
        .partition(|uri| uri.contains("fieldSelector=type%3Dkubernetes.io%2Ftls"));
    assert_eq!((selecting.len(), other.len()), (2, 0), "a list and a watch: {other:?}");
}
