//! go-spiffe, the library of SPIFFE's own project, as a second opinion: e2e/spiffe-verdict, which says
//! what questions and answers are.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::LazyLock,
    thread,
};

use openssl::base64::encode_block;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::tools::go;

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

    /// Answers in the order of the questions.
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
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer to {question}"))
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
