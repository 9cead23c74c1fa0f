//! Decides what a Route's certificate should be. Pure: no client, no clock, no log.
//!
//! The state machine is the table in docs/inject.md; `Row` names its rows in order, and the first
//! that matches wins. To change a rule: change its row here, its row there, and the test of the
//! same name in tests/inject/state_machine.rs.
//!
//! A `Plan` holds neither key nor certificate, so it can be printed, compared and shown to a user
//! before it is done.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    api::route::CertificateCondition,
    inject::decide::{
        condition,
        facts::{Holding, Owner, RequestedSecret, RouteFacts, Tls, WriteAccess},
        messages::{self, Consequence, Notice},
        secret_state::{SecretState, Unusable},
        state::{Reason, State, Verdict},
        write::{Before, CompletedWrite, Write},
    },
    tls::{self, Fingerprint},
};

#[derive(Clone, Debug)]
pub struct Policy {
    /// What happens to the last good pair when its Secret turns unusable.
    pub on_invalid: OnInvalid,
    /// How long a Secret must be missing before its pair is taken out of the Route.
    pub missing_grace: TimeDelta,
    pub status: StatusScope,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_invalid: OnInvalid::Default,
            missing_grace: TimeDelta::seconds(5),
            status: StatusScope::All,
        }
    }
}

/// `--on-invalid-secret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvalid {
    /// Back to the router's default certificate.
    Default,
    /// The last good pair stays.
    Keep,
}

/// `--status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusScope {
    All,
    /// Routes that are, or were, annotated.
    Annotated,
    Off,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The row of the table that matched.
    pub row: &'static str,
    /// The change to the Route's certificate and marker, if any.
    pub write: Option<Write>,
    /// `.status.certificate` as it should be, where it is not.
    pub conditions: Option<Vec<CertificateCondition>>,
    /// The state of the Route's certificate once the plan is done.
    pub verdict: Option<Verdict>,
    /// The write that deserves an Event.
    pub event: Option<CompletedWrite>,
    /// Problems that last until somebody acts.
    pub warnings: Vec<Notice>,
    /// When to decide again although nothing changed.
    pub requeue_at: Option<DateTime<Utc>>,
}

impl Plan {
    /// Whether there is nothing to write: the common case.
    pub fn is_nothing(&self) -> bool {
        self.write.is_none() && self.conditions.is_none()
    }

    fn nothing() -> Self {
        Self::default()
    }

    fn wait(until: DateTime<Utc>) -> Self {
        Self { requeue_at: Some(until), ..Self::default() }
    }

    fn verdict(verdict: Verdict) -> Self {
        Self { verdict: Some(verdict), ..Self::default() }
    }

    fn writing(self, write: Write) -> Self {
        Self { write: Some(write), ..self }
    }

    fn dropping_marker(self, route: &RouteFacts) -> Self {
        if route.has_marker { self.writing(Write::DropMarker) } else { self }
    }

    fn clearing_left_over(self, route: &RouteFacts, left: LeftOver) -> Self {
        match left {
            LeftOver::OurPair => self.writing(Write::Clear),
            LeftOver::OurKey => self.writing(Write::ClearKey),
            LeftOver::Nothing => self.dropping_marker(route),
        }
    }

    fn reporting(self, write: CompletedWrite) -> Self {
        Self { event: Some(write), ..self }
    }

    fn warning(mut self, notice: Notice) -> Self {
        self.warnings.push(notice);
        self
    }

    /// In the condition too: it says why the annotation is of no use.
    fn warning_if_annotated(self, route: &RouteFacts, notice: fn(&RouteFacts) -> Notice) -> Self {
        if route.is_annotated() { self.explained_by(notice(route)) } else { self }
    }

    /// The condition's message is that of the Event, so that a restart says nothing.
    fn explained_by(mut self, notice: Notice) -> Self {
        if let Some(verdict) = &mut self.verdict {
            verdict.message.clone_from(&notice.note);
        }
        self.warning(notice)
    }

    /// The Route has the Secret's pair; warns of what clients may object to.
    fn up_to_date(route: &RouteFacts, now: DateTime<Utc>) -> Self {
        let held = route.description();
        let warnings: Vec<Notice> = held.map_or_else(Vec::new, |held| {
            held.warnings_at(now).map(|warning| messages::pair_warning(route, &warning)).collect()
        });
        let requeue_at = held.and_then(|held| tls::next_change(held.validity, now));
        let verdict = messages::managed(route, &warnings);
        Self { warnings, requeue_at, ..Self::verdict(verdict) }
    }

    fn pointing_out_misspelling(self, route: &RouteFacts) -> Self {
        match (&route.requested, &self.verdict) {
            (RequestedSecret::Misspelt(key), Some(verdict)) => {
                let notice = messages::misspelt(key, &verdict.message);
                self.explained_by(notice)
            }
            _ => self,
        }
    }

    /// The Secret can't be used; the condition and the Event say why.
    fn unusable(route: &RouteFacts, why: &Unusable<'_>, consequence: Consequence) -> Self {
        let (state, reason) = match consequence {
            Consequence::ServesDefault => (State::Default, why.reason()),
            Consequence::KeepsTheirs => (State::Custom, why.reason()),
            Consequence::KeepsLastGood | Consequence::KeepsSame => {
                (State::Managed, Reason::SecretInvalidKeepingLast)
            }
        };
        let explanation = messages::unusable(route, why, consequence);
        Self::verdict(explanation.verdict(state, reason)).warning(explanation.notice())
    }

    /// As `unusable`, with a pair that stays: warns that it expires, because nobody renews it.
    fn keeping(
        route: &RouteFacts,
        why: &Unusable<'_>,
        consequence: Consequence,
        now: DateTime<Utc>,
    ) -> Self {
        let mut plan = Self::unusable(route, why, consequence);
        if let Some(held) = route.description() {
            let warnings = tls::age_warnings(held.validity, now);
            plan.warnings.extend(warnings.map(|warning| messages::kept_warning(&warning)));
            plan.requeue_at = tls::next_change(held.validity, now);
        }
        plan
    }
}

/// Total: every Route and every Secret has an answer.
pub fn plan(route: &RouteFacts, secret: &SecretState, now: DateTime<Utc>, policy: &Policy) -> Plan {
    let row = Row::of(route, secret);
    let name = row.name();
    let mut plan = decide(row, route, now, policy).pointing_out_misspelling(route);
    plan.row = name;
    plan.conditions = plan
        .verdict
        .as_ref()
        .filter(|_| policy.status.covers(route))
        .and_then(|verdict| condition::unless_published(verdict, &route.conditions, now));
    plan
}

/// The Event about a completed write, unless somebody changed the Route before it was published.
pub fn event_if_still_true(
    write: CompletedWrite,
    route: &RouteFacts,
    secret: &SecretState,
) -> Option<Notice> {
    let still_true = match write {
        CompletedWrite::Injected(_) => Row::UpToDate,
        CompletedWrite::Cleared => Row::NeverSet(Holding::Nothing),
    };
    (Row::of(route, secret) == still_true).then(|| messages::completed(write, route))
}

/// The condition while a write waits or is refused: the state that the Route is in now.
pub fn interim(
    route: &RouteFacts,
    (reason, message): (Reason, String),
    now: DateTime<Utc>,
    policy: &Policy,
) -> Plan {
    if route.write_access != WriteAccess::Free {
        return Plan::nothing();
    }
    let verdict = Verdict { state: route.tls.state(), reason, message };
    let covered = policy.status.covers(route);
    let conditions = condition::unless_published(&verdict, &route.conditions, now);
    Plan { conditions: conditions.filter(|_| covered), ..Plan::verdict(verdict) }
}

fn decide(row: Row<'_>, route: &RouteFacts, now: DateTime<Utc>, policy: &Policy) -> Plan {
    match row {
        Row::LeftAlone => Plan::nothing(),
        Row::NotSecured => Plan::verdict(messages::not_secured())
            .dropping_marker(route)
            .warning_if_annotated(route, messages::annotated_but_not_secured),
        Row::Passthrough => Plan::verdict(messages::passthrough())
            .dropping_marker(route)
            .warning_if_annotated(route, messages::annotated_but_passthrough),
        Row::External(left) => Plan::verdict(messages::external())
            .clearing_left_over(route, left)
            .warning_if_annotated(route, messages::annotated_but_external),

        Row::UpToDate => Plan::up_to_date(route, now),
        Row::MarkerMissing(pair) => {
            Plan::verdict(messages::managed(route, &[])).writing(Write::AddMarker(pair))
        }
        Row::Inject(pair, before) => Plan::verdict(messages::managed(route, &[]))
            .writing(Write::Inject(pair))
            .reporting(CompletedWrite::Injected(before)),

        Row::OursButRefusedNow(why) => Plan::keeping(route, &why, Consequence::KeepsSame, now),
        Row::OursUnusable(Unusable::Missing { since }) if now < policy.gone_at(since) => {
            Plan::wait(policy.gone_at(since))
        }
        Row::OursUnusable(why) if policy.keeps_last_good(&why) => {
            Plan::keeping(route, &why, Consequence::KeepsLastGood, now)
        }
        Row::OursUnusable(why) => {
            Plan::unusable(route, &why, Consequence::ServesDefault).writing(Write::Clear)
        }
        Row::TheirsUnusable(why) => {
            Plan::unusable(route, &why, Consequence::KeepsTheirs).dropping_marker(route)
        }
        Row::EmptyUnusable(why, left) => {
            Plan::unusable(route, &why, Consequence::ServesDefault).clearing_left_over(route, left)
        }

        Row::RemovedOurs => Plan::verdict(messages::no_certificate())
            .writing(Write::Clear)
            .reporting(CompletedWrite::Cleared),
        Row::RemovedTheirs => Plan::verdict(messages::custom()).writing(Write::DropMarker),
        Row::RemovedEmpty(left) => {
            Plan::verdict(messages::no_certificate()).clearing_left_over(route, left)
        }
        Row::NeverSet(Holding::Certificate(..)) => Plan::verdict(messages::custom()),
        Row::NeverSet(_) => Plan::verdict(messages::no_certificate()),
    }
}

impl Policy {
    /// When a Secret that is missing since then counts as gone.
    fn gone_at(&self, since: DateTime<Utc>) -> DateTime<Utc> {
        since.checked_add_signed(self.missing_grace).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    fn keeps_last_good(&self, why: &Unusable<'_>) -> bool {
        // Without a Secret there is nothing that could turn good again by itself.
        let there_is_a_secret = !matches!(why, Unusable::Missing { .. } | Unusable::InvalidName(_));
        self.on_invalid == OnInvalid::Keep && there_is_a_secret
    }
}

impl StatusScope {
    fn covers(self, route: &RouteFacts) -> bool {
        match self {
            Self::All => true,
            // A published condition is kept true after the annotation is gone.
            Self::Annotated => {
                route.is_annotated() || route.has_marker || !route.conditions.is_empty()
            }
            Self::Off => false,
        }
    }
}

/// Our pair or key in a Route that does not serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOver {
    OurPair,
    OurKey,
    Nothing,
}

/// The rows of the table, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Row<'a> {
    LeftAlone,
    NotSecured,
    Passthrough,
    External(LeftOver),
    UpToDate,
    MarkerMissing(Fingerprint),
    Inject(Fingerprint, Before),
    OursButRefusedNow(Unusable<'a>),
    OursUnusable(Unusable<'a>),
    TheirsUnusable(Unusable<'a>),
    EmptyUnusable(Unusable<'a>, LeftOver),
    RemovedOurs,
    RemovedTheirs,
    RemovedEmpty(LeftOver),
    NeverSet(Holding),
}

impl<'a> Row<'a> {
    fn of(route: &'a RouteFacts, secret: &'a SecretState) -> Self {
        if route.write_access != WriteAccess::Free {
            return Self::LeftAlone;
        }
        let holding = match route.tls {
            Tls::NotSecured => return Self::NotSecured,
            Tls::Passthrough => return Self::Passthrough,
            Tls::External(holding) => return Self::External(LeftOver::in_route(holding)),
            Tls::Terminated { holding, .. } => holding,
        };
        match &route.requested {
            RequestedSecret::Secret(_) => match secret.usable() {
                Ok(pair) => Self::usable(pair, holding),
                Err(why) if is_held_already(secret, holding) => Self::OursButRefusedNow(why),
                Err(why) => Self::not_usable(why, holding),
            },
            RequestedSecret::Invalid(value) => {
                Self::not_usable(Unusable::InvalidName(value), holding)
            }
            RequestedSecret::Nothing | RequestedSecret::Misspelt(_) if route.has_marker => {
                Self::removed(holding)
            }
            RequestedSecret::Nothing | RequestedSecret::Misspelt(_) => Self::NeverSet(holding),
        }
    }

    fn usable(pair: Fingerprint, holding: Holding) -> Self {
        match holding {
            Holding::Certificate(held, Owner::Ours) if held == pair => Self::UpToDate,
            Holding::Certificate(held, Owner::Theirs) if held == pair => Self::MarkerMissing(pair),
            Holding::Certificate(_, Owner::Ours) => Self::Inject(pair, Before::Ours),
            Holding::Certificate(_, Owner::Theirs) => Self::Inject(pair, Before::Theirs),
            Holding::Nothing | Holding::KeyOnly(_) => Self::Inject(pair, Before::Nothing),
        }
    }

    fn not_usable(why: Unusable<'a>, holding: Holding) -> Self {
        match holding.state() {
            State::Managed => Self::OursUnusable(why),
            State::Custom => Self::TheirsUnusable(why),
            State::Default => Self::EmptyUnusable(why, LeftOver::in_route(holding)),
        }
    }

    fn removed(holding: Holding) -> Self {
        match holding.state() {
            State::Managed => Self::RemovedOurs,
            State::Custom => Self::RemovedTheirs,
            State::Default => Self::RemovedEmpty(LeftOver::in_route(holding)),
        }
    }

    /// Its number in docs/inject.md.
    fn name(&self) -> &'static str {
        match self {
            Self::LeftAlone => "1",
            Self::NotSecured => "2",
            Self::Passthrough => "3",
            Self::External(_) => "4",
            Self::UpToDate => "5",
            Self::MarkerMissing(_) => "6",
            Self::Inject(..) => "7",
            Self::OursButRefusedNow(_) => "7a",
            Self::OursUnusable(_) => "8",
            Self::TheirsUnusable(_) => "9",
            Self::EmptyUnusable(..) => "10",
            Self::RemovedOurs => "11",
            Self::RemovedTheirs => "12",
            Self::RemovedEmpty(_) => "13",
            Self::NeverSet(_) => "14",
        }
    }
}

impl LeftOver {
    fn in_route(holding: Holding) -> Self {
        match holding {
            Holding::Certificate(_, Owner::Ours) => Self::OurPair,
            Holding::KeyOnly(Owner::Ours) => Self::OurKey,
            _ => Self::Nothing,
        }
    }
}

/// Whether the Route holds the refused pair, byte for byte, as one of ours: an earlier version of
/// our rules accepted it, and a router serves it.
fn is_held_already(secret: &SecretState, holding: Holding) -> bool {
    matches!(secret, SecretState::Invalid { pair: Some(pair), .. } if holding.is_ours(*pair))
}

#[cfg(test)]
mod tests;
