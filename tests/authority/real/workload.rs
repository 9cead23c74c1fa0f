//! From SPIRE's Workload API over `trustplane agent` to a workload of ours. Both workloads are go-spiffe's
//! (e2e/spiffe-verdict), and the agent is the built program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    Controller, Launch,
    spiffe_verdict::{self, SpiffeVerdict, is_ok},
    spire::SpireAgent,
    suite,
};

use super::spire::{Both, SPIRE, rotate_spire};
use crate::{
    join::TOKENS,
    peer::Profile,
    stage::{FEDERATIONS, OWN, eventually},
};

const NODE: &str = "spiffe://spire.test/node";
/// Updates that a workload may get before the one that a test waits for.
const MOST_UPDATES: usize = 12;

/// A process that got its identity from a Workload API, and has its subscription open.
struct Workload {
    program: SpiffeVerdict,
    update: Value,
    /// Of the subscription, which go-spiffe opens again.
    errors: Vec<Value>,
}

impl Workload {
    fn subscribe(socket: &Path) -> Self {
        let mut program = SpiffeVerdict::start();
        let update = program.ask(&spiffe_verdict::subscribe(socket));
        assert!(is_ok(&update), "{update}");
        Self { program, update, errors: Vec::new() }
    }

    fn id(&self) -> &str {
        self.update["id"].as_str().expect("an ID")
    }

    fn trust_domains(&self) -> Vec<&str> {
        self.update["bundles"].as_object().expect("bundles").keys().map(String::as_str).collect()
    }

    /// The authorities of a trust domain, as it was told last.
    fn authorities(&self, trust_domain: &str) -> Vec<&str> {
        let bundle = self.update["bundles"][trust_domain].as_array();
        bundle.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Reads the subscription until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..MOST_UPDATES {
            if holds(self) {
                return;
            }
            match self.program.ask(&spiffe_verdict::update()) {
                update if is_ok(&update) => self.update = update,
                error => self.errors.push(error),
            }
        }
        panic!("not within {MOST_UPDATES} updates: {what}\n{} {:?}", self.update, self.errors);
    }

    fn serve(&mut self, trust_domain: &str) -> String {
        let answer = self.program.ask(&spiffe_verdict::serve(trust_domain));
        answer["address"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn dial(&mut self, address: &str, id: &str) -> Value {
        self.program.ask(&spiffe_verdict::dial(address, id))
    }
}

/// One of ours and one of SPIRE's, each with a TLS server for the other's trust domain.
struct Pair {
    ours: Workload,
    theirs: Workload,
    at_ours: String,
    at_theirs: String,
}

impl Pair {
    fn new(mut ours: Workload, mut theirs: Workload) -> Self {
        let (at_ours, at_theirs) = (ours.serve(SPIRE), theirs.serve(OWN));
        Self { ours, theirs, at_ours, at_theirs }
    }

    /// Each as the client of the other.
    fn dial(&mut self) -> [Value; 2] {
        let (ours, theirs) = (self.ours.id().to_owned(), self.theirs.id().to_owned());
        [self.ours.dial(&self.at_theirs, &theirs), self.theirs.dial(&self.at_ours, &ours)]
    }

    fn assert_mutual_tls(&mut self) {
        let ids = [self.ours.id(), self.theirs.id()].map(str::to_owned);
        let answers = self.dial();
        for (answer, id) in answers.iter().zip(ids) {
            assert_eq!(answer["seen_as"], id, "{answer}");
        }
    }
}

/// A machine with an agent of SPIRE, and what users start our programs with.
struct Machine {
    files: TempDir,
    spire: SpireAgent,
    server: String,
}

impl Machine {
    async fn new(both: &Both) -> Self {
        let token = json!({
            "apiVersion": "trustplane.dev/v1", "kind": "JoinToken", "metadata": { "name": "nodes" },
            "spec": {
                "roles": ["Agent"], "joinMethod": "spiffe",
                "spiffe": { "allow": [{ "spiffeID": NODE }] },
            },
        });
        let created = both.stage.ask(Method::POST, TOKENS, token);
        assert_eq!(created["kind"], "JoinToken", "{created}");
        eventually("joins are served", || both.replica.authority.join_address().is_some()).await;
        let server = both.replica.authority.join_address().unwrap().to_string();
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("bundle.json"), both.stage.document()).unwrap();
        let spire = SpireAgent::start_for(&both.spire, NODE, &[OWN]).await;
        Self { files, spire, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Of every command that joins.
    fn flags(&self, command: &str) -> Vec<String> {
        let bundle = self.file("bundle.json").display().to_string();
        let workload_api = format!("unix://{}", self.spire.socket().display());
        let flags = [
            command,
            "--role=agent",
            "--token=nodes",
            &format!("--server={}", self.server),
            &format!("--server-bundle={bundle}"),
            &format!("--trust-domain={OWN}"),
            &format!("--workload-api={workload_api}"),
        ];
        flags.map(str::to_owned).to_vec()
    }

    fn socket(&self) -> PathBuf {
        self.file("agent.sock")
    }

    async fn start_agent(&self) -> Controller {
        let mut flags = self.flags("agent");
        flags.push(format!("--socket={}", self.socket().display()));
        flags.extend(["--listen=127.0.0.1:0", "--log-format=json"].map(str::to_owned));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        // To check that even the most verbose log holds no key.
        let launch = Launch::exactly("agent", &flags, PathBuf::new()).env("RUST_LOG", "trace");
        let mut agent = launch.start();
        agent.ready().await;
        agent
    }

    /// Runs `trustplane join`.
    async fn join(&self) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trustplane"));
        command.env_clear().args(self.flags("join")).arg("--out").arg(self.file("identity"));
        let output = command.output().await.unwrap();
        if let Ok(key) = fs::read_to_string(self.file("identity/svid_key.pem")) {
            suite::register_key(&key);
        }
        output
    }
}

/// SPIRE's authority before the last, which no workload of SPIRE uses any more.
async fn old_authority(both: &Both) -> String {
    let shown = both.spire.ask(&["localauthority", "x509", "show", "-output", "json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown["old"]["authority_id"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_of_ours_and_one_of_spires_trust_each_other_through_a_rotation_until_the_federation_ends()
 {
    let both = Both::start("workload", Profile::Spiffe).await;
    let machine = Machine::new(&both).await;
    let mut agent = machine.start_agent().await;
    let ours = Workload::subscribe(&machine.socket());
    let mut theirs = Workload::subscribe(&machine.spire.socket());
    assert!(ours.id().starts_with(&format!("spiffe://{OWN}/agent/")), "{}", ours.id());
    assert_eq!((theirs.id(), ours.trust_domains()), (NODE, vec![OWN, SPIRE]));
    theirs.until("SPIRE's has our bundle", |it| it.trust_domains() == [OWN, SPIRE]);
    let mut pair = Pair::new(ours, theirs);
    pair.assert_mutual_tls();
    let joined = machine.join().await;
    assert!(joined.status.success(), "{joined:?}");

    // A new authority is announced, signs, and is in the end the only one.
    let first: Vec<_> = pair.ours.authorities(SPIRE).into_iter().map(str::to_owned).collect();
    let chain = pair.theirs.update["chain"].clone();
    rotate_spire(&both).await;
    pair.ours.until("SPIRE's next authority is told", |it| it.authorities(SPIRE).len() == 2);
    let old = old_authority(&both).await;
    both.spire.ask(&["localauthority", "x509", "taint", "-authorityID", &old]).await;
    pair.theirs.until("SPIRE's SVID is renewed", |it| it.update["chain"] != chain);
    pair.assert_mutual_tls();
    both.spire.ask(&["localauthority", "x509", "revoke", "-authorityID", &old]).await;
    let is_alone = |it: &Workload| it.authorities(SPIRE).len() == 1;
    pair.ours.until("the old authority is redacted", is_alone);
    assert_ne!(pair.ours.authorities(SPIRE), first);
    pair.assert_mutual_tls();

    both.stage.delete(&format!("{FEDERATIONS}/{SPIRE}"));
    pair.ours.until("SPIRE's bundle is redacted", |it| it.trust_domains() == [OWN]);
    for answer in pair.dial() {
        assert!(!is_ok(&answer), "{answer}");
    }
    // SPIRE's agent denies its identity for a moment while it renews a tainted one. Ours never does.
    assert_eq!(pair.ours.errors, Vec::<Value>::new());
    let refused = machine.join().await;
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    let reasons = both.stage.records();
    let reason = reasons.iter().rfind(|it| it["event"] == "agent.join").unwrap();
    assert!(text.contains(reason["id"].as_str().unwrap()), "{text} {reason}");
    assert_eq!(reason["check"], "federation");
    assert_eq!(agent.terminate().await.0, 0);
    both.replica.stop().await;
}
