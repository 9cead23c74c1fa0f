//! `make stack`: the stack for a person to try, until Ctrl-C.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use testkit::{
    suite,
    tied::{self, Tied},
    toolbox,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Stack;

/// Moves the folder, for tests that run beside a person's stack.
pub const PLACE: &str = "TRUSTPLANE_STACK";
/// The last line that is printed once the stack is up.
pub const UP: &str = "Ctrl-C ends all of it and leaves nothing.";

/// Starts the stack for a person, and stays until Ctrl-C.
pub async fn stay() -> ExitCode {
    match start_and_wait().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn start_and_wait() -> Result<(), String> {
    let mut ending = Ending::new().map_err(|error| format!("signals: {error}"))?;
    let home = Home::claim()?;
    suite::keep_in(&home.path);
    println!("Starting the stack, in about 15 seconds.");
    let start = Instant::now();
    let stack = tokio::select! {
        started = Stack::start("stack") => started?,
        () = ending.wait() => return Ok(()),
    };
    home.write("kubeconfig", &fs::read_to_string(stack.kubeconfig()).unwrap_or_default());
    home.write("try.yaml", TRY);
    println!("The stack is up after {:.0} s.\n", start.elapsed().as_secs_f64());
    println!("{}", how_to_use(&stack, &home.path, &toolbox()?));
    ending.wait().await;
    // The reader of our output may be gone.
    let _ = writeln!(std::io::stdout(), "Stopping.");
    stack.stop().await;
    Ok(())
}

fn how_to_use(stack: &Stack, home: &Path, tools: &Path) -> String {
    let (home, tools) = (home.display(), tools.display());
    let program = Path::new(env!("CARGO_BIN_EXE_trustplane")).parent();
    let program = program.expect("a file is in a folder").display();
    let (router, port) = (stack.router(), stack.router().port());
    let host = TRY_HOST;
    format!(
        "  export KUBECONFIG={home}/kubeconfig PATH={tools}:{program}:$PATH

A Route that asks for a Secret, and a Certificate that cert-manager makes the Secret from:

  kubectl apply -f {home}/try.yaml
  kubectl -n shop get certificate,route -o wide
  curl -kv --resolve {host}:{port}:127.0.0.1 https://{host}:{port}/

HAProxy serves TLS at {router}; the name that a client asks for picks the Route. It follows a Route
about a second later, and shows its default certificate, \"Test leaf\", before. To renew, and see
what trustplane said:

  kubectl -n shop delete secret shop-tls     # cert-manager makes a new one at once
  kubectl -n shop events --for route/shop

The suite against this stack, as a stranger would run it on a cluster:

  TRUSTPLANE_E2E_ROUTER={router} make e2e-cluster

No kubelet runs here: trustplane check counts 0 ready replicas, scaling the Deployment stops nobody,
and trustplane uninstall wants --while-running.

Logs of all parts are below {home}.
{UP}"
    )
}

const TRY_HOST: &str = "shop.example.com";
const TRY: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata:
  name: shop
  namespace: shop
  annotations: {route.openshift.io/tls-secret-name: shop-tls}
spec:
  host: shop.example.com
  to: {kind: Service, name: shop}
  tls: {termination: edge}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned, namespace: shop}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop, namespace: shop}
spec:
  secretName: shop-tls
  commonName: shop.example.com
  dnsNames: [shop.example.com]
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: selfsigned}
";

/// The folder at a fixed place. It goes however this process ends.
struct Home {
    path: PathBuf,
    _keeper: Tied,
}

impl Home {
    fn claim() -> Result<Self, String> {
        let usual = || testkit::target_folder().join("stack");
        let path = env::var_os(PLACE).map_or_else(usual, PathBuf::from);
        let owner = fs::read_to_string(path.join("pid")).ok().and_then(|pid| pid.parse().ok());
        if let Some(owner) = owner.filter(|pid| tied::is_alive(*pid)) {
            return Err(format!("a stack is up already: process {owner}. Stop it first."));
        }
        suite::private_folder(&path);
        let mut command = tied::command(Path::new("sleep"), Path::new("/dev/null"), Some(&path));
        command.arg("infinity");
        let keeper = Tied::spawn(command).map_err(|error| format!("e2e/tied: {error}"))?;
        let home = Self { path, _keeper: keeper };
        home.write("pid", &std::process::id().to_string());
        Ok(home)
    }

    fn write(&self, name: &str, content: &str) {
        suite::write_private(&self.path.join(name), content);
    }
}

/// Signals that end the stack.
struct Ending([Signal; 3]);

impl Ending {
    fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Self([signal(interrupt)?, signal(terminate)?, signal(hangup)?]))
    }

    async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
