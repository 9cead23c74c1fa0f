//! Which Route gets which host: the oldest that claims it. One that is refused for its certificate
//! keeps its claim, as in OpenShift's router.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::offer::{Offer, offer};
use super::route::Route;

/// Namespace and name of a Route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A Route, and how it is served or why it is refused.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: At,
    pub route: Route,
    pub offer: Result<Offer, String>,
}

/// Whether the router serves a Route, as `.status.ingress` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    Refused { reason: &'static str, message: String },
}

#[derive(Default)]
pub struct Table(BTreeMap<At, Entry>);

impl Table {
    /// Adds or replaces a Route, and judges it once.
    pub fn apply(&mut self, route: Route) {
        let at = At {
            namespace: route.metadata.namespace.clone().unwrap_or_default(),
            name: route.metadata.name.clone().unwrap_or_default(),
        };
        let offer = offer(route.spec.tls.as_ref());
        self.0.insert(at.clone(), Entry { at, route, offer });
    }

    /// Removes a Route.
    pub fn remove(&mut self, at: &At) {
        self.0.remove(at);
    }

    /// Removes all Routes but these.
    pub fn keep_only(&mut self, listed: &HashSet<At>) {
        self.0.retain(|at, _| listed.contains(at));
    }

    /// Every Route with its admission, oldest first.
    pub fn admissions(&self) -> Vec<(&Entry, Admission)> {
        let mut holders: HashMap<String, &At> = HashMap::new();
        let mut by_age: Vec<&Entry> = self.0.values().collect();
        by_age.sort_by_key(|entry| entry.age());
        by_age.into_iter().map(|entry| (entry, entry.admission(&mut holders))).collect()
    }
}

impl Entry {
    /// Routes of the same second are ordered by name.
    fn age(&self) -> (i64, &At) {
        let created = self.route.metadata.creation_timestamp.as_ref();
        (created.map_or(i64::MAX, |time| time.0.as_second()), &self.at)
    }

    fn admission<'a>(&'a self, holders: &mut HashMap<String, &'a At>) -> Admission {
        let refused = |reason, message| Admission::Refused { reason, message };
        let Some(claim) = self.route.spec.claim() else {
            return refused("NoHostValue", "no host value was defined for the route".to_owned());
        };
        if let Some(holder) = holders.get(&claim) {
            let message = format!("route {holder} is older and holds {claim}");
            return refused("HostAlreadyClaimed", message);
        }
        holders.insert(claim, &self.at);
        match &self.offer {
            Ok(_) => Admission::Admitted,
            Err(why) => refused("ExtendedValidationFailed", why.clone()),
        }
    }
}
