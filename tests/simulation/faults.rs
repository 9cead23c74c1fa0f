//! The faults of a simulation, and when they happen.

use std::time::Duration;

pub use apiserver::faults::{Committed, Damage};
use apiserver::faults::{EventFault, RequestFaults};
use http::Method;
use tokio::time::Instant;

use crate::journal::Target;

/// A fault that starts at a step of the workload and lasts for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// It starts before this step.
    pub at: usize,
    pub lasts: Duration,
    pub kind: FaultKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The first replica's process dies at its nth call.
    Crash { call: u32, moment: Moment },
    /// Calls are refused with this code.
    Refuse { which: Calls, code: u16, committed: Committed, most: u32 },
    /// Calls are not answered.
    Lose { which: Calls, committed: Committed, most: u32 },
    /// Calls take this much longer.
    Slow { which: Calls, by: Duration },
    /// Calls are carried out at once, but answered this much later.
    SlowAnswer { which: Calls, by: Duration },
    /// Later changes reach the watch only after the fault.
    Freeze(Watched),
    /// The watch's next event arrives damaged.
    Damage(Watched, Damage),
    /// The process dies and restarts with an API server that lags: its lists and watches end here.
    Lag,
    /// The watch breaks and can't be reopened; afterwards the missed changes are gone (410).
    Gap(Watched),
    /// History is compacted: a watch from an old version gets a 410.
    Compact,
    /// This replica is cut off.
    Pause { replica: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    BeforeSend,
    AfterCommit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    Routes,
    Secrets,
    /// SPIFFEFederations.
    Federations,
    /// JoinTokens.
    Tokens,
}

impl Watched {
    /// Those of the injector.
    pub const BOTH: [Self; 2] = [Self::Routes, Self::Secrets];

    pub fn resource(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Secrets => "secrets",
            Self::Federations => "spiffefederations",
            Self::Tokens => "jointokens",
        }
    }
}

/// Selects calls of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    Everything,
    Patches,
    PairPatches,
    Status,
    Events,
    Secret,
    ConfigMaps,
    /// All but those of Events.
    Writes,
    Lists(Watched),
    Watches(Watched),
    Leases,
    OpenApi,
    /// At a remote cluster.
    TokenRequests,
    /// There, too.
    TokenReviews,
}

impl Calls {
    /// Those of the injector.
    pub const ALL: [Self; 12] = [
        Self::Everything,
        Self::Patches,
        Self::PairPatches,
        Self::Status,
        Self::Events,
        Self::Secret,
        Self::Lists(Watched::Routes),
        Self::Lists(Watched::Secrets),
        Self::Watches(Watched::Routes),
        Self::Watches(Watched::Secrets),
        Self::Leases,
        Self::OpenApi,
    ];

    fn covers(self, method: &Method, target: &Target) -> bool {
        let patch = method == Method::PATCH && target.is_about("routes");
        let list = method == Method::GET && target.name.is_none() && !target.watch;
        match self {
            Self::Everything => true,
            Self::Patches => patch,
            Self::PairPatches => patch && target.subresource.is_none(),
            Self::Status => method == Method::PATCH && target.subresource.is_some(),
            Self::Events => target.is_about("events"),
            Self::Secret => target.is_about("secrets") && target.name.is_some(),
            Self::ConfigMaps => target.is_about("configmaps") && method != Method::GET,
            Self::Writes => method != Method::GET && !target.is_about("events"),
            Self::Lists(watched) => list && target.is_about(watched.resource()),
            Self::Watches(watched) => target.watch && target.is_about(watched.resource()),
            Self::Leases => target.is_about("leases"),
            Self::TokenRequests => target.is_about("serviceaccounts"),
            Self::TokenReviews => target.is_about("tokenreviews"),
            Self::OpenApi => target.resource.is_empty() && target.namespace.is_none(),
        }
    }
}

/// Faults of one call.
#[derive(Clone, Debug, Default)]
pub struct CallFaults {
    pub crash: Option<Moment>,
    pub lagging: bool,
    pub request: RequestFaults,
}

struct Active {
    kind: FaultKind,
    until: Instant,
    /// The store's version when it started.
    version: u64,
    /// How many more calls it affects.
    left: u32,
}

/// The faults of one simulation, before and after they started.
pub struct Faults {
    armed: Vec<Fault>,
    active: Vec<Active>,
}

impl Faults {
    pub fn new(faults: &[Fault]) -> Self {
        Self { armed: faults.to_vec(), active: Vec::new() }
    }

    /// Removes and returns the faults that start before this step. Crashes are armed from the
    /// start.
    pub fn due(&mut self, step: usize) -> Vec<Fault> {
        let begins =
            |fault: &Fault| fault.at == step && !matches!(fault.kind, FaultKind::Crash { .. });
        let (due, rest) = std::mem::take(&mut self.armed).into_iter().partition(begins);
        self.armed = rest;
        due
    }

    pub fn begin(&mut self, fault: Fault, now: Instant, version: u64) {
        let left = match fault.kind {
            FaultKind::Refuse { most, .. } | FaultKind::Lose { most, .. } => most,
            _ => u32::MAX,
        };
        self.active.push(Active { kind: fault.kind, until: now + fault.lasts, version, left });
    }

    /// When the last fault ends.
    pub fn end(&self) -> Option<Instant> {
        self.active.iter().map(|active| active.until).max()
    }

    pub fn heal(&mut self) {
        self.armed.clear();
        self.active.clear();
    }

    pub fn on_call(
        &mut self,
        replica: usize,
        number: u32,
        method: &Method,
        target: &Target,
        now: Instant,
    ) -> CallFaults {
        let crash = self.crash(replica, number);
        let crash_after_commit = crash == Some(Moment::AfterCommit);
        let mut request = RequestFaults { crash_after_commit, ..RequestFaults::default() };
        let mut lagging = false;
        for active in self.active.iter_mut().filter(|active| now < active.until && active.left > 0)
        {
            match active.kind {
                FaultKind::Refuse { which, code, committed, .. }
                    if which.covers(method, target) =>
                {
                    active.left -= 1;
                    request.refused.get_or_insert((code, committed));
                }
                FaultKind::Lose { which, committed, .. } if which.covers(method, target) => {
                    active.left -= 1;
                    request.lost.get_or_insert(committed);
                }
                FaultKind::Slow { which, by } if which.covers(method, target) => {
                    request.delay += by
                }
                FaultKind::SlowAnswer { which, by } if which.covers(method, target) => {
                    request.answer_delay += by;
                }
                FaultKind::Gap(watched) if Calls::Watches(watched).covers(method, target) => {
                    request.refused.get_or_insert((503, Committed::No));
                }
                FaultKind::Gap(watched) if Calls::Lists(watched).covers(method, target) => {
                    request.refused.get_or_insert((503, Committed::No));
                }
                FaultKind::Lag if method == Method::GET && target.name.is_none() => lagging = true,
                FaultKind::Pause { replica: paused } if paused == replica => {
                    request.held_until = request.held_until.max(Some(active.until));
                }
                _ => {}
            }
        }
        CallFaults { crash, lagging, request }
    }

    /// Whether the replica is cut off.
    pub fn cut_off(&self, replica: usize, now: Instant) -> bool {
        let cuts =
            |it: &Active| matches!(it.kind, FaultKind::Pause { replica: cut } if cut == replica);
        self.active.iter().any(|active| now < active.until && cuts(active))
    }

    fn crash(&mut self, replica: usize, number: u32) -> Option<Moment> {
        let at = self.armed.iter().position(|fault| {
            replica == 0 && matches!(fault.kind, FaultKind::Crash { call, .. } if call == number)
        })?;
        match self.armed.swap_remove(at).kind {
            FaultKind::Crash { moment, .. } => Some(moment),
            _ => None,
        }
    }

    /// False in most simulations, which then need not parse watch events.
    pub fn affect_events(&self) -> bool {
        !self.active.is_empty()
    }

    pub fn event(
        &mut self,
        replica: usize,
        watched: Watched,
        version: u64,
        now: Instant,
    ) -> EventFault {
        let mut held: Option<Instant> = None;
        for active in self.active.iter_mut().filter(|active| now < active.until && active.left > 0)
        {
            match active.kind {
                FaultKind::Freeze(frozen) if frozen == watched && version > active.version => {
                    held = held.max(Some(active.until));
                }
                FaultKind::Gap(gap) if gap == watched && version > active.version => {
                    return EventFault::Damaged(Damage::Reset);
                }
                FaultKind::Damage(damaged, damage) if damaged == watched => {
                    active.left = 0;
                    return EventFault::Damaged(damage);
                }
                FaultKind::Pause { replica: paused } if paused == replica => {
                    held = held.max(Some(active.until));
                }
                _ => {}
            }
        }
        held.map_or(EventFault::None, EventFault::HeldUntil)
    }
}
