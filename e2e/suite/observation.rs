//! What is seen of a Route from outside: the certificate that its visitors are served, and what the
//! Route and its Events say. No keys: it is printed.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use testkit::{Pair, SeenEvent, certificate_condition};
use trustplane::inject::act::capability::StatusField;

use super::client::{Fingerprint, Served, fingerprint_of};
use super::namespace::CaseNamespace;

/// The certificate that a visitor must be served.
pub enum Expected<'a> {
    /// This pair, by the root that signed it.
    Pair(&'a Pair),
    /// The router's own certificate.
    Default,
    /// The certificate of the backend itself, and not this pair.
    BackendNot(&'a Pair),
}

impl<'a> From<&'a Pair> for Expected<'a> {
    fn from(pair: &'a Pair) -> Self {
        Self::Pair(pair)
    }
}

/// All that a case asserts about a Route.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    served: String,
    /// HTTP status; on our own stack alone.
    answer: Option<u16>,
    admitted: bool,
    /// Content of `spec.tls`.
    holds: &'static str,
    /// Type and reason.
    condition: String,
    /// Type and reason, oldest first, with how often where that is more than once.
    events: Vec<String>,
}

const THE_PAIR: &str = "the Secret's pair, to a client that trusts its root alone";
const THE_DEFAULT: &str = "the default certificate";
const THE_BACKEND: &str = "the backend's own certificate";
const NOT_KEPT: &str = "not kept by this API server";

impl Seen {
    /// The expected result of [`Seen::of`].
    pub fn wanted(
        place: &CaseNamespace,
        expected: &Expected<'_>,
        condition: &str,
        events: &[&str],
    ) -> Self {
        let (served, holds) = match expected {
            Expected::Pair(_) => (THE_PAIR, "the pair"),
            Expected::Default => (THE_DEFAULT, "nothing"),
            Expected::BackendNot(_) => (THE_BACKEND, "nothing"),
        };
        let kept = place.world.condition == StatusField::Kept;
        Self {
            served: served.to_owned(),
            answer: place.world.own_stack().map(|_| 200),
            admitted: true,
            holds,
            condition: if kept { condition } else { NOT_KEPT }.to_owned(),
            events: events.iter().map(|&event| event.to_owned()).collect(),
        }
    }

    /// Looks at a Route from all sides.
    pub async fn of(
        place: &CaseNamespace,
        route: &str,
        host: &str,
        expected: &Expected<'_>,
    ) -> (Self, Observation) {
        let object = place.look_up(route).await;
        let events = place.events_of(route).await;
        let visit = place.world.visit(host).await;
        let seen = Self {
            served: described(place, host, &visit, expected),
            answer: visit.as_ref().ok().and_then(|served| served.answer),
            admitted: is_admitted(&object),
            holds: held(&object, expected),
            condition: condition_of(place, &object),
            events: events.iter().map(event_text).collect(),
        };
        let sight = Observation {
            served: Shown::of(&visit, place.world.default()),
            condition: seen.condition.clone(),
            event: events
                .iter()
                .max_by_key(|event| last_said(event))
                .map_or("none".into(), event_text),
            times: 1,
        };
        (seen, sight)
    }
}

fn described(
    place: &CaseNamespace,
    host: &str,
    visit: &Result<Served, String>,
    expected: &Expected<'_>,
) -> String {
    let served = match (visit, expected) {
        // There is a backend on our own stack alone.
        (Err(_), Expected::BackendNot(_)) if place.world.own_stack().is_none() => {
            return THE_BACKEND.to_owned();
        }
        (Err(why), _) => return why.clone(),
        (Ok(served), _) => served,
    };
    let other = |why: &str| format!("{} {} ({why})", served.issuer(), served.serial());
    match expected {
        _ if served.fingerprint() == place.world.default() => THE_DEFAULT.to_owned(),
        Expected::Pair(pair) if is(served, pair) => match served.judged_with(&pair.authority, host)
        {
            Ok(()) => THE_PAIR.to_owned(),
            Err(why) => other(&why),
        },
        Expected::BackendNot(pair) if !is(served, pair) => match place.world.own_stack() {
            None => THE_BACKEND.to_owned(),
            Some(stack) => {
                let judged = served.judged_with(&stack.backend_authority(), stack.backend_host());
                judged.map_or_else(|why| other(&why), |()| THE_BACKEND.to_owned())
            }
        },
        _ => other("not what is expected"),
    }
}

fn is(served: &Served, pair: &Pair) -> bool {
    served.fingerprint() == fingerprint_of(&pair.certificate)
}

fn held(route: &Value, expected: &Expected<'_>) -> &'static str {
    let text = |field: &str| route["spec"]["tls"][field].as_str().unwrap_or_default();
    match (text("certificate"), text("key"), expected) {
        ("", "", _) => "nothing",
        (certificate, key, Expected::Pair(pair))
            if certificate == pair.certificate && key == pair.key =>
        {
            "the pair"
        }
        _ => "something else",
    }
}

/// Whether some router serves the Route, and none refuses it.
pub fn is_admitted(route: &Value) -> bool {
    let routers = route["status"]["ingress"].as_array().map(Vec::as_slice).unwrap_or_default();
    let admits = |router: &Value| {
        let mut conditions = router["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Admitted" && condition["status"] == "True")
    };
    !routers.is_empty() && routers.iter().all(admits)
}

fn condition_of(place: &CaseNamespace, route: &Value) -> String {
    match certificate_condition(route) {
        _ if place.world.condition == StatusField::Dropped => NOT_KEPT.to_owned(),
        Some((state, reason)) => format!("{} {reason}", state.as_deref().unwrap_or("none")),
        None => "no condition".to_owned(),
    }
}

/// An Event that is said again keeps the time when it was said first.
fn last_said(event: &Event) -> Option<Timestamp> {
    let again = event.series.as_ref().map(|series| series.last_observed_time.0);
    again.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn event_text(event: &Event) -> String {
    let SeenEvent { kind, reason, count, .. } = &SeenEvent::from(event.clone());
    if *count == 1 { format!("{kind} {reason}") } else { format!("{kind} {reason} x{count}") }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Observation {
    pub served: Shown,
    pub condition: String,
    /// The newest.
    pub event: String,
    /// How many Routes in a row showed the same.
    pub times: usize,
}

/// The certificate of a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shown {
    /// The router's own.
    Default,
    /// Another.
    Certificate { issuer: String, serial: String },
    /// Several of one issuer.
    Several { issuer: String, serials: usize },
    /// There was no handshake.
    Nothing,
}

impl Shown {
    /// The view of a visitor.
    pub fn of(visit: &Result<Served, String>, default: Fingerprint) -> Self {
        match visit {
            Err(_) => Self::Nothing,
            Ok(served) if served.fingerprint() == default => Self::Default,
            Ok(served) => Self::Certificate { issuer: served.issuer(), serial: served.serial() },
        }
    }
}

impl Shown {
    /// Both in one, where they are the same or of one issuer.
    fn with(&self, next: &Self) -> Option<Self> {
        match (self, next) {
            _ if self == next => Some(self.clone()),
            (Self::Certificate { issuer, .. }, Self::Certificate { issuer: same, .. })
                if issuer == same =>
            {
                Some(Self::Several { issuer: issuer.clone(), serials: 2 })
            }
            (Self::Several { issuer, serials }, Self::Certificate { issuer: same, .. })
                if issuer == same =>
            {
                Some(Self::Several { issuer: issuer.clone(), serials: serials + 1 })
            }
            _ => None,
        }
    }
}

/// Everything that a case saw, in order.
#[derive(Clone, Default)]
pub struct Observations(Arc<Mutex<Vec<Observation>>>);

impl Observations {
    /// Notes a sight, together with the one before where only the serial differs, if anything.
    pub fn add(&self, sight: Observation) {
        let mut seen = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match seen.last_mut() {
            Some(last) if (&last.condition, &last.event) == (&sight.condition, &sight.event) => {
                match last.served.with(&sight.served) {
                    Some(served) => (last.served, last.times) = (served, last.times + sight.times),
                    None => seen.push(sight),
                }
            }
            _ => seen.push(sight),
        }
    }

    /// All so far.
    pub fn all(&self) -> Vec<Observation> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
