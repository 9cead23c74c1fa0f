//! Which Route gets which host. Pure: no client, no clock, no log.
//!
//! A host belongs to the namespace of the oldest Route that claims it. Within the namespace Routes
//! share it by path; of two with the same path the older one wins. An older Route that is refused
//! for its certificate keeps its claim, as in OpenShift's router.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    admit::{Certificate, Offer, Termination},
    route::{Route, Spec, comparable},
};
use crate::k8s::object_ref::ObjectRef;

#[derive(Clone, Debug)]
pub struct Entry {
    pub at: ObjectRef,
    /// The resourceVersion.
    pub version: String,
    pub spec: Spec,
    /// How the edge serves it, or why it refuses it.
    pub offer: Result<Arc<Offer>, String>,
    /// `.status.ingress` of all routers.
    pub ingress: Vec<Value>,
    age: Age,
}

/// Orders Routes by age; those of the same second by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    created: i64,
    at: ObjectRef,
}

impl Entry {
    pub fn new(route: Route, offer: Result<Arc<Offer>, String>) -> Self {
        let meta = route.metadata;
        let at = ObjectRef::new(meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
        let created = meta.creation_timestamp.map_or(i64::MAX, |time| time.0.as_second());
        Self {
            version: meta.resource_version.unwrap_or_default(),
            spec: route.spec,
            offer,
            ingress: route.status.ingress,
            age: Age { created, at: at.clone() },
            at,
        }
    }

    fn admitted(&self) -> Option<&Arc<Offer>> {
        self.offer.as_ref().ok()
    }
}

/// Whether the edge serves a Route, as `.status.ingress` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Served, with how a router would do it differently.
    Admitted {
        remark: Option<String>,
    },
    Refused {
        reason: &'static str,
        message: String,
    },
}

/// Where a connection goes, by its server name.
#[derive(Clone, Debug)]
pub enum Connection {
    /// TLS ends here, with this certificate or the default one.
    Terminate(Option<Arc<Certificate>>),
    /// The bytes go to the Route's Service undecrypted.
    Pass(Arc<Entry>),
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum Found {
    /// To this Route.
    Route(Arc<Entry>, Arc<Offer>),
    /// To a Route that was refused.
    Refused(Arc<Entry>, String),
    /// No Route claims this host.
    NoRoute,
}

/// All Routes, and their claims by host.
#[derive(Debug, Default)]
pub struct Table {
    routes: HashMap<ObjectRef, Arc<Entry>>,
    claims: HashMap<String, BTreeMap<Age, Arc<Entry>>>,
}

impl Table {
    /// Adds or replaces a Route. Returns the Routes whose admission may have changed.
    pub fn apply(&mut self, entry: Entry) -> Vec<ObjectRef> {
        let at = entry.at.clone();
        let moved = self.routes.get(&at).is_none_or(|before| {
            before.age != entry.age
                || before.spec.claim() != entry.spec.claim()
                || before.spec.path() != entry.spec.path()
        });
        let mut affected = if moved { self.remove(&at) } else { Vec::new() };
        let entry = Arc::new(entry);
        if let Some(claim) = entry.spec.claim() {
            let claims = self.claims.entry(claim).or_default();
            claims.insert(entry.age.clone(), entry.clone());
            if moved {
                affected.extend(claims.values().map(|entry| entry.at.clone()));
            }
        }
        self.routes.insert(at.clone(), entry);
        affected.push(at);
        affected
    }

    /// Removes a Route. Returns the Routes whose admission may have changed.
    pub fn remove(&mut self, at: &ObjectRef) -> Vec<ObjectRef> {
        let Some(entry) = self.routes.remove(at) else { return Vec::new() };
        let Some(claim) = entry.spec.claim() else { return Vec::new() };
        let Some(claims) = self.claims.get_mut(&claim) else { return Vec::new() };
        claims.remove(&entry.age);
        let left = claims.values().map(|entry| entry.at.clone()).collect();
        if claims.is_empty() {
            self.claims.remove(&claim);
        }
        left
    }

    /// Removes all Routes but these. Returns the Routes whose admission may have changed.
    pub fn listed(&mut self, listed: &HashSet<ObjectRef>) -> Vec<ObjectRef> {
        let lost: Vec<_> = self.routes.keys().filter(|at| !listed.contains(*at)).cloned().collect();
        lost.iter().flat_map(|at| self.remove(at)).collect()
    }

    pub fn get(&self, at: &ObjectRef) -> Option<&Arc<Entry>> {
        self.routes.get(at)
    }

    pub fn admission(&self, entry: &Entry) -> Admission {
        let refused = |reason, message| Admission::Refused { reason, message };
        let Some(claim) = entry.spec.claim() else {
            return refused(
                "NoHostValue",
                "The Route has no spec.host, and the sandbox assigns none. Set spec.host."
                    .to_owned(),
            );
        };
        if let Some(older) = self.older(&claim, entry) {
            let message = format!("Route {} holds {claim} already, and is older.", older.at);
            return refused("HostAlreadyClaimed", message);
        }
        match &entry.offer {
            Ok(offer) => Admission::Admitted { remark: offer.remark.clone() },
            Err(message) => refused("ExtendedValidationFailed", message.clone()),
        }
    }

    /// The Route whose claim goes before this one's.
    fn older(&self, claim: &str, entry: &Entry) -> Option<&Arc<Entry>> {
        let claims = self.claims.get(claim)?;
        let (_, oldest) = claims.first_key_value()?;
        if oldest.at.namespace != entry.at.namespace {
            return Some(oldest);
        }
        let before = claims.range(..&entry.age).map(|(_, entry)| entry);
        before
            .filter(|other| other.at.namespace == entry.at.namespace)
            .find(|other| other.spec.path() == entry.spec.path())
    }

    /// The Routes that claim this host, oldest first.
    fn claimants(&self, host: &str) -> Vec<&Arc<Entry>> {
        let host = comparable(host);
        let by_domain = || {
            let (_, domain) = host.split_once('.')?;
            self.claims.get_key_value(&format!("*.{domain}"))
        };
        let Some((claim, claims)) = self.claims.get_key_value(&host).or_else(by_domain) else {
            return Vec::new();
        };
        claims.values().filter(|entry| self.older(claim, entry).is_none()).collect()
    }

    pub fn connection(&self, host: &str) -> Connection {
        let holders = self.claimants(host);
        let passes = |entry: &&&Arc<Entry>| {
            entry.admitted().is_some_and(|it| matches!(it.termination, Termination::Passthrough))
        };
        if let Some(entry) = holders.iter().find(passes) {
            return Connection::Pass(Arc::clone(entry));
        }
        let certificate = |entry: &&Arc<Entry>| entry.admitted()?.certificate.clone();
        Connection::Terminate(holders.iter().find_map(certificate))
    }

    pub fn find(&self, host: &str, path: &str) -> Found {
        let below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let holders = self.claimants(host);
        let candidates = holders.into_iter().filter(|entry| below(entry.spec.path()));
        let Some(entry) = candidates.max_by_key(|entry| entry.spec.path().len()) else {
            return Found::NoRoute;
        };
        match &entry.offer {
            Ok(offer) => Found::Route(entry.clone(), offer.clone()),
            Err(message) => Found::Refused(entry.clone(), message.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
