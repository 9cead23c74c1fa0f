//! Decides what is removed from a Route. Pure.
//!
//! A pair that is ours goes or stays as the administrator chose; any other stays. Both annotations
//! go in the same write, so that a controller that still runs sees a Route that never asked.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{
    inject::{
        act::capability::StatusField,
        decide::{
            facts::{Holding, Owner, RequestedSecret, RouteFacts, WriteAccess},
            plan::{self, Policy, StatusScope},
            secret_state::SecretState,
            state::State,
            write::Write,
        },
        inventory::Inventory,
    },
    k8s::object_ref::ObjectRef,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairs {
    /// They stay, as the Routes' own.
    Keep,
    /// They go: the router serves its default certificate.
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The injected pair stays, as the Route's own.
    PairStays,
    PairGoes,
    OwnPairStays,
    /// An injected key that lost its certificate goes.
    KeyGoes,
    /// There is none, and nothing changes but the annotations.
    NoPair,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Both annotations go, together with this; none where neither is there.
    pub release: Option<Write>,
    /// `.status.certificate` goes.
    pub drop_status: bool,
}

/// Decides. Routes of an Ingress, and those under deletion, are left alone.
pub fn step(route: &RouteFacts, pairs: Pairs, status: StatusField) -> Step {
    if route.write_access != WriteAccess::Free {
        return Step::default();
    }
    let write = match (pairs, route.holding().state()) {
        (Pairs::Keep, State::Managed | State::Custom) => Write::DropMarker,
        // A key without its certificate is of no use to anybody.
        (Pairs::Keep, State::Default) | (Pairs::Clear, _) => taking_out(route),
    };
    Step {
        release: is_marked(route).then_some(write),
        drop_status: status == StatusField::Kept && !route.conditions.is_empty(),
    }
}

/// Whether one of our annotations is there.
fn is_marked(route: &RouteFacts) -> bool {
    route.is_annotated() || route.has_marker
}

/// As the controller does when the annotation is removed: rows 11 to 13 of its table.
fn taking_out(route: &RouteFacts) -> Write {
    let removed =
        RouteFacts { requested: RequestedSecret::Nothing, has_marker: true, ..route.clone() };
    let (now, policy) =
        (DateTime::<Utc>::UNIX_EPOCH, Policy { status: StatusScope::Off, ..Policy::default() });
    let decided = plan::plan(&removed, &SecretState::Missing { since: now }, now, &policy);
    decided.write.unwrap_or(Write::DropMarker)
}

pub fn effect(route: &RouteFacts, pairs: Pairs) -> Effect {
    let holding = route.holding();
    match (holding.state(), pairs) {
        (State::Managed, Pairs::Keep) => Effect::PairStays,
        (State::Managed, Pairs::Clear) => Effect::PairGoes,
        (State::Custom, _) => Effect::OwnPairStays,
        (State::Default, _) if holding == Holding::KeyOnly(Owner::Ours) => Effect::KeyGoes,
        (State::Default, _) => Effect::NoPair,
    }
}

/// One Route that asks, or asked, for a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub at: ObjectRef,
    /// None if only our marker is left.
    pub asks_for: Option<String>,
    pub keep: Effect,
    pub clear: Effect,
    /// Whether `.status.certificate` goes.
    pub drops_status: bool,
}

impl Marked {
    fn of(route: &RouteFacts, step: Step) -> Self {
        let asks_for = match &route.requested {
            RequestedSecret::Nothing | RequestedSecret::Misspelt(_) => None,
            RequestedSecret::Secret(name) => Some(name.to_string()),
            RequestedSecret::Invalid(value) => Some(value.escape_default().to_string()),
        };
        Self {
            at: route.at.clone(),
            asks_for,
            keep: effect(route, Pairs::Keep),
            clear: effect(route, Pairs::Clear),
            drops_status: step.drop_status,
        }
    }

    pub fn effect(&self, pairs: Pairs) -> Effect {
        match pairs {
            Pairs::Keep => self.keep,
            Pairs::Clear => self.clear,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Those that ask, or asked, for a Secret.
    pub marked: Vec<Marked>,
    /// Those that lose `.status.certificate` and nothing else.
    pub status_only: Vec<ObjectRef>,
    /// Those that ask, but belong to an Ingress.
    pub left_alone: Vec<Marked>,
    /// Those that can't be decoded, and are left alone.
    pub undecodable: Vec<ObjectRef>,
}

impl Outlook {
    pub fn of(inventory: Inventory, status: StatusField) -> Self {
        let mut outlook = Self { undecodable: inventory.undecodable, ..Self::default() };
        for route in &inventory.routes {
            // Which Routes are written does not depend on what becomes of the pairs.
            let step = step(route, Pairs::Keep, status);
            if step.release.is_some() {
                outlook.marked.push(Marked::of(route, step));
            } else if step.drop_status {
                outlook.status_only.push(route.at.clone());
            } else if route.write_access == WriteAccess::Ingress && is_marked(route) {
                outlook.left_alone.push(Marked::of(route, step));
            }
        }
        outlook
    }

    /// How many of the marked Routes this happens to.
    pub fn count(&self, pairs: Pairs, effect: Effect) -> usize {
        self.marked.iter().filter(|marked| marked.effect(pairs) == effect).count()
    }

    /// How many Routes lose `.status.certificate`.
    pub fn statuses(&self) -> usize {
        self.marked.iter().filter(|marked| marked.drops_status).count() + self.status_only.len()
    }

    pub fn is_nothing(&self) -> bool {
        self.marked.is_empty() && self.status_only.is_empty()
    }

    pub fn routes(&self) -> Vec<ObjectRef> {
        let marked = self.marked.iter().map(|marked| marked.at.clone());
        marked.chain(self.status_only.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests;
