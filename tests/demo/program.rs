//! The built program: `trustplane sandbox` and `trustplane demo`.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Client, Config};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use trustplane::demo::certificate_summary::CertificateSummary;
use trustplane::demo::tour::probe::probe;

use testkit::tied::{self, Tied};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trustplane");
const TIMEOUT: Duration = Duration::from_secs(20);
const STEPS: usize = 8;

/// The running program, with its output in a file. It is killed with the test.
struct Running {
    tied: Tied,
    folder: TempDir,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command =
            tied::command(Path::new("/usr/bin/env"), &folder.path().join("output"), None);
        // Tests may run under `nohup`, and the program would inherit its ignored SIGHUP.
        command.args(["--default-signal=HUP", PROGRAM]);
        command.args(arguments).args(["--api-port", "0", "--edge-port", "0", "--kubeconfig"]);
        command.arg(folder.path().join("kubeconfig")).env_remove("RUST_LOG");
        Self { tied: Tied::spawn(command).unwrap(), folder }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Its output so far.
    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap_or_default()
    }

    async fn says(&self, words: &str) -> String {
        let start = Instant::now();
        loop {
            let output = self.output();
            if output.contains(words) {
                return output;
            }
            assert!(start.elapsed() < TIMEOUT, "{words:?} is not in: {output}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops it. Returns its exit code and how long it took.
    async fn stop(&mut self, signal: Signal) -> (Option<i32>, Duration) {
        let start = Instant::now();
        self.tied.signal(signal);
        (self.tied.ended(TIMEOUT).await, start.elapsed())
    }
}

#[tokio::test]
async fn the_tour_shows_every_step_and_ends_well() {
    let mut demo = Running::start(&["demo", "--exit"]);
    let code = demo.tied.ended(Duration::from_secs(60)).await;
    let output = demo.output();
    assert_eq!(code, Some(0), "{output}");
    for number in 1..=STEPS {
        let title = format!("\n{number}  ");
        assert!(output.contains(&title), "step {number} is not in: {output}");
    }
    let held = format!("{STEPS} of {STEPS} steps showed what they should");
    assert!(output.contains(&held), "{output}");
    for said in [
        "Default (NoCertificate)",
        "Managed (SecretInjected)",
        "SecretNotFound: ",
        "SecretInvalid: ",
    ] {
        assert!(output.contains(said), "{said} is not in: {output}");
    }
    assert!(!output.contains('\x1b'), "colours in a file: {output:?}");
    assert!(!output.contains("PRIVATE KEY"), "a key is shown");
    assert!(!output.contains(" INFO ") && !output.contains(" WARN "), "{output}");
    let widest = output.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 100), "{output}");
    assert!(!demo.kubeconfig().exists(), "the kubeconfig is left behind");
}

#[tokio::test]
async fn the_tour_for_scripts_is_one_json_object() {
    let mut demo =
        Running::start(&["demo", "--exit", "-o", "json", "--secret-missing-grace", "300ms"]);
    assert_eq!(demo.tied.ended(Duration::from_secs(60)).await, Some(0), "{}", demo.output());
    let report: Value = serde_json::from_str(&demo.output()).expect("JSON alone");
    assert_eq!(report["holds"], true);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), STEPS);
    for step in steps {
        assert_eq!(step["differences"], json!([]));
        assert!(step["served"]["certificate"]["sha256"].is_string(), "{step}");
        assert!(step["seconds"].is_f64());
    }
    assert!(!demo.output().contains("PRIVATE KEY"), "a key is shown");
}

#[tokio::test]
async fn after_the_tour_the_sandbox_stays_until_it_is_asked_to_end() {
    let mut demo = Running::start(&["demo", "--exit=false", "--secret-missing-grace", "300ms"]);
    let output = demo.says("Ctrl-C ends it").await;
    assert!(output.contains("export KUBECONFIG="), "{output}");
    assert!(output.contains("curl --resolve shop.example.com:"), "{output}");
    assert!(demo.kubeconfig().exists());
    let (code, took) = demo.stop(Signal::TERM).await;
    assert_eq!(code, Some(0), "{}", demo.output());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_tour_that_is_stopped_half_way_says_so_by_its_exit_code_and_leaves_nothing() {
    let mut demo = Running::start(&["demo", "--exit"]);
    demo.says("\n4  ").await;
    let (code, took) = demo.stop(Signal::INT).await;
    assert_eq!(code, Some(130), "{}", demo.output());
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!demo.kubeconfig().exists(), "the kubeconfig is left behind");
    assert!(!demo.output().contains("error:"), "{}", demo.output());
}

#[tokio::test]
async fn the_sandbox_is_its_owners_alone_and_ends_within_two_seconds_whoever_is_connected() {
    let mut sandbox = Running::start(&["sandbox", "-o", "json"]);
    let access: Value = serde_json::from_str(&sandbox.says("}\n").await).unwrap();
    assert_eq!(access["kubeconfig"], sandbox.kubeconfig().to_str().unwrap());
    let mode = fs::metadata(sandbox.kubeconfig()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let kubeconfig = Kubeconfig::read_from(sandbox.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::all(Client::try_from(config).unwrap());
    assert!(secrets.list(&ListParams::default()).await.is_ok());
    let watch = secrets.watch(&Default::default(), "0").await;
    assert!(watch.is_ok(), "a watch is open");
    let edge = edge_of(&access);
    let mut silent = TcpStream::connect(edge).unwrap();

    let (code, took) = sandbox.stop(Signal::TERM).await;
    assert_eq!(code, Some(0), "{}", sandbox.output());
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!sandbox.kubeconfig().exists(), "the kubeconfig is left behind");
    silent.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_terminal_that_is_closed_ends_sandbox_and_demo_and_leaves_nothing() {
    let demo = &["demo", "--exit=false"][..];
    for (command, signal) in
        [(&["sandbox"][..], Signal::HUP), (demo, Signal::HUP), (demo, Signal::QUIT)]
    {
        let arguments = [command, &["--secret-missing-grace", "300ms"]].concat();
        let mut running = Running::start(&arguments);
        running.says("Ctrl-C ends it").await;
        let (code, took) = running.stop(signal).await;
        assert_eq!(code, Some(0), "{command:?}: {}", running.output());
        assert!(took < Duration::from_secs(2), "{command:?}: {took:?}");
        assert!(!running.kubeconfig().exists(), "{command:?} leaves the kubeconfig behind");
    }
}

#[tokio::test]
async fn the_sandbox_says_how_to_reach_it_and_what_it_does_not_do() {
    let mut sandbox = Running::start(&["sandbox"]);
    let output = sandbox.says("Ctrl-C ends it").await;
    for said in [
        "export KUBECONFIG=",
        "curl --resolve shop.example.com:",
        "kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls",
        "RBAC",
        "server-side apply",
        "nothing is stored",
    ] {
        assert!(output.contains(said), "{said:?} is not in: {output}");
    }
    // Indented, the delimiter would not end the here-document.
    assert!(output.lines().any(|line| line == "EOF"), "{output}");
    let (code, took) = sandbox.stop(Signal::INT).await;
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Address of the edge, from the JSON for scripts.
fn edge_of(access: &Value) -> SocketAddr {
    let url = access["edge"].as_str().expect("an address");
    url.strip_prefix("https://").expect("a URL").parse().unwrap()
}

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).env_remove("RUST_LOG").env_remove("NO_COLOR");
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn without_a_terminal_the_tour_ends_by_itself_and_breaks_no_word_at_50_or_80_columns() {
    let arguments =
        ["demo", "--api-port", "0", "--edge-port", "0", "--secret-missing-grace", "300ms"];
    for width in [50, 80] {
        let start = Instant::now();
        let ended = run(&arguments, &[("COLUMNS", &width.to_string())]);
        let shown = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success() && start.elapsed() < TIMEOUT, "{shown}");
        assert!(shown.contains("The sandbox has ended too"), "{shown}");
        let one_word = |line: &str| line.trim().trim_end_matches(" \\").split(' ').count() == 1;
        let too_long = |line: &&str| line.chars().count() > width && !one_word(line);
        assert_eq!(shown.lines().find(too_long), None, "{width}:\n{shown}");
    }
}

#[test]
fn colours_can_be_forced_and_switched_off() {
    let arguments = [
        "demo",
        "--exit",
        "--api-port",
        "0",
        "--edge-port",
        "0",
        "--secret-missing-grace",
        "300ms",
    ];
    let colours = run(&arguments, &[("CLICOLOR_FORCE", "1")]);
    assert!(colours.status.success() && colours.stdout.contains(&0x1b));
    let none = run(&arguments, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(none.status.success() && !none.stdout.contains(&0x1b));
}

#[test]
fn a_port_that_is_taken_is_an_error_that_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--api-port", "--edge-port"] {
        let other = if flag == "--api-port" { "--edge-port" } else { "--api-port" };
        let ended = run(&["sandbox", flag, &port, other, "0"], &[]);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("Choose another with {flag}")), "{said}");
    }
}

#[test]
fn one_port_for_both_is_an_error_of_its_own() {
    let ended = run(&["sandbox", "--api-port", "7443", "--edge-port", "7443"], &[]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("--api-port and --edge-port are both 7443"), "{said}");
}

#[test]
fn a_reader_that_goes_away_ends_the_tour_in_silence() {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--exit", "--api-port", "0", "--edge-port", "0"]).env_remove("RUST_LOG");
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(demo.stdout.take());
    let ended = demo.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn an_invalid_rust_log_is_reported() {
    let arguments = ["demo", "--exit", "--api-port", "0", "--edge-port", "0", "-o", "json"];
    let ended = run(&arguments, &[("RUST_LOG", "trustplane=loud")]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && said.contains("RUST_LOG is ignored"), "{said}");
}

#[tokio::test]
async fn with_no_inject_the_sandbox_leaves_routes_to_an_injector_of_yours() {
    let mut sandbox = Running::start(&["sandbox", "--no-inject", "--verbose", "-o", "json"]);
    sandbox.says("\"pid\":").await;
    let kubeconfig = Kubeconfig::read_from(sandbox.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let route = json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": "shop" },
        "spec": {
            "host": "shop.example.com",
            "to": { "kind": "Service", "name": "any" },
            "tls": { "termination": "edge" },
        },
    });
    let routes = "/apis/route.openshift.io/v1/namespaces/default/routes";
    let request = Request::post(routes).header("content-type", "application/json");
    let request = request.body(route.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap();
    let start = Instant::now();
    let admitted = loop {
        let request = Request::get(format!("{routes}/shop")).body(Vec::new()).unwrap();
        let route = client.request::<Value>(request).await.unwrap();
        if route["status"]["ingress"].is_array() {
            break route;
        }
        assert!(start.elapsed() < TIMEOUT, "the edge does not admit the Route");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(admitted["status"]["certificate"].is_null(), "{admitted}");
    let (code, _) = sandbox.stop(Signal::TERM).await;
    assert_eq!(code, Some(0), "{}", sandbox.output());
}

#[test]
fn a_file_that_is_there_is_not_overwritten_with_a_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, "mine").unwrap();
    let ended = run(
        &["sandbox", "--api-port", "0", "--edge-port", "0", "--kubeconfig", path.to_str().unwrap()],
        &[],
    );
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

/// With libraries logging at trace level.
#[tokio::test]
async fn neither_a_key_nor_the_token_reaches_the_log_at_any_level() {
    let folder = tempfile::tempdir().unwrap();
    let (log, kubeconfig) = (folder.path().join("output"), folder.path().join("kubeconfig"));
    let mut command = tied::command(Path::new(PROGRAM), &log, None);
    command.args(["sandbox", "-o", "json", "--api-port", "0", "--edge-port", "0", "--kubeconfig"]);
    command.arg(&kubeconfig).env("RUST_LOG", "trace");
    let mut sandbox = Running { tied: Tied::spawn(command).unwrap(), folder };
    let output = sandbox.says("\"pid\":").await;
    let access = output.lines().find(|line| line.starts_with('{')).unwrap();
    let access: Value = serde_json::from_str(access).unwrap();
    let edge = edge_of(&access);

    let text = fs::read_to_string(&kubeconfig).unwrap();
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let read = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let pair = trustplane::demo::authority::self_signed("any", &[], chrono::Utc::now()).unwrap();
    let key = BASE64_STANDARD.encode(pair.key.expose());
    let certificate = BASE64_STANDARD.encode(&pair.certificate);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "shop-tls" }, "type": "kubernetes.io/tls",
        "data": { "tls.crt": certificate, "tls.key": key },
    });
    let route = json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {
            "name": "shop",
            "annotations": { "route.openshift.io/tls-secret-name": "shop-tls" },
        },
        "spec": {
            "host": "shop.example.com",
            "to": { "kind": "Service", "name": "any" },
            "tls": { "termination": "edge" },
        },
    });
    for (path, object) in [
        ("/api/v1/namespaces/default/secrets", secret),
        ("/apis/route.openshift.io/v1/namespaces/default/routes", route),
    ] {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        assert!(client.request::<Value>(request).await.is_ok(), "{path} takes it");
    }
    let sha256 = CertificateSummary::of(&pair.der).sha256;
    let start = Instant::now();
    while probe(edge, "shop.example.com").await.unwrap().certificate.sha256 != sha256 {
        assert!(start.elapsed() < TIMEOUT, "the pair is not served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (code, _) = sandbox.stop(Signal::TERM).await;
    assert_eq!(code, Some(0));

    let output = sandbox.output();
    assert!(output.contains("TRACE"), "the log is at its most talkative");
    let body: Vec<_> = pair.key.expose().lines().filter(|line| !line.contains("-----")).collect();
    for (what, part) in [
        ("key", body[0]),
        ("key in base64", &key[40..80]),
        ("label of a key", "PRIVATE KEY"),
        ("token", token),
    ] {
        assert!(!output.contains(part), "the {what} is in the log");
    }
}
