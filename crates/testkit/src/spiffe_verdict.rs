//! go-spiffe, the library of SPIFFE's own project, as a second opinion: e2e/spiffe-verdict, which says
//! what questions and answers are.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::LazyLock,
    thread,
};

use openssl::base64::{decode_block, encode_block};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::{
    at,
    suite::{self, KeyOf},
    tools::go,
};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| go::program("e2e/spiffe-verdict"));

/// The running program. It ends with this, and with the test process in any case.
pub struct SpiffeVerdict {
    process: Child,
    /// None when it is time to end.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl SpiffeVerdict {
    pub fn start() -> Self {
        let mut process = Command::new(&*PROGRAM)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spiffe-verdict runs");
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { process, questions, answers }
    }

    pub fn ask(&mut self, question: &Value) -> Value {
        self.ask_all(std::slice::from_ref(question)).remove(0)
    }

    /// Answers in the order of the questions. The key of a workload is not in them.
    pub fn ask_all(&mut self, questions: &[Value]) -> Vec<Value> {
        let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
        let input = self.questions.as_mut().expect("it ends only with this");
        let output = &mut self.answers;
        thread::scope(|scope| {
            // Neither side can keep all that the other has to say.
            let asking = scope.spawn(move || {
                input.write_all(lines.as_bytes())?;
                input.flush()
            });
            let answers = questions.iter().map(|question| {
                let mut line = String::new();
                output.read_line(&mut line).expect("an answer");
                let answer = serde_json::from_str(&line);
                without_key(answer.unwrap_or_else(|_| panic!("no answer to {}", question["op"])))
            });
            let answers = answers.collect();
            asking.join().expect("no panic").expect("all was asked");
            answers
        })
    }
}

impl Drop for SpiffeVerdict {
    fn drop(&mut self) {
        self.questions = None;
        let _ = self.process.wait();
    }
}

/// Registers the key that a workload was given, and takes it out of what tests print.
fn without_key(mut answer: Value) -> Value {
    let key = answer.as_object_mut().and_then(|it| it.remove("key"));
    if let Some(key) = key {
        let key = key.as_str().and_then(|it| decode_block(it).ok());
        suite::register_der_key(KeyOf::Workload, &key.expect("a key in base64"));
    }
    answer
}

pub fn is_ok(answer: &Value) -> bool {
    answer["ok"] == true
}

/// Whether it is a SPIFFE ID.
pub fn id(text: &str) -> Value {
    json!({ "op": "id", "text": text })
}

/// Whether it is the bundle of a trust domain.
pub fn bundle(trust_domain: &str, document: &str) -> Value {
    json!({ "op": "bundle", "td": trust_domain, "document": document })
}

/// Whether the chain is of an SVID of the trust domain, which has this bundle.
pub fn verify(trust_domain: &str, document: &str, chain: &[CertificateDer<'_>]) -> Value {
    let chain: Vec<_> = chain.iter().map(|der| encode_block(der)).collect();
    json!({ "op": "verify", "td": trust_domain, "document": document, "chain": chain })
}

/// Whether it is a JWT-SVID of the trust domain, which has this bundle, for the audience.
pub fn validate(trust_domain: &str, document: &str, token: &str, audience: &str) -> Value {
    json!({
        "op": "validate", "td": trust_domain, "document": document, "token": token, "audience": audience,
    })
}

/// Asks an endpoint of the profile https_web for the bundle of a trust domain.
pub fn fetch_web(trust_domain: &str, url: &str, roots: &str) -> Value {
    let profile = "https_web";
    json!({ "op": "fetch", "td": trust_domain, "url": url, "profile": profile, "roots": roots })
}

/// Asks an endpoint of the profile https_spiffe. The document is the bundle of the endpoint's own trust
/// domain.
pub fn fetch_spiffe(trust_domain: &str, url: &str, endpoint_id: &str, document: &str) -> Value {
    json!({
        "op": "fetch",
        "td": trust_domain,
        "url": url,
        "profile": "https_spiffe",
        "endpoint_id": endpoint_id,
        "document": document,
    })
}

/// What a workload is told first by the Workload API at a socket. One process has one subscription.
pub fn subscribe(socket: &Path) -> Value {
    json!({ "op": "subscribe", "socket": socket })
}

/// What it is told next.
pub fn update() -> Value {
    json!({ "op": "update" })
}

/// The workload listens for members of a trust domain.
pub fn serve(trust_domain: &str) -> Value {
    json!({ "op": "serve", "td": trust_domain })
}

/// The workload connects to the one with this ID.
pub fn dial(address: &str, id: &str) -> Value {
    json!({ "op": "dial", "address": address, "endpoint_id": id })
}

/// Attempts to join a trust domain, which has this bundle, all at once.
pub fn join(trust_domain: &str, document: &str, server_id: &str, attempts: &[Value]) -> Value {
    json!({
        "op": "join",
        "td": trust_domain,
        "document": document,
        "endpoint_id": server_id,
        "proto": at("proto"),
        "attempts": attempts,
    })
}
