//! Behaviour over time: no needless writes, every change reported, grace periods kept, no hot
//! loops.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::{History, Seen, deciding_secret};
use crate::journal::{Actor, Call, Commit};
use testkit::route_table::Model;

const HOUR: Duration = Duration::from_secs(3_600);
/// Tolerance.
const SLACK: Duration = Duration::from_secs(60);
const TEN_SECONDS: Duration = Duration::from_secs(10);

impl History<'_> {
    /// Writes after everything has settled (I1). Lasting problems may be reported again every hour.
    pub fn writes_in_the_quiet(&self, from: usize) -> Vec<String> {
        let late = self.journal.calls.iter().enumerate().skip(from);
        late.filter(|(_, call)| call.by.is_ours() && call.is_write())
            .filter(|(_, call)| !call.target.is_about("leases"))
            .filter(|(number, call)| !self.is_renewal(*number, call))
            .filter(|(number, call)| !self.is_published_late(*number, call))
            .map(|(_, call)| format!("I1: {} {} although nothing changed", call.method, call.path))
            .collect()
    }

    fn is_renewal(&self, number: usize, call: &Call) -> bool {
        let same = |commit: &&Commit| {
            commit.call < number
                && commit.change.kind.plural == "events"
                && Some(&*commit.change.name) == call.target.name.as_deref()
        };
        let last = self.journal.commits.iter().rev().find(same);
        call.target.is_about("events")
            && last.is_some_and(|last| call.sent - last.at > HOUR - SLACK)
    }

    /// Whether this is an Event that the server refused up to two minutes ago.
    fn is_published_late(&self, number: usize, call: &Call) -> bool {
        let earlier = self.journal.calls[..number].iter().rev();
        call.target.is_about("events")
            && earlier.take_while(|earlier| call.sent - earlier.sent < 2 * SLACK).any(|earlier| {
                let taken = matches!(earlier.answered, Some((_, 200..=299, _)));
                earlier.by == call.by
                    && earlier.is_write()
                    && earlier.target.is_about("events")
                    && earlier.target.namespace == call.target.namespace
                    && !taken
            })
    }

    /// Warnings that are still true and were not renewed.
    pub fn not_renewed(&self, end: Instant) -> Vec<String> {
        let mut last: HashMap<&str, (&Value, Instant)> = HashMap::new();
        for commit in self.journal.commits.iter().filter(|one| one.change.kind.plural == "events") {
            if let Some(event) = &commit.change.after {
                last.insert(&commit.change.name, (event, commit.at));
            }
        }
        let messages = self.status_messages();
        let old = last.values().filter(|(event, at)| {
            let note = event["note"].as_str().or(event["message"].as_str()).unwrap_or_default();
            event["type"] == "Warning" && messages.contains(note) && end - *at > HOUR + SLACK
        });
        old.map(|(event, _)| format!("{} was not said again", event["reason"])).collect()
    }

    /// Messages of all conditions at the end.
    fn status_messages(&self) -> HashSet<&str> {
        let mut last: HashMap<&str, &Value> = HashMap::new();
        for commit in self.journal.commits.iter().filter(|one| one.change.kind.plural == "routes") {
            match &commit.change.after {
                Some(route) => last.insert(&commit.change.name, route),
                None => last.remove(&*commit.change.name),
            };
        }
        let conditions =
            last.values().filter_map(|route| route["status"]["certificate"].as_array());
        conditions.flatten().filter_map(|one| one["message"].as_str()).collect()
    }

    /// Injected pairs without an Event.
    pub fn unreported(&self) -> Vec<String> {
        let commits = &self.journal.commits;
        let uid = |commit: &Commit| {
            let object = commit.change.after.as_ref()?;
            let about = [&object["regarding"]["uid"], &object["involvedObject"]["uid"]];
            let text = about.into_iter().find_map(Value::as_str);
            text.or(object["metadata"]["uid"].as_str()).map(str::to_owned)
        };
        let certificate = |object: &Option<Arc<Value>>| {
            object.as_ref().map(|route| route["spec"]["tls"]["certificate"].clone())
        };
        let changes = commits.iter().filter(|commit| self.is_pair(commit)).filter(|commit| {
            // Clearing may be covered by a Warning of the last hour, which is not repeated.
            let after = certificate(&commit.change.after);
            after != certificate(&commit.change.before)
                && after.is_some_and(|text| text.is_string())
        });
        let silent = changes.filter(|commit| {
            let reported = commits.iter().any(|event| {
                event.change.kind.plural == "events"
                    && event.at >= commit.at
                    && event.at - commit.at < SLACK / 2
                    && uid(event) == uid(commit)
            });
            // No Event is needed for a state that somebody has already changed.
            let overtaken = commits.iter().any(|later| {
                later.change.kind.plural == "routes"
                    && later.change.version > commit.change.version
                    && later.at - commit.at < SLACK / 2
                    && later.change.name == commit.change.name
                    && self.call(later).target.subresource.is_none()
            });
            !reported && !overtaken
        });
        silent
            .map(|commit| format!("no Event tells of version {}", commit.change.version))
            .collect()
    }

    /// Pairs that were cleared within the grace period after their Secret was deleted.
    pub fn hasty_clears(&self) -> Vec<String> {
        let commits = &self.journal.commits;
        let grace = self.policy.missing_grace.to_std().expect("a grace is not negative");
        let hasty = commits.iter().filter(|commit| self.is_pair(commit)).filter(|commit| {
            let (Some(before), Some(after)) = (&commit.change.before, &commit.change.after) else {
                return false;
            };
            let route = Model(Value::clone(before));
            let Some(name) = deciding_secret(&route) else { return false };
            let last = commits.iter().rev().find(|change| {
                change.at <= commit.at
                    && change.change.kind.plural == "secrets"
                    && change.change.namespace == commit.change.namespace
                    && *change.change.name == *name
            });
            let gone = last.filter(|change| change.change.after.is_none());
            let held = route.is_ours() && !route.certificate().is_empty();
            let clears = held && Model(Value::clone(after)).certificate().is_empty();
            let write = self.call(commit);
            // An unusable Secret clears at once, even if it is deleted meanwhile.
            let was_told_so = self.reads(write, &route).last().is_none_or(Seen::is_missing);
            clears && was_told_so && gone.is_some_and(|change| write.sent - change.at < grace)
        });
        hasty
            .map(|commit| format!("version {} clears within the grace", commit.change.version))
            .collect()
    }

    /// Whether a process ended after one of its Events was refused. The next process finds the
    /// condition in place, and repeats the Event only within the hour.
    pub fn lost_an_event(&self) -> bool {
        self.journal.calls.iter().any(|call| {
            let refused = call.answered.as_ref().is_some_and(|(_, code, _)| *code >= 400);
            call.target.is_about("events") && refused && self.has_successor(call.by)
        })
    }

    fn has_successor(&self, actor: Actor) -> bool {
        let Actor::Ours { replica, life } = actor else { return false };
        let mut actors = self.journal.calls.iter().map(|call| call.by);
        actors
            .any(|by| matches!(by, Actor::Ours { replica: r, life: l } if r != replica || l > life))
    }

    /// Calls that are repeated without back-off.
    pub fn hot_loops(&self, steps: usize) -> Vec<String> {
        let most = 40 + 4 * steps;
        let mut recent: HashMap<(Actor, &Method, &str), VecDeque<Instant>> = HashMap::new();
        let mut found = HashSet::new();
        for call in self.journal.calls.iter().filter(|call| call.by.is_ours()) {
            let times = recent.entry((call.by, &call.method, &call.path)).or_default();
            while times.front().is_some_and(|first| call.sent - *first > TEN_SECONDS) {
                times.pop_front();
            }
            times.push_back(call.sent);
            if times.len() > most {
                found.insert(format!("{} {} without a pause", call.method, call.path));
            }
        }
        found.into_iter().collect()
    }
}
