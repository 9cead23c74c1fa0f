//! The API server's audit log: requests and when they were answered. Times are the server's own, so
//! no observer takes processor time from the measurement.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use testkit::{
    ACCOUNT,
    audit::{ObjectRef, ResponseStatus, User},
};

use crate::population::{LONE, RouteRef, SINGLE};

/// Bodies only where the written pair matters, so no other key reaches the log. Requests of the
/// administrator are not logged.
pub fn policy() -> String {
    format!(
        "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [admin, 'system:apiserver']
- level: Request
  namespaces: [{LONE}]
  resources: [{{group: route.openshift.io, resources: [routes]}}]
- level: Metadata
"
    )
}

/// Polling interval, long enough to cost nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout, longer than any measurement.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Request {
    /// Whether the controller sent it.
    pub ours: bool,
    pub verb: Box<str>,
    /// `routes`, `routes/status`.
    pub kind: Box<str>,
    pub place: RouteRef,
    pub code: u16,
    pub received: DateTime<Utc>,
    pub answered: DateTime<Utc>,
    /// Whether it is a list of all objects.
    pub lists: bool,
    /// The resourceVersion that a watch starts from.
    pub watches_from: Option<Box<str>>,
    /// The pair in a patch of the lone Route.
    pub certificate: Option<Box<str>>,
}

impl Request {
    pub fn is_good(&self, verb: &str, kind: &str) -> bool {
        *self.verb == *verb && *self.kind == *kind && (200..300).contains(&self.code)
    }

    /// Whether it is the controller's patch of a pair.
    pub fn is_pair(&self) -> bool {
        self.ours && self.is_good("patch", "routes")
    }

    /// Whether it is the controller's write of a Route's status.
    pub fn is_status(&self) -> bool {
        self.ours && self.is_good("patch", "routes/status")
    }

    /// Whether it is our renewal of a Secret.
    pub fn is_renewal(&self) -> bool {
        !self.ours && self.is_good("patch", "secrets")
    }

    /// Whether it is the plain client's single patch.
    pub fn is_single(&self) -> bool {
        !self.ours && self.is_good("patch", "routes") && *self.place.name == *SINGLE
    }

    /// Whether it is the plain client's read before that patch.
    pub fn is_single_read(&self) -> bool {
        !self.ours && self.is_good("get", "routes") && *self.place.name == *SINGLE
    }

    /// Whether it is the controller's read of a Secret, found or not.
    pub fn is_secret_read(&self) -> bool {
        self.ours && *self.verb == *"get" && *self.kind == *"secrets"
    }

    pub fn milliseconds(&self) -> f64 {
        seconds_between(self.received, self.answered) * 1e3
    }

    /// Whether it is a write of the controller, its Lease aside.
    pub fn is_write(&self) -> bool {
        let writes = matches!(&*self.verb, "create" | "update" | "patch" | "delete");
        // Access and token reviews are creates too, but store nothing.
        let stored = !self.kind.ends_with("reviews") && *self.kind != *"leases";
        self.ours && writes && stored
    }
}

/// Follows an audit log.
pub struct Journal {
    path: PathBuf,
    offset: u64,
    requests: Vec<Request>,
}

#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Journal {
    pub fn following(path: PathBuf) -> Self {
        Self { path, offset: 0, requests: Vec::new() }
    }

    pub fn mark(&mut self) -> anyhow::Result<Mark> {
        self.read_new_lines()?;
        Ok(Mark(self.requests.len()))
    }

    /// Requests answered since that moment.
    pub fn since(&mut self, mark: Mark) -> anyhow::Result<&[Request]> {
        self.read_new_lines()?;
        Ok(&self.requests[mark.0..])
    }

    /// Requests answered in between.
    pub fn between(&self, from: Mark, to: Mark) -> &[Request] {
        &self.requests[from.0..to.0]
    }

    /// Passes every request since that moment to `look` as it arrives, until `look` is satisfied.
    pub async fn until(
        &mut self,
        what: &str,
        mark: Mark,
        mut look: impl FnMut(&Request) -> bool,
    ) -> anyhow::Result<()> {
        let (mut next, mut last_news) = (mark.0, Instant::now());
        loop {
            self.read_new_lines()?;
            while let Some(request) = self.requests.get(next) {
                next += 1;
                if request.is_write() || request.is_renewal() {
                    last_news = Instant::now();
                }
                if look(request) {
                    return Ok(());
                }
            }
            if last_news.elapsed() > TIMEOUT {
                bail!("nothing happens any more, and still to come: {what}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the controller has written nothing for `silence`. Returns the mark of its last
    /// write.
    pub async fn quiet(&mut self, silence: Duration) -> anyhow::Result<Mark> {
        let mut since = Instant::now();
        let mut seen = self.requests.len();
        while since.elapsed() < silence {
            tokio::time::sleep(POLL_INTERVAL).await;
            self.read_new_lines()?;
            if self.requests[seen..].iter().any(Request::is_write) {
                since = Instant::now();
            }
            seen = self.requests.len();
        }
        self.mark()
    }

    fn read_new_lines(&mut self) -> anyhow::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            // The last line may be incomplete.
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            self.offset += read as u64;
            self.requests.extend(Entry::of(&line)?);
        }
    }
}

/// Counts the controller's requests by verb and kind, failed ones separately.
pub fn by_verb<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests.into_iter().filter(|request| request.ours) {
        let kind = if request.kind.is_empty() { "other" } else { &*request.kind };
        let failed = match request.code {
            200..300 => String::new(),
            code => format!(", answered with {code}"),
        };
        *counts.entry(format!("{} {kind}{failed}", request.verb)).or_default() += 1;
    }
    counts
}

pub fn seconds_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).num_microseconds().unwrap_or(i64::MAX) as f64 / 1e6
}

/// The fields of audit.k8s.io/v1 Event that we read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_object: Option<RouteSent>,
    request_received_timestamp: DateTime<Utc>,
    stage_timestamp: DateTime<Utc>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RouteSent {
    spec: SpecSent,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecSent {
    tls: TlsSent,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TlsSent {
    certificate: Option<Box<str>>,
}

impl Entry {
    /// The request, if it is one of the controller's, a renewal, or a single patch.
    fn of(line: &[u8]) -> anyhow::Result<Option<Request>> {
        let entry: Self = serde_json::from_slice(line)?;
        // A watch is answered when it starts.
        let answered = if entry.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        let ours = entry.user.username == ACCOUNT;
        let renewal = entry.verb == "patch" && entry.object_ref.resource == "secrets";
        let single = entry.object_ref.name == SINGLE;
        if entry.stage != answered || !(ours || renewal || single) {
            return Ok(None);
        }
        let watches_from =
            (entry.verb == "watch").then(|| parameter(&entry.request_uri, "resourceVersion"));
        let lists = entry.verb == "list" || entry.request_uri.contains("sendInitialEvents=true");
        let object = entry.object_ref;
        let kind = match &*object.subresource {
            "" => object.resource,
            subresource => format!("{}/{subresource}", object.resource),
        };
        Ok(Some(Request {
            ours,
            lists,
            watches_from: watches_from.flatten(),
            verb: entry.verb.into(),
            kind: kind.into(),
            place: RouteRef::new(&object.namespace, &object.name),
            code: entry.response_status.code,
            received: entry.request_received_timestamp,
            answered: entry.stage_timestamp,
            certificate: entry.request_object.and_then(|route| route.spec.tls.certificate),
        }))
    }
}

fn parameter(uri: &str, name: &str) -> Option<Box<str>> {
    let (_, query) = uri.split_once('?')?;
    let mut all = form_urlencoded::parse(query.as_bytes());
    all.find(|(key, _)| key == name).map(|(_, value)| value.into())
}
