//! Checks every history: the invariants I1 to I8 of the injector, and that its Events and
//! conditions are true. Decisions are compared with a second implementation of the table (`table`).

mod behaviour;
mod claims;
mod events;

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use apiserver::kinds;
use chrono::{DateTime, Utc};
use http::Method;
use serde_json::Value;
use tokio::time::Instant;
use trustplane::{
    demo::api_server,
    inject::decide::{plan::Policy, secret_state::SecretState},
    names::INJECT_LEASE,
};

use crate::{
    case::Case,
    cluster::Cluster,
    faults::Fault,
    journal::{Actor, Call, Commit, Journal},
    pool::{Content, pool},
    world::World,
};
use testkit::route_table::{self as table, Model, Requested};

/// Longest time between a read and the write that is based on it: two calls take no longer.
const FRESH: Duration = Duration::from_secs(25);
/// More identical writes to one Route within ten minutes mean that the revert back-off does not
/// work.
const FIGHT: usize = 15;
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// All violations in this history.
pub fn violations(world: &World, case: &Case) -> Vec<String> {
    let journal = world.journal();
    let mut found = journal.violations.clone();
    let history = History { journal: &journal, policy: &world.policy, faults: &case.faults };
    if case.faults.is_empty() {
        found.extend(history.unreported());
        found.extend(history.hasty_clears());
    }
    found.extend(history.hot_loops(case.steps.len()));
    found.extend(journal.calls.iter().filter_map(|call| history.not_ours_to_send(call)));
    found.extend(history.strange_reads());
    let own = journal.commits.iter().filter(|commit| commit.by.is_ours());
    found.extend(own.filter_map(|commit| history.wrong_commit(commit)));
    found.extend(history.repeated_writes());
    found.extend(history.empty_writes());
    found.extend(history.fights());
    found.extend(history.false_claims(Instant::now()));
    let quiet_from = world.calls_until_quiet.load(Ordering::Relaxed) as usize;
    found.extend(history.writes_in_the_quiet(quiet_from));
    if !case.extra_time.is_zero() {
        found.extend(history.not_renewed(Instant::now()));
    }
    let lost_an_event = history.lost_an_event();
    drop(journal);
    found.extend(not_converged(world, lost_an_event));
    found
}

/// Keys in logs, Events, conditions or metrics (I6).
pub fn leaks(world: &World, log: &str) -> Vec<String> {
    let journal = world.journal();
    let events = journal.commits.iter().filter(|commit| commit.change.kind.plural == "events");
    let events: String = events
        .filter_map(|commit| commit.change.after.as_ref())
        .map(|event| event.to_string())
        .collect();
    let places = [("a log", log), ("an Event", &events), ("a metric", &world.metrics())];
    let leaking = |text: &str| pool().needles.iter().any(|needle| text.contains(needle.as_str()));
    places
        .into_iter()
        .filter(|(_, text)| leaking(text))
        .map(|(place, _)| format!("I6: a key stands in {place}"))
        .collect()
}

/// Hash of the history, which must be the same in two runs of a case.
pub fn digest(cluster: &Cluster) -> u64 {
    let journal = cluster.journal();
    let mut hasher = DefaultHasher::new();
    let start = journal.calls.first().map(|call| call.sent);
    for commit in &journal.commits {
        let change = &commit.change;
        (start.map(|start| commit.at - start), commit.by, change.version).hash(&mut hasher);
        (change.kind.plural, &change.namespace, &change.name).hash(&mut hasher);
    }
    journal.calls.len().hash(&mut hasher);
    hasher.finish()
}

/// Prints the history call by call: `TRUSTPLANE_TRACE=1` together with one seed or one plan.
pub fn print(cluster: &Cluster) {
    let journal = cluster.journal();
    let start = journal.calls[0].sent;
    let mut commits = journal.commits.iter().peekable();
    for (number, call) in journal.calls.iter().enumerate() {
        let code = call.answered.as_ref().map(|(_, code, _)| *code);
        println!("{:?} {:?} {} {} {code:?}", call.sent - start, call.by, call.method, call.path);
        while let Some(commit) = commits.next_if(|commit| commit.call <= number) {
            let change = &commit.change;
            println!("    version {} at {:?}", change.version, commit.at - start);
        }
    }
}

struct History<'a> {
    journal: &'a Journal,
    policy: &'a Policy,
    faults: &'a [Fault],
}

impl History<'_> {
    fn call(&self, commit: &Commit) -> &Call {
        &self.journal.calls[commit.call]
    }

    /// Converts to the table's times.
    fn time(&self, at: Instant) -> DateTime<Utc> {
        let start = self.journal.calls[0].sent;
        DateTime::<Utc>::UNIX_EPOCH + (at - start)
    }

    fn not_ours_to_send(&self, call: &Call) -> Option<String> {
        let about = (call.target.resource.as_str(), call.target.subresource.as_deref());
        let fine = match (&call.method, about) {
            (&Method::GET, ("routes" | "secrets" | "events" | "leases", None)) => true,
            (&Method::PATCH, ("routes", None | Some("status")) | ("events", None)) => true,
            (&Method::POST, ("events" | "leases", None)) => true,
            (&Method::PUT, ("leases", None)) => true,
            _ => call.path.starts_with("/openapi/v3"),
        };
        let wrong = call.by.is_ours() && !fine;
        wrong.then(|| format!("I2: {} {} is none of our business", call.method, call.path))
    }

    /// Reads of Secrets that no Route of the namespace ever named (I4).
    fn strange_reads(&self) -> Vec<String> {
        let states = self.journal.commits.iter().filter_map(|commit| commit.change.after.as_ref());
        let asked_for: HashSet<(&str, &str)> = states
            .filter_map(|route| {
                let name = route["metadata"]["annotations"][table::ASKS].as_str()?;
                Some((route["metadata"]["namespace"].as_str()?, name))
            })
            .collect();
        let reads = self.journal.calls.iter().filter(|call| call.by.is_ours());
        reads
            .filter(|call| call.target.is_about("secrets"))
            .filter_map(|call| {
                let place = (call.target.namespace.as_deref()?, call.target.name.as_deref()?);
                let strange = !asked_for.contains(&place);
                strange.then(|| format!("I4: {} was read, and nobody asked for it", call.path))
            })
            .collect()
    }

    fn wrong_commit(&self, commit: &Commit) -> Option<String> {
        let change = &commit.change;
        let place = format!("{} {}/{}", change.kind.plural, change.namespace, change.name);
        let wrong = match (change.kind.plural, &change.before, &change.after) {
            ("leases", _, Some(_)) if *change.name == *INJECT_LEASE => None,
            ("events", _, Some(event)) => self.mistaken_event(event, commit),
            ("routes", Some(before), Some(after)) => {
                if self.call(commit).target.subresource.is_some() {
                    untrue_status(before, after)
                } else {
                    self.unjustified(commit, before, after)
                }
            }
            _ => Some("I8: we neither create nor delete this".to_owned()),
        };
        wrong.map(|wrong| format!("{wrong} ({place}, version {})", change.version))
    }

    /// Whether the write is the table's, for the Route at that moment and the Secret as it was read
    /// shortly before (I2, I3, I5).
    fn unjustified(&self, commit: &Commit, before: &Value, after: &Value) -> Option<String> {
        let route = Model(before.clone());
        if !matches(after) {
            return Some("I3: key and certificate do not match".to_owned());
        }
        let call = self.call(commit);
        let reads = self.reads(call, &route);
        if reads.is_empty() {
            return Some("decided without a look at the Secret".to_owned());
        }
        let justified = reads.iter().any(|seen| {
            let write = route.write(seen.requested(&route), self.time(call.sent), self.policy);
            let expected = route.after(write, seen.pair(&route), seen.identity(), None);
            write.is_some() && same(&expected.0, after)
        });
        (!justified).then(|| {
            let asked: Vec<_> = reads
                .iter()
                .map(|seen| {
                    let requested = seen.requested(&route);
                    let write = route.write(requested, self.time(call.sent), self.policy);
                    format!("row {} {write:?} of {:?}", route.row(requested), seen.content())
                })
                .collect();
            format!("the table asks for another write: {}", asked.join(" or "))
        })
    }

    /// The process's reads of the Route's Secret; a single arbitrary one if the Secret does not
    /// matter.
    fn reads(&self, write: &Call, route: &Model) -> Vec<Seen> {
        let nothing = Seen::new(None, DateTime::<Utc>::MIN_UTC);
        let Some(name) = deciding_secret(route) else { return vec![nothing] };
        let namespace = route.0["metadata"]["namespace"].as_str();
        let mut missing_since = None;
        let mut seen = Vec::new();
        let reads = self.journal.calls.iter().filter(|call| {
            call.by == write.by
                && call.target.is_about("secrets")
                && call.target.namespace.as_deref() == namespace
                && call.target.name.as_deref() == Some(name)
        });
        let mut answers: Vec<_> = reads.filter_map(|read| read.answered.as_ref()).collect();
        answers.retain(|(at, ..)| *at <= write.sent);
        answers.sort_by_key(|(at, ..)| *at);
        for (at, code, object) in answers {
            let secret = match code {
                200 => object.clone(),
                404 => None,
                _ => continue,
            };
            missing_since = match secret {
                Some(_) => None,
                None => missing_since.or(Some(self.time(*at))),
            };
            if write.sent - *at <= FRESH {
                seen.push(Seen::new(secret, missing_since.unwrap_or_default()));
            }
        }
        seen
    }

    /// Two writes in a row without a change of the Route or its Secret in between (I5).
    fn repeated_writes(&self) -> Vec<String> {
        let mut last_write: HashMap<&str, usize> = HashMap::new();
        let mut found = Vec::new();
        let commits = &self.journal.commits;
        for (number, commit) in
            commits.iter().enumerate().filter(|(_, commit)| self.is_pair(commit))
        {
            let Some(after) = &commit.change.after else { continue };
            let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
            let Some(before) = last_write.insert(uid, number) else { continue };
            let decided = self.call(&commits[before]).sent - FRESH;
            let changed = commits[..number].iter().enumerate().any(|(at, between)| {
                let foreign = at > before
                    && !between.by.is_ours()
                    && between.change.kind.plural == "routes"
                    && between.change.name == commit.change.name;
                // A Secret may have changed while the first write was on its way.
                foreign || (between.at >= decided && between.change.kind.plural == "secrets")
            });
            if !changed {
                let version = commit.change.version;
                found
                    .push(format!("I5: version {version} repeats a write of ours without a cause"));
            }
        }
        found
    }

    fn is_pair(&self, commit: &Commit) -> bool {
        commit.by.is_ours()
            && commit.change.kind.plural == "routes"
            && self.call(commit).target.subresource.is_none()
    }

    /// Patches that changed nothing (I5).
    fn empty_writes(&self) -> Vec<String> {
        let committed: HashSet<usize> = self.journal.commits.iter().map(|one| one.call).collect();
        let calls = self.journal.calls.iter().enumerate();
        calls
            .filter(|(_, call)| call.by.is_ours() && call.method == Method::PATCH)
            .filter(|(_, call)| call.target.is_about("routes"))
            .filter(|(_, call)| matches!(call.answered, Some((_, 200, _))))
            .filter(|(number, _)| !committed.contains(number))
            .map(|(_, call)| format!("I5: {} was patched with what stood there", call.path))
            .collect()
    }

    fn fights(&self) -> Vec<String> {
        // A restarted process has lost its back-off.
        let mut series: HashMap<(&str, Actor), Vec<(&Value, Instant)>> = HashMap::new();
        for commit in self.journal.commits.iter().filter(|commit| self.is_pair(commit)) {
            let Some(after) = &commit.change.after else { continue };
            let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
            let pair = &after["spec"]["tls"]["certificate"];
            let writes = series.entry((uid, commit.by)).or_default();
            writes.retain(|(same, at)| *same == pair && commit.at - *at < TEN_MINUTES);
            writes.push((pair, commit.at));
        }
        let fights = series.values().filter(|writes| writes.len() > FIGHT);
        fights
            .map(|writes| format!("{} times the same write in ten minutes", writes.len()))
            .collect()
    }
}

/// A Secret as a process read it.
struct Seen {
    secret: Option<Arc<Value>>,
    /// For the table: its content, or since when it is missing.
    seen: SecretState,
}

impl Seen {
    fn new(secret: Option<Arc<Value>>, missing_since: DateTime<Utc>) -> Self {
        let seen = match &secret {
            Some(secret) => {
                SecretState::WrongType(secret["type"].as_str().unwrap_or_default().into())
            }
            None => SecretState::Missing { since: missing_since },
        };
        Self { secret, seen }
    }

    fn is_missing(&self) -> bool {
        self.secret.is_none()
    }

    fn content(&self) -> Option<Content> {
        self.secret.as_ref().map(|secret| Content::of(secret))
    }

    fn pair(&self, route: &Model) -> Option<&'static trustplane::tls::Pair> {
        let refused = route.0["spec"]["tls"]["caCertificate"] == *pool().stranger;
        self.content().and_then(Content::pair).filter(|_| !refused)
    }

    /// uid and resourceVersion.
    fn identity(&self) -> (&str, &str) {
        let text = |name: &str| {
            let secret = self.secret.as_ref()?;
            secret["metadata"][name].as_str()
        };
        (text("uid").unwrap_or_default(), text("resourceVersion").unwrap_or_default())
    }

    fn requested(&self, route: &Model) -> Requested<'_> {
        let refused = self.content().filter(|content| content.is_refused());
        Requested {
            seen: &self.seen,
            pair: self.pair(route),
            refused: refused.map(Content::texts),
            named: is_named(route),
        }
    }
}

fn is_named(route: &Model) -> bool {
    route.0["metadata"]["annotations"][table::ASKS].as_str().is_some_and(|name| !name.contains('/'))
}

/// The Secret that the table's decision depends on.
fn deciding_secret(route: &Model) -> Option<&str> {
    let nothing = SecretState::WrongType("".into());
    let asked = Requested { seen: &nothing, pair: None, refused: None, named: is_named(route) };
    let row = route.row(asked);
    let name = route.0["metadata"]["annotations"][table::ASKS].as_str()?;
    (matches!(row, "8" | "9" | "10") && is_named(route)).then_some(name)
}

/// Whether a Route that we wrote holds no pair or a matching one.
fn matches(route: &Value) -> bool {
    let text = |name: &str| route["spec"]["tls"][name].as_str().unwrap_or_default();
    let pair = (text("certificate"), text("key"));
    let known = Content::ALL.into_iter().filter(|content| content.pair().is_some());
    let noted = route["metadata"]["annotations"].get(table::MARKER).is_some();
    // Pairs of users may be anything.
    !noted || known.into_iter().any(|content| content.texts() == pair)
}

fn same(expected: &Value, after: &Value) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            for kept_by_the_server in ["resourceVersion", "generation", "managedFields"] {
                metadata.remove(kept_by_the_server);
            }
            if metadata.get("annotations").is_some_and(|all| all == &serde_json::json!({})) {
                metadata.remove("annotations");
            }
        }
        value
    };
    plain(expected) == plain(after)
}

/// Whether the condition contradicts the Route.
fn untrue_status(before: &Value, after: &Value) -> Option<String> {
    let (route, now) = (Model(before.clone()), Model(after.clone()));
    let mut untouched = now.clone();
    untouched.0["status"] = before["status"].clone();
    if before.get("status").is_none() {
        untouched.0.as_object_mut().map(|fields| fields.remove("status"));
    }
    let mut others = after.clone();
    others["status"]["certificate"] = before["status"]["certificate"].clone();
    if !same(&untouched.0, before) || others["status"]["ingress"] != before["status"]["ingress"] {
        return Some("I2: a status write touched something else".to_owned());
    }
    let anything = SecretState::WrongType("".into());
    let asked = Requested { seen: &anything, pair: None, refused: None, named: true };
    if route.row(asked) == "1" {
        return Some("a Route that is not ours got a condition".to_owned());
    }
    let truth = held_state(&route);
    let (actual, _) = condition(after);
    if actual.as_deref() != truth {
        return Some(format!("the condition says {actual:?}, and it is {truth:?}"));
    }
    let conditions = |route: &Value| {
        let all = route["status"]["certificate"].as_array().cloned().unwrap_or_default();
        let plain = |mut one: Value| {
            one.as_object_mut().map(|fields| fields.remove("lastTransitionTime"));
            one
        };
        all.into_iter().map(plain).collect::<Vec<_>>()
    };
    (conditions(before) == conditions(after))
        .then(|| "I5: the condition got a new time, and says the same".to_owned())
}

/// The condition that must be True for this Route.
fn held_state(route: &Model) -> Option<&'static str> {
    let holds = !route.certificate().is_empty();
    match (route.0["spec"].get("tls"), holds) {
        (None, _) => None,
        (Some(tls), _) if tls["termination"] == "passthrough" => None,
        (Some(tls), _) if tls.get("externalCertificate").is_some() => Some("Custom"),
        (Some(_), false) => Some("Default"),
        (Some(_), true) if route.is_ours() => Some("Managed"),
        (Some(_), true) => Some("Custom"),
    }
}

/// The True condition and its reason.
fn condition(route: &Value) -> (Option<String>, String) {
    let all = route["status"]["certificate"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let yes: Vec<_> = all.iter().filter(|one| one["status"] == "True").collect();
    let reason = all.first().map(|one| text(one, "reason")).unwrap_or_default();
    match yes[..] {
        [one] => (Some(text(one, "type")), text(one, "reason")),
        _ => (None, reason),
    }
}

/// Routes that differ from what the table demands for them and their Secrets (I1).
fn not_converged(world: &World, lost_an_event: bool) -> Vec<String> {
    world.api.with(|store| {
        let routes: Vec<Arc<Value>> = store.all(api_server::route()).cloned().collect();
        let warned: HashSet<(String, String)> = store
            .all(kinds::event())
            .filter(|event| event["type"] == "Warning")
            .map(|event| {
                let uid =
                    event["regarding"]["uid"].as_str().or(event["involvedObject"]["uid"].as_str());
                let reason = event["reason"].as_str();
                (uid.unwrap_or_default().to_owned(), reason.unwrap_or_default().to_owned())
            })
            .collect();
        let check = |route: &Arc<Value>| {
            let route = Model((**route).clone());
            let place =
                format!("{}/{}", route.0["metadata"]["namespace"], route.0["metadata"]["name"]);
            let secret = deciding_secret(&route).and_then(|name| {
                let namespace = route.0["metadata"]["namespace"].as_str().unwrap_or_default();
                store.get(kinds::secret(), namespace, name).cloned()
            });
            let seen = Seen::new(secret, DateTime::<Utc>::MIN_UTC);
            let wrong = wrong_end(&route, &seen, &world.policy)
                .or_else(|| silence(&route, &seen, &warned).filter(|_| !lost_an_event))?;
            Some(format!("I1: Route {place}: {wrong}"))
        };
        routes.iter().filter_map(check).collect()
    })
}

fn wrong_end(route: &Model, seen: &Seen, policy: &Policy) -> Option<String> {
    let requested = seen.requested(route);
    if let Some(write) = route.write(requested, DateTime::<Utc>::MAX_UTC, policy) {
        return Some(format!("still to be done: {write:?}"));
    }
    let row = route.row(requested);
    let why = why_unusable(route, seen);
    let holds = !route.certificate().is_empty();
    let (state, reason) = match row {
        "1" => return None,
        "2" => (None, "RouteNotSecured"),
        "3" => (None, "PassthroughTermination"),
        "4" => (Some("Custom"), "ExternalCertificate"),
        "5" => (Some("Managed"), "SecretInjected"),
        "7a" | "8" => (Some("Managed"), "SecretInvalidKeepingLast"),
        "9" => (Some("Custom"), why),
        "10" => (Some("Default"), why),
        _ if holds => (Some("Custom"), "CertificateInRoute"),
        _ => (Some("Default"), "NoCertificate"),
    };
    let actual = condition(&route.0);
    let wanted = (state.map(str::to_owned), reason.to_owned());
    if actual != wanted {
        return Some(format!("its condition says {actual:?} and not {wanted:?}"));
    }
    None
}

/// A problem without an Event.
fn silence(route: &Model, seen: &Seen, warned: &HashSet<(String, String)>) -> Option<String> {
    let row = route.row(seen.requested(route));
    let warning = match row {
        "7a" | "8" | "9" | "10" => why_unusable(route, seen),
        "2" if route.is_annotated() => "RouteNotSecured",
        "3" if route.is_annotated() => "PassthroughTermination",
        "4" if route.is_annotated() => "ExternalCertificate",
        _ => return None,
    };
    let reported = warned.contains(&(route.uid().to_owned(), warning.to_owned()));
    (!reported).then(|| format!("no Event warns of {warning}"))
}

fn why_unusable(route: &Model, seen: &Seen) -> &'static str {
    let refused = route.0["spec"]["tls"]["caCertificate"] == *pool().stranger;
    match seen.content() {
        _ if !is_named(route) => "InvalidSecretName",
        None => "SecretNotFound",
        Some(Content::Opaque) => "SecretWrongType",
        Some(Content::Good(_)) if refused => "CACertificateMismatch",
        Some(_) => "SecretInvalid",
    }
}
