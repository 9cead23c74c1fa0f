//! `trustplane uninstall`: what becomes of Routes, and that nothing is done that was not shown.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use futures::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{
    Cluster, Controller, Namespace, Pair, RouteFixture, SecretFixture, TestServer, eventually,
    pair,
    proxy::{Fault, Gate, Proxy},
};
use tokio::io::AsyncWriteExt;
use trustplane::names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION};

use crate::program::{Ran, command, trustplane};

const PATIENCE: Duration = Duration::from_secs(60);
const MANY: usize = 400;

/// A namespace with a Route of each kind, as a controller left it that has stopped.
struct Stage {
    ns: Namespace,
    kubeconfig: PathBuf,
    shop: Pair,
    own: Pair,
}

impl Stage {
    async fn new(prefix: &str) -> Self {
        let cluster = Cluster::get().await;
        let kubeconfig = cluster.kubeconfig(cluster.admin_access());
        Self::on(TestServer::Real(cluster), kubeconfig, prefix).await
    }

    async fn on(server: TestServer, kubeconfig: PathBuf, prefix: &str) -> Self {
        let ns = server.namespace(prefix).await;
        let (shop, own) = (pair::issued("shop.example.com"), pair::issued("own.example.com"));
        SecretFixture::tls("shop-tls", &shop).create(&ns).await;
        let routes = [
            RouteFixture::reencrypt("shop", &shop.authority).annotated("shop-tls"),
            RouteFixture::edge("own").holding(&own).annotated("absent"),
            RouteFixture::passthrough("through").annotated("shop-tls"),
            RouteFixture::edge("plain"),
            RouteFixture::edge("ingress")
                .annotated("shop-tls")
                .owned_by_ingress("networking.k8s.io/v1"),
        ];
        for route in routes {
            route.create(&ns).await;
        }
        let mut controller = Controller::start(&ns, &["--secret-missing-grace", "0s"]).await;
        let stage = Self { ns, kubeconfig, shop, own };
        for (route, state, reason) in [
            ("shop", Some("Managed"), "SecretInjected"),
            ("own", Some("Custom"), "SecretNotFound"),
            ("through", None, "PassthroughTermination"),
            ("plain", Some("Default"), "NoCertificate"),
        ] {
            let expected = Some((state.map(str::to_owned), reason.to_owned()));
            eventually(PATIENCE, "the Route's condition", async || {
                let seen = stage.ns.certificate_condition(route).await;
                if seen == expected { Ok(()) } else { Err(seen) }
            })
            .await;
        }
        controller.terminate().await;
        stage
    }

    /// Runs it for this namespace, where nothing is installed.
    async fn uninstall(&self, arguments: &[&str]) -> Ran {
        let ns = self.ns.name();
        let limits = ["uninstall", "--namespace", ns, "--install-namespace", ns];
        trustplane(&self.kubeconfig, &[&limits, arguments].concat()).await
    }

    /// Every Route, without what only counts versions.
    async fn routes(&self) -> Vec<Value> {
        let mut routes = Vec::new();
        for name in ["shop", "own", "through", "plain", "ingress"] {
            routes.push(self.ns.route(name).await);
        }
        routes
    }

    /// Writes of the command to this namespace.
    fn writes(&self) -> Vec<String> {
        let entries = self.ns.cluster().audit().entries();
        let ours = entries.iter().filter(|entry| {
            entry.namespace == self.ns.name()
                && entry.user == "admin"
                && entry.user_agent.starts_with("trustplane/")
                && entry.is_write()
        });
        let mut writes: Vec<_> = ours.map(|entry| entry.to_string()).collect();
        writes.sort();
        writes
    }

    /// Whether this pair stands in a Route that carries neither annotation nor condition of ours.
    async fn is_let_go(&self, route: &str, pair: Option<&Pair>) {
        let found = self.ns.route(route).await;
        for annotation in [SECRET_NAME_ANNOTATION, INJECTED_ANNOTATION] {
            assert!(
                found["metadata"]["annotations"][annotation].is_null(),
                "{route}: {annotation}"
            );
        }
        assert!(found["status"]["certificate"].is_null(), "{route} still has a condition");
        let expected =
            pair.map_or_else(Default::default, |it| (it.certificate.clone(), it.key.clone()));
        assert!(self.ns.pair_in_route(route).await == expected, "{route} holds another pair");
    }
}

const EVERY_WRITE: [&str; 7] = [
    "patch routes/own",
    "patch routes/own/status",
    "patch routes/plain/status",
    "patch routes/shop",
    "patch routes/shop/status",
    "patch routes/through",
    "patch routes/through/status",
];

#[tokio::test]
async fn without_a_choice_both_are_shown_and_nothing_is_changed() {
    let stage = Stage::new("choice").await;
    let before = stage.routes().await;

    let ran = stage.uninstall(&[]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("--routes=keep or --routes=clear"), "{ran:?}");
    let shop = ran.out.lines().find(|line| line.contains(" shop ")).expect("a line for shop");
    assert!(shop.contains("shop-tls") && shop.contains("certificate and key stay"), "{ran:?}");
    assert!(shop.ends_with("certificate and key removed"), "{ran:?}");
    assert!(ran.out.contains("Routes of an Ingress, which are left alone: 1"), "{ran:?}");

    for arguments in [
        &["--dry-run"][..],
        &["--routes=clear", "--dry-run"],
        &["--routes=keep", "--dry-run", "-o", "json"],
    ] {
        let ran = stage.uninstall(arguments).await;
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = stage.uninstall(&["--routes=clear"]).await;
    assert_eq!(ran.code, 2, "nobody can be asked: {ran:?}");
    assert!(ran.err.contains("Add --yes"), "{ran:?}");

    assert!(stage.routes().await == before, "a Route was changed");
    assert_eq!(stage.writes(), [""; 0]);
}

/// Runs it on a terminal of this width, where somebody types this.
async fn on_a_terminal(stage: &Stage, columns: u16, typed: &str) -> (Option<i32>, String) {
    let ns = stage.ns.name();
    let wide = format!("stty cols {columns} rows 24;");
    let words = [
        &wide,
        env!("CARGO_BIN_EXE_trustplane"),
        "uninstall --routes=clear --namespace",
        ns,
        "--install-namespace",
        ns,
    ];
    let mut child = tokio::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"])
        .env("KUBECONFIG", &stage.kubeconfig)
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("script of util-linux is there");
    let mut keyboard = child.stdin.take().expect("it is piped");
    keyboard.write_all(format!("{typed}\n").as_bytes()).await.expect("typed");
    let output = child.wait_with_output().await.expect("it ends");
    drop(keyboard);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn on_a_terminal_it_asks_and_only_yes_is_a_yes() {
    let stage = Stage::new("terminal").await;
    for columns in [50, 80] {
        let (code, shown) = on_a_terminal(&stage, columns, "no").await;
        assert_eq!(code, Some(2), "{shown}");
        // The answer was typed before the question came, so its line does not end with it.
        let shown = strip_str(&shown).to_string().replace("go on: ", "go on:\n");
        let broken =
            |line: &&str| line.trim().chars().count() > columns.into() && line.trim().contains(' ');
        assert_eq!(shown.lines().find(broken), None, "{columns}:\n{shown}");
    }
    let (_, shown) = on_a_terminal(&stage, 80, "no").await;
    let question = "Remove the injected certificate and key from 1 Route, the annotations from 3 Routes \
                    and .status.certificate from 4 Routes? Type yes to go on:";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&shown).contains(question), "{shown}");
    assert!(shown.contains("error: nothing was changed"), "{shown}");
    assert_eq!(stage.writes(), [""; 0]);

    let (code, shown) = on_a_terminal(&stage, 80, "yes").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\x1b["), "there is somebody to see colours: {shown:?}");
    stage.is_let_go("shop", None).await;
}

#[tokio::test]
async fn keep_leaves_every_pair_in_place_as_the_routes_own() {
    let stage = Stage::new("keep").await;
    let before = stage.routes().await;

    let ran = stage.uninstall(&["--routes=keep", "--yes", "-o", "json"]).await;

    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["routes"], "keep");
    let plan = report["plan"].as_array().expect("a plan");
    assert!(plan.iter().all(|entry| entry["result"] == "done"), "{report}");
    stage.is_let_go("shop", Some(&stage.shop)).await;
    stage.is_let_go("own", Some(&stage.own)).await;
    for route in ["through", "plain"] {
        stage.is_let_go(route, None).await;
    }
    let after = stage.routes().await;
    assert!(after[4] == before[4], "a Route of an Ingress was changed");
    for (before, after) in before.iter().zip(&after) {
        assert!(before["spec"] == after["spec"], "a spec was changed");
    }
    assert_eq!(stage.writes(), EVERY_WRITE);

    // Run again, there is nothing left to do.
    let ran = stage.uninstall(&["--routes=clear", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("No Route has to be changed."), "{ran:?}");
    assert_eq!(stage.writes(), EVERY_WRITE);

    // Installed again, it takes the pair for the owner's.
    let _controller = Controller::start(&stage.ns, &[]).await;
    eventually(PATIENCE, "the Route holds its own pair", async || {
        let seen = stage.ns.certificate_condition("shop").await;
        let custom = Some((Some("Custom".to_owned()), "CertificateInRoute".to_owned()));
        if seen == custom { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn clear_takes_out_what_was_injected_and_nothing_else() {
    let stage = Stage::new("clear").await;
    let ran = stage.uninstall(&["--routes=clear", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("Routes done: 4 of 4."), "{ran:?}");
    stage.is_let_go("shop", None).await;
    stage.is_let_go("own", Some(&stage.own)).await;
    let shop = stage.ns.route("shop").await;
    assert_eq!(shop["spec"]["tls"]["termination"], "reencrypt");
    assert!(shop["spec"]["tls"]["destinationCACertificate"].is_string(), "it was the user's");
    let ingress = stage.ns.route("ingress").await;
    assert_eq!(ingress["metadata"]["annotations"][SECRET_NAME_ANNOTATION], "shop-tls");
    assert_eq!(stage.writes(), EVERY_WRITE, "one write a Route, and one for its status");
}

#[tokio::test]
async fn both_work_on_the_sandbox() {
    let server = TestServer::sandbox().await;
    let kubeconfig = server.controller_kubeconfig();
    for (choice, keeps) in [("--routes=keep", true), ("--routes=clear", false)] {
        let stage = Stage::on(server.clone(), kubeconfig.clone(), "sandbox").await;
        let ran = stage.uninstall(&[choice, "--yes"]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        stage.is_let_go("shop", keeps.then_some(&stage.shop)).await;
        stage.is_let_go("own", Some(&stage.own)).await;
    }
}

#[tokio::test]
async fn it_refuses_while_a_controller_leads_and_does_no_harm_when_told_to_go_on() {
    let stage = Stage::new("leads").await;
    stage.ns.allow_leases().await;
    let flags = ["--leader-elect", "--leader-elect-namespace", stage.ns.name()];
    let mut controller = Controller::start(&stage.ns, &flags).await;
    eventually(PATIENCE, "it leads", async || {
        let metrics = controller.metrics().await;
        if metrics.contains("trustplane_leader 1") { Ok(()) } else { Err("not yet") }
    })
    .await;

    let ran = stage.uninstall(&["--routes=clear", "--yes"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("error: trustplane still runs: "), "{ran:?}");
    assert!(stage.ns.route_holds("shop", &stage.shop).await);

    let ran = stage.uninstall(&["--routes=keep", "--yes", "--while-running"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    eventually(PATIENCE, "the controller takes the pair for the owner's", async || {
        let seen = stage.ns.certificate_condition("shop").await;
        let custom = Some((Some("Custom".to_owned()), "CertificateInRoute".to_owned()));
        if seen == custom { Ok(()) } else { Err(seen) }
    })
    .await;
    assert!(stage.ns.route_holds("shop", &stage.shop).await);

    controller.terminate().await;
    let ran = stage.uninstall(&["--routes=keep", "--yes"]).await;
    assert_eq!(ran.code, 0, "a released Lease is no controller: {ran:?}");
    stage.is_let_go("shop", Some(&stage.shop)).await;
}

#[tokio::test]
async fn it_refuses_while_the_deployment_asks_for_replicas_and_says_how_to_stop_it() {
    let stage = Stage::new("scaled").await;
    let ns = stage.ns.name();
    let arguments = ["uninstall", "--namespace", ns, "--routes=clear", "--yes"];
    let ran = trustplane(&stage.kubeconfig, &arguments).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let command = "kubectl -n trustplane scale deployment/trustplane-inject --replicas=0";
    assert!(ran.err.contains(command), "{ran:?}");
    assert!(stage.ns.route_holds("shop", &stage.shop).await);
}

#[tokio::test]
async fn a_route_that_somebody_changes_in_the_meantime_is_decided_on_its_new_state() {
    let stage = Stage::new("conflict").await;
    let cluster = stage.ns.cluster().clone();
    let (gate, seen) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let proxy = {
        let (gate, seen) = (gate.clone(), seen.clone());
        Proxy::start(&cluster, move |request| {
            let first =
                request.is_write_to("routes/shop") && seen.fetch_add(1, Ordering::SeqCst) == 0;
            if first { Fault::HoldBeforeForward(gate.clone()) } else { Fault::Forward }
        })
        .await
    };
    let through = cluster.kubeconfig(&cluster.admin_access().through(proxy.url()));
    let stage = Stage { kubeconfig: through, ..stage };
    let edit = async {
        gate.reached_by(1).await;
        let own = json!({ "certificate": stage.own.certificate, "key": stage.own.key });
        stage.ns.patch_route("shop", json!({ "spec": { "tls": own } })).await;
        gate.open();
    };
    let (ran, ()) = tokio::join!(stage.uninstall(&["--routes=clear", "--yes"]), edit);
    assert_eq!(ran.code, 0, "{ran:?}");
    // What was decided from the old Route would have taken the user's new pair out.
    stage.is_let_go("shop", Some(&stage.own)).await;
    assert!(stage.writes().contains(&"patch routes/shop (409)".to_owned()), "{:?}", stage.writes());
}

#[tokio::test]
async fn conditions_go_although_the_api_server_does_not_say_that_it_keeps_them() {
    let stage = Stage::new("openapi").await;
    let cluster = stage.ns.cluster().clone();
    let proxy = Proxy::start(&cluster, |request| {
        let asks = request.path.starts_with("/openapi/");
        if asks { Fault::answer(503, "not now") } else { Fault::Forward }
    })
    .await;
    let through = cluster.kubeconfig(&cluster.admin_access().through(proxy.url()));
    let stage = Stage { kubeconfig: through, ..stage };

    let ran = stage.uninstall(&["--routes=clear", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    stage.is_let_go("shop", None).await;
    assert_eq!(stage.writes(), EVERY_WRITE);
}

#[tokio::test]
async fn who_may_not_patch_routes_is_told_so_for_each_and_nothing_is_half_done() {
    let stage = Stage::new("rights").await;
    let (ns, cluster) = (stage.ns.name(), stage.ns.cluster());
    cluster.kubectl(&["-n", ns, "create", "serviceaccount", "user"]).await.expect("made");
    let rights = ["--verb=get,list", "--resource=routes.route.openshift.io,deployments,leases"];
    cluster
        .kubectl(&[&["-n", ns, "create", "role", "reader"], &rights[..]].concat())
        .await
        .expect("made");
    let user = format!("--serviceaccount={ns}:user");
    cluster
        .kubectl(&["-n", ns, "create", "rolebinding", "reader", "--role=reader", &user])
        .await
        .expect("made");
    let token = cluster.token_of(ns, "user").await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token(token));
    let before = stage.routes().await;
    let stage = Stage { kubeconfig, ..stage };
    let ran = eventually(PATIENCE, "the role is in force", async || {
        let ran = stage.uninstall(&["--routes=clear", "--yes"]).await;
        if ran.code == 1 { Ok(ran) } else { Err(ran) }
    })
    .await;
    assert!(ran.out.contains("Routes done: 0 of 4."), "{ran:?}");
    assert!(ran.out.contains(&format!("Route {}/shop: ", stage.ns.name())), "{ran:?}");
    assert!(ran.out.contains("forbidden (HTTP 403)"), "{ran:?}");
    assert!(stage.routes().await == before, "a Route was changed");
}

#[tokio::test]
async fn interrupted_in_the_middle_of_many_routes_it_goes_on_where_it_ended() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("many").await;
    let shop = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &shop).create(&ns).await;
    stream::iter(0..MANY)
        .for_each_concurrent(16, async |number| {
            RouteFixture::edge(&format!("r{number}")).annotated("shop-tls").create(&ns).await;
        })
        .await;
    let mut controller = Controller::start(&ns, &["--status", "off"]).await;
    eventually(PATIENCE, "every Route holds the pair", async || {
        let held = holding(&ns).await;
        if held == MANY { Ok(()) } else { Err(held) }
    })
    .await;
    controller.terminate().await;

    // Most writes have to wait until it was interrupted.
    let (gate, seen) = (Gate::closed(), AtomicUsize::new(0));
    let proxy = {
        let gate = gate.clone();
        Proxy::start(&cluster, move |request| {
            let early =
                request.method == http::Method::GET || seen.fetch_add(1, Ordering::SeqCst) < 50;
            if early { Fault::Forward } else { Fault::HoldBeforeForward(gate.clone()) }
        })
        .await
    };
    let through = cluster.kubeconfig(&cluster.admin_access().through(proxy.url()));
    let name = ns.name();
    let arguments = [
        "uninstall",
        "--namespace",
        name,
        "--install-namespace",
        name,
        "--routes=clear",
        "--yes",
        "-o",
        "json",
    ];
    let running = command(&through, &arguments)
        .env("RUST_LOG", "error")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = running.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("a pid");
    gate.reached_by(1).await;
    kill_process(pid, Signal::INT).expect("it runs");
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    let output = running.wait_with_output().await.expect("it ends");
    let left = holding(&ns).await;
    println!("interrupted with {left} of {MANY} Routes to go");
    assert_eq!(output.status.code(), Some(130), "stopped before its end");
    assert!((1..MANY).contains(&left), "{left}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let count = |result: &str| {
        let plan = report["plan"].as_array().expect("a plan");
        plan.iter().filter(|entry| entry["result"] == result).count()
    };
    assert_eq!((count("done"), count("not-tried")), (MANY - left, left), "nothing is half done");

    let kubeconfig = cluster.kubeconfig(cluster.admin_access());
    let start = Instant::now();
    let ran = trustplane(&kubeconfig, &arguments).await;
    println!("{left} Routes took {:?}", start.elapsed());
    assert_eq!(ran.code, 0);
    assert_eq!(holding(&ns).await, 0);
}

/// How many Routes hold a certificate; each has both its annotations, or neither.
async fn holding(ns: &Namespace) -> usize {
    let routes = ns.routes().list(&Default::default()).await.expect("Routes can be listed");
    let holds = |route: &Value| route["spec"]["tls"]["certificate"].is_string();
    let mut count = 0;
    for route in routes {
        let asks = route
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|it| it.contains_key(SECRET_NAME_ANNOTATION));
        let held = holds(&route.data);
        assert!(asks || !held, "a pair without its annotation");
        count += usize::from(held);
    }
    count
}
