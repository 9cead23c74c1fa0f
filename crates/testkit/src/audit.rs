//! The API server's audit log, which shows the writes of our account.
//!
//! The log holds bodies of writes to Routes, private keys included. It stays in the suite's folder,
//! and nothing printed here contains a body.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::access::ACCOUNT;

/// Timeout of [`AuditLog::wait_quiet`].
const TIMEOUT: Duration = Duration::from_secs(120);

/// Follows an audit log. Each query reads the lines added since the last one.
pub struct AuditLog {
    path: PathBuf,
    read: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    offset: u64,
    entries: Vec<Arc<Entry>>,
    /// Requests of our account by namespace, cached because tests poll them.
    writes: HashMap<String, Vec<Write>>,
}

/// One request at one stage.
#[derive(Clone, PartialEq)]
pub struct Entry {
    pub user: String,
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// 0 if the server never answered.
    pub code: u16,
    pub request_object: Option<Value>,
    pub user_agent: String,
    /// ResponseStarted (of watches), ResponseComplete or Panic.
    pub stage: String,
    pub uri: String,
    /// When the request arrived.
    pub time: DateTime<Utc>,
    pub audit_id: String,
}

impl AuditLog {
    /// Follows the log at `path`, which need not exist yet.
    pub fn following(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// All entries so far, in the server's order.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.caught_up().entries.clone()
    }

    /// Every request of our account.
    pub fn by_account(&self) -> Vec<Arc<Entry>> {
        self.entries().into_iter().filter(|entry| entry.user == ACCOUNT).collect()
    }

    /// Writes of our account to a namespace, in order, including refused ones.
    pub fn writes_by_account(&self, namespace: &str) -> Writes {
        Writes(self.caught_up().writes.get(namespace).cloned().unwrap_or_default())
    }

    /// Names of the Secrets in a namespace that our account read with a get, in order.
    pub fn secrets_read_by_account(&self, namespace: &str) -> Vec<String> {
        let is_read = |entry: &&Arc<Entry>| {
            entry.verb == "get"
                && entry.resource == "secrets"
                && entry.namespace == namespace
                && entry.stage == "ResponseComplete"
        };
        let requests = self.by_account();
        requests.iter().filter(is_read).map(|entry| entry.name.clone()).collect()
    }

    /// Forbidden requests of our account.
    pub fn forbidden_by_account(&self) -> Vec<Arc<Entry>> {
        let refused = |entry: &Arc<Entry>| entry.code == 403 && entry.stage == "ResponseComplete";
        self.by_account().into_iter().filter(refused).collect()
    }

    /// The permissions that our account used: group, resource with subresource, verb.
    pub fn permissions_used(&self) -> HashSet<(String, String, String)> {
        let granted = self
            .by_account()
            .into_iter()
            .filter(|entry| !entry.resource.is_empty() && entry.code != 403);
        granted
            .map(|entry| (entry.group.clone(), entry.kind_of_object(), entry.verb.clone()))
            .collect()
    }

    /// Waits until our account has written nothing to a namespace for `silence`. Returns all its
    /// writes there.
    pub async fn wait_quiet(&self, namespace: &str, silence: Duration) -> Writes {
        let start = Instant::now();
        let (mut writes, mut since) = (self.writes_by_account(namespace), Instant::now());
        while since.elapsed() < silence {
            assert!(
                start.elapsed() < TIMEOUT,
                "our account never stopped writing to {namespace}: {writes:?}"
            );
            tokio::time::sleep(Duration::from_millis(25).min(silence)).await;
            let now = self.writes_by_account(namespace);
            if now.len() != writes.len() {
                (writes, since) = (now, Instant::now());
            }
        }
        writes
    }
}

impl AuditLog {
    fn caught_up(&self) -> MutexGuard<'_, Progress> {
        let mut progress = self.read.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        progress.catch_up(&self.path);
        progress
    }
}

impl Progress {
    fn catch_up(&mut self, path: &PathBuf) {
        let mut added = Vec::new();
        let Ok(mut file) = File::open(path) else {
            return;
        };
        file.seek(SeekFrom::Start(self.offset))
            .and_then(|_| file.read_to_end(&mut added))
            .expect("the audit log can be read");
        // An incomplete last line is read with the next query.
        let Some(end) = added.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        self.offset += end as u64 + 1;
        for line in added[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = serde_json::from_slice(line).expect("a line of the log is an event");
            let entry = Arc::new(Entry::from(event));
            if entry.user == ACCOUNT && entry.is_write() {
                self.writes.entry(entry.namespace.clone()).or_default().push(Write(entry.clone()));
            }
            self.entries.push(entry);
        }
    }
}

impl Entry {
    /// Whether it is a completed write.
    pub fn is_write(&self) -> bool {
        matches!(&*self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
            && self.stage == "ResponseComplete"
    }

    /// `routes`, `routes/status`.
    pub fn kind_of_object(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// `routes/shop`, `routes/shop/status`; `events` without their generated names.
    pub fn object(&self) -> String {
        let name = if self.resource == "events" { "" } else { &*self.name };
        let parts = [&*self.resource, name, &*self.subresource];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.object())?;
        if !(200..300).contains(&self.code) {
            write!(formatter, " ({})", self.code)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the body, which may hold a key.
        write!(formatter, "{} {} {self} {}", self.time.format("%T%.3f"), self.user, self.uri)
    }
}

/// One write. Displays as `patch routes/shop`, with the code in parentheses if it was refused.
#[derive(Clone)]
pub struct Write(Arc<Entry>);

impl Deref for Write {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.0
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0.to_string())
    }
}

impl PartialEq<&str> for Write {
    fn eq(&self, other: &&str) -> bool {
        self.0.to_string() == *other
    }
}

/// Writes in order. Comparable with strings: `assert_eq!(writes, ["patch routes/shop"])`.
#[derive(Clone, Debug, Default)]
pub struct Writes(Vec<Write>);

impl Writes {
    /// Only writes to the user's objects: no Events and Leases.
    pub fn to_objects(&self) -> Self {
        self.filtered(|write| write.resource != "events" && write.resource != "leases")
    }

    pub fn to_events(&self) -> Self {
        self.filtered(|write| write.resource == "events")
    }

    pub fn to_leases(&self) -> Self {
        self.filtered(|write| write.resource == "leases")
    }

    /// Writes to one object, named as in [`Entry::object`].
    pub fn to(&self, object: &str) -> Self {
        self.filtered(|write| write.object() == object)
    }

    /// Successful writes.
    pub fn committed(&self) -> Self {
        self.filtered(|write| (200..300).contains(&write.code))
    }

    /// Writes after the first `count`.
    pub fn since(&self, count: usize) -> Self {
        Self(self.0.iter().skip(count).cloned().collect())
    }

    fn filtered(&self, keep: impl Fn(&Write) -> bool) -> Self {
        Self(self.0.iter().filter(|write| keep(write)).cloned().collect())
    }
}

impl Deref for Writes {
    type Target = [Write];

    fn deref(&self) -> &[Write] {
        &self.0
    }
}

impl<const N: usize> PartialEq<[&str; N]> for Writes {
    fn eq(&self, other: &[&str; N]) -> bool {
        self.0 == *other
    }
}

impl PartialEq<Vec<&str>> for Writes {
    fn eq(&self, other: &Vec<&str>) -> bool {
        self.0 == *other
    }
}

/// The fields of audit.k8s.io/v1 Event that we read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_object: Option<Value>,
    request_received_timestamp: DateTime<Utc>,
}

#[derive(Deserialize)]
pub struct User {
    #[serde(default)]
    pub username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub api_group: String,
}

#[derive(Default, Deserialize)]
pub struct ResponseStatus {
    #[serde(default)]
    pub code: u16,
}

impl From<Event> for Entry {
    fn from(event: Event) -> Self {
        let object = event.object_ref;
        Self {
            user: event.user.username,
            verb: event.verb,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            code: event.response_status.code,
            request_object: event.request_object,
            user_agent: event.user_agent,
            stage: event.stage,
            uri: event.request_uri,
            time: event.request_received_timestamp,
            audit_id: event.audit_id,
        }
    }
}
