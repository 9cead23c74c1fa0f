//! The health of the watches, and so whether the caches are current. Plain synchronous code.

use std::{collections::BTreeMap, fmt, time::Duration};

use tokio::time::Instant;

use crate::{
    inject::cache::index::Scope,
    k8s::{api_error::ApiError, backoff::Backoff},
    runtime::failpoints::{self, Bug},
};

/// A failing watch fails again within its longest back-off. One that has not by then is healthy: an
/// open watch without events is silent.
const SILENCE: Duration = Duration::from_secs(10);
/// So many failures in a row make a replica unready.
const PERSISTENT: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Route,
    Secret,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Secret => "Secret",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watched {
    pub kind: Kind,
    pub scope: Scope,
}

#[derive(Debug, Default)]
pub struct WatchHealth(BTreeMap<Watched, Health>);

#[derive(Debug, Default)]
struct Health {
    listed: bool,
    /// A list is under way: the cache is from before a gap.
    listing: bool,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    error: ApiError,
    failures: u32,
    until: Instant,
}

impl Health {
    fn trouble(&self, now: Instant) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|trouble| now < trouble.until)
    }
}

impl WatchHealth {
    /// Watches that have not listed yet.
    pub fn of(scopes: &[Scope]) -> Self {
        let watched = |scope: &Scope| {
            [Kind::Route, Kind::Secret].map(|kind| Watched { kind, scope: scope.clone() })
        };
        Self(scopes.iter().flat_map(watched).map(|one| (one, Health::default())).collect())
    }

    /// A list is through: the cache is complete.
    pub fn listed(&mut self, watched: &Watched) {
        if let Some(health) = self.0.get_mut(watched) {
            *health = Health { listed: true, ..Health::default() };
        }
    }

    pub fn listing(&mut self, watched: &Watched) {
        if let Some(health) = self.0.get_mut(watched) {
            health.listing = true;
        }
    }

    /// It can't be opened, or broke, so many times in a row.
    pub fn failing(&mut self, watched: &Watched, error: ApiError, failures: u32, now: Instant) {
        if let Some(health) = self.0.get_mut(watched) {
            let until = now + Backoff::WATCH.ceiling(failures) + SILENCE;
            health.trouble = Some(Trouble { error, failures, until });
        }
    }

    pub fn has_listed(&self, watched: &Watched) -> bool {
        self.0.get(watched).is_some_and(|health| health.listed)
    }

    /// Whether this watch has listed, or keeps failing to.
    pub fn is_not_to_be_waited_for(&self, kind: Kind, scope: &Scope) -> bool {
        let watched = Watched { kind, scope: scope.clone() };
        let keeps_failing = |trouble: &Option<Trouble>| {
            trouble.as_ref().is_some_and(|it| it.failures >= PERSISTENT)
        };
        let health = self.0.get(&watched);
        health.is_none_or(|health| health.listed || keeps_failing(&health.trouble))
    }

    /// Whether every watch has listed, or has tried to.
    pub fn all_tried(&self) -> bool {
        self.0.values().all(|health| health.listed || health.trouble.is_some())
    }

    /// Whether the cache of Secrets of that namespace is complete and current. A watch that broke
    /// leaves a cache behind that looks right and grows old.
    pub fn secrets_are_current(&self, namespace: &str, now: Instant) -> bool {
        self.0
            .iter()
            .filter(|(watched, _)| watched.kind == Kind::Secret)
            .filter(|(watched, _)| watched.scope.as_deref().is_none_or(|scope| scope == namespace))
            .all(|(_, health)| {
                let well = health.trouble(now).is_none() || failpoints::has(Bug::TrustsDeadWatch);
                let believed = !health.listing || failpoints::has(Bug::TrustsDeadWatch);
                health.listed && believed && well
            })
    }

    /// What readiness waits for.
    pub fn waiting_for(&self, now: Instant) -> Vec<String> {
        let reason = |health: &Health| match health.trouble(now) {
            Some(trouble) if !health.listed || trouble.failures >= PERSISTENT => {
                Some(trouble.error.to_string())
            }
            _ if health.listed => None,
            _ => Some("being listed".to_owned()),
        };
        let unready =
            self.0.iter().filter_map(|(watched, health)| Some((watched, reason(health)?)));
        unready.map(|(watched, reason)| format!("{watched}: {reason}")).collect()
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some(namespace) => write!(f, "{}s in namespace {namespace}", self.kind.as_str()),
            None => write!(f, "{}s in all namespaces", self.kind.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(namespace: &str) -> Watched {
        Watched { kind: Kind::Secret, scope: Some(namespace.into()) }
    }

    fn listed() -> (WatchHealth, Instant) {
        let mut watches = WatchHealth::of(&[Some("web".into()), Some("ops".into())]);
        let all: Vec<_> = watches.0.keys().cloned().collect();
        all.iter().for_each(|watched| watches.listed(watched));
        (watches, Instant::now())
    }

    #[test]
    fn work_begins_when_every_watch_has_listed_or_failed_to() {
        let mut watches = WatchHealth::of(&[Some("web".into())]);
        let routes = Watched { kind: Kind::Route, scope: Some("web".into()) };
        watches.listed(&routes);
        assert!(!watches.all_tried());
        assert_eq!(watches.waiting_for(Instant::now()), ["Secrets in namespace web: being listed"]);
        watches.failing(&secrets("web"), ApiError::Forbidden, 1, Instant::now());
        assert!(watches.all_tried());
        let waiting = watches.waiting_for(Instant::now());
        assert_eq!(waiting, ["Secrets in namespace web: forbidden (HTTP 403)"]);
    }

    #[test]
    fn a_cache_whose_watch_fails_is_not_believed_until_the_watch_is_well() {
        let (mut watches, now) = listed();
        assert!(watches.secrets_are_current("web", now));
        watches.failing(&secrets("web"), ApiError::Forbidden, 1, now);
        assert!(!watches.secrets_are_current("web", now));
        assert!(watches.secrets_are_current("ops", now), "another namespace's watch is well");
        assert!(watches.secrets_are_current("web", now + Duration::from_secs(60)));
    }

    #[test]
    fn a_hiccup_does_not_end_readiness_and_a_lasting_failure_does() {
        let (mut watches, now) = listed();
        watches.failing(&secrets("web"), ApiError::Unreachable { why: String::new() }, 1, now);
        assert!(watches.waiting_for(now).is_empty());
        watches.failing(&secrets("web"), ApiError::Unreachable { why: String::new() }, 3, now);
        assert_eq!(watches.waiting_for(now).len(), 1);
        assert!(watches.waiting_for(now + Duration::from_secs(60)).is_empty());
    }
}
