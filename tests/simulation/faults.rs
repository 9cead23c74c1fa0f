//! What goes wrong between a controller and its API server, and when.

use std::time::Duration;

pub use apiserver::faults::{Committed, Damage};
use apiserver::faults::{EventFault, RequestFaults};
use http::Method;
use tokio::time::Instant;

use crate::journal::Target;

/// Something that goes wrong from one step of the workload on, for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The step before which it begins.
    pub at: usize,
    pub lasts: Duration,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The first replica's process dies at its nth call, counted from the start.
    Crash { call: u32, moment: Moment },
    /// Calls are refused with this code.
    Refuse { which: Which, code: u16, committed: Committed, most: u32 },
    /// Calls are not answered.
    Lose { which: Which, committed: Committed, most: u32 },
    /// Calls take this much longer.
    Slow { which: Which, by: Duration },
    /// Calls are carried out at once, and answered this much later.
    SlowAnswer { which: Which, by: Duration },
    /// What changes from now on reaches the watch only afterwards.
    Freeze(Watched),
    /// The watch's next event arrives damaged.
    Damage(Watched, Damage),
    /// The process dies and comes back to an API server that lags: its lists and watches end here.
    Lag,
    /// The watch breaks and can't be opened; afterwards the changes in between are gone (410).
    Gap(Watched),
    /// History is forgotten: a watch that begins at an old version meets a 410.
    Compact,
    /// Nothing goes in or out of this replica.
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
}

impl Watched {
    pub const BOTH: [Self; 2] = [Self::Routes, Self::Secrets];

    pub fn resource(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Secrets => "secrets",
        }
    }
}

/// Which calls of the controllers are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Everything,
    Patches,
    PairPatches,
    Status,
    Events,
    Secret,
    Lists(Watched),
    Watches(Watched),
    Leases,
    OpenApi,
}

impl Which {
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
            Self::Status => patch && target.subresource.is_some(),
            Self::Events => target.is_about("events"),
            Self::Secret => target.is_about("secrets") && target.name.is_some(),
            Self::Lists(watched) => list && target.is_about(watched.resource()),
            Self::Watches(watched) => target.watch && target.is_about(watched.resource()),
            Self::Leases => target.is_about("leases"),
            Self::OpenApi => target.resource.is_empty() && target.namespace.is_none(),
        }
    }
}

/// What a call meets on its way.
#[derive(Clone, Debug, Default)]
pub struct Met {
    pub crash: Option<Moment>,
    pub lagging: bool,
    pub faults: RequestFaults,
}

struct Active {
    what: What,
    until: Instant,
    /// The store's version when it began.
    version: u64,
    /// How many calls it still meets.
    left: u32,
}

/// The faults of one simulation: armed, active, over.
pub struct Faults {
    armed: Vec<Fault>,
    active: Vec<Active>,
}

impl Faults {
    pub fn new(faults: &[Fault]) -> Self {
        Self { armed: faults.to_vec(), active: Vec::new() }
    }

    /// Those that begin before this step; crashes are armed from the start.
    pub fn due(&mut self, step: usize) -> Vec<Fault> {
        let begins = |fault: &Fault| fault.at == step && !matches!(fault.what, What::Crash { .. });
        let (due, rest) = std::mem::take(&mut self.armed).into_iter().partition(begins);
        self.armed = rest;
        due
    }

    pub fn begin(&mut self, fault: Fault, now: Instant, version: u64) {
        let left = match fault.what {
            What::Refuse { most, .. } | What::Lose { most, .. } => most,
            _ => u32::MAX,
        };
        self.active.push(Active { what: fault.what, until: now + fault.lasts, version, left });
    }

    /// When the last of them ends.
    pub fn end(&self) -> Option<Instant> {
        self.active.iter().map(|active| active.until).max()
    }

    /// No more of them.
    pub fn heal(&mut self) {
        self.armed.clear();
        self.active.clear();
    }

    pub fn meet(
        &mut self,
        replica: usize,
        number: u32,
        method: &Method,
        target: &Target,
        now: Instant,
    ) -> Met {
        let crash = self.crash(replica, number);
        let crash_after_commit = crash == Some(Moment::AfterCommit);
        let mut faults = RequestFaults { crash_after_commit, ..RequestFaults::default() };
        let mut lagging = false;
        for active in self.active.iter_mut().filter(|active| now < active.until && active.left > 0)
        {
            match active.what {
                What::Refuse { which, code, committed, .. } if which.covers(method, target) => {
                    active.left -= 1;
                    faults.refused.get_or_insert((code, committed));
                }
                What::Lose { which, committed, .. } if which.covers(method, target) => {
                    active.left -= 1;
                    faults.lost.get_or_insert(committed);
                }
                What::Slow { which, by } if which.covers(method, target) => faults.delay += by,
                What::SlowAnswer { which, by } if which.covers(method, target) => {
                    faults.answer_delay += by;
                }
                What::Gap(watched) if Which::Watches(watched).covers(method, target) => {
                    faults.refused.get_or_insert((503, Committed::No));
                }
                What::Gap(watched) if Which::Lists(watched).covers(method, target) => {
                    faults.refused.get_or_insert((503, Committed::No));
                }
                What::Lag if method == Method::GET && target.name.is_none() => lagging = true,
                What::Pause { replica: paused } if paused == replica => {
                    faults.held_until = faults.held_until.max(Some(active.until));
                }
                _ => {}
            }
        }
        Met { crash, lagging, faults }
    }

    fn crash(&mut self, replica: usize, number: u32) -> Option<Moment> {
        let at = self.armed.iter().position(|fault| {
            replica == 0 && matches!(fault.what, What::Crash { call, .. } if call == number)
        })?;
        match self.armed.swap_remove(at).what {
            What::Crash { moment, .. } => Some(moment),
            _ => None,
        }
    }

    /// Whether any event of a watch could meet something: most simulations never ask further.
    pub fn concern_events(&self) -> bool {
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
            match active.what {
                What::Freeze(frozen) if frozen == watched && version > active.version => {
                    held = held.max(Some(active.until));
                }
                What::Gap(gap) if gap == watched && version > active.version => {
                    return EventFault::Damaged(Damage::Reset);
                }
                What::Damage(damaged, damage) if damaged == watched => {
                    active.left = 0;
                    return EventFault::Damaged(damage);
                }
                What::Pause { replica: paused } if paused == replica => {
                    held = held.max(Some(active.until));
                }
                _ => {}
            }
        }
        held.map_or(EventFault::None, EventFault::HeldUntil)
    }
}
