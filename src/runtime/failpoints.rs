//! Bugs that controllers really had, for the fault simulator, which must catch each of them.
//!
//! Bugs of reading, caching and writing are switches in the code that ships, one line each. Bugs
//! of deciding have none there: the simulator tampers with what the controller sees and sends
//! (tests/simulation/tamper.rs). The switches exist only with the feature `seeded-bugs`; without
//! it `has` is the constant `false` and the compiler leaves nothing of them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bug {
    /// Writes carry neither uid nor resourceVersion: a stale decision wins.
    NoPrecondition,
    /// A Secret that the cache does not know counts as absent, and the API server is not asked.
    ClearsFromCache,
    /// Certificate first, key in a second patch.
    TwoWrites,
    /// The note that says whose the pair is follows in a second patch.
    MarkerAfterwards,
    /// The condition is written before what it tells of.
    StatusFirst,
    /// The lease is looked at when work begins, and not again before the write.
    LeaseUnchecked,
    /// A deleted Secret stays in the cache.
    SecretStaysCached,
    /// HTTP 410 at the start of a watch: the same lost version is asked for again and again.
    GoneIgnored,
    /// A Secret's change reaches the first of its Routes.
    FirstRouteOnly,
    /// What a list no longer brings is still believed to be there.
    RelistForgetsNothing,
    /// Changes that leave `metadata.generation` alone are filtered out.
    GenerationFilter,
    /// The first 404 clears the Route, though a Secret is often deleted and made again.
    NoGrace,
    /// After a conflict the same patch is sent again with the new version.
    BlindRetry,
    /// The pair is written though it stands there already.
    RewritesAlways,
    /// The condition gets a new time whenever it is looked at.
    RestampsStatus,
    /// Routes that an Ingress controls are written too.
    TouchesIngressOwned,
    /// `spec.tls` is replaced as a whole.
    ReplacesWholeTls,
    /// The cache of a watch that fails is believed.
    TrustsDeadWatch,
    /// Whoever keeps undoing a write is answered without end.
    FightsForEver,
    /// The key goes into a log line.
    KeyInLog,
    /// What changes while a worker has the Route is not looked at again.
    LosesChangesAtWork,
    /// The Secret that a Route asked for before still counts as the one it asks for.
    IndexKeepsOldName,
    /// HTTP 5xx to the read of a Secret counts as its absence.
    ClearsOnServerError,
    /// No Event tells of what was done.
    HappenedNeverTold,
    /// What failed is tried again at once, whatever Retry-After says.
    HammersOnFailure,
    /// A lasting problem is said once and never again.
    NeverRenewsEvents,
    /// A Secret that came back and went again has no grace.
    GraceNeverRestarts,
    /// The answer to our write hides what the watch brought before it.
    WrittenHidesNewer,
    /// The answer to a read hides what the watch brought while it was under way.
    ReadHidesNewer,
    /// An Event that nobody took is told later, whatever became of the Route meanwhile.
    TellsWhatIsOver,
    /// A Route whose pair came from another Secret, or another version of it, counts as up to date.
    BelievesOtherUid,
    /// Where the pair came from is believed after somebody else changed pair and annotations.
    BelievesForeignChange,
    /// Where the pair came from is not compared with the version that a new list brings.
    BelievesOlderVersion,
    /// A pair that earlier rules accepted is cleared by stricter ones.
    ClearsByStricterRules,
    /// The condition goes on to claim what it claimed before, while every write is refused.
    SilentWhileWritesFail,
    /// A Route with an external certificate loses its note, and keeps the key.
    LetsGoWithoutClearing,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 36] = [
        Self::NoPrecondition,
        Self::ClearsFromCache,
        Self::TwoWrites,
        Self::MarkerAfterwards,
        Self::StatusFirst,
        Self::LeaseUnchecked,
        Self::SecretStaysCached,
        Self::GoneIgnored,
        Self::FirstRouteOnly,
        Self::RelistForgetsNothing,
        Self::GenerationFilter,
        Self::NoGrace,
        Self::BlindRetry,
        Self::RewritesAlways,
        Self::RestampsStatus,
        Self::TouchesIngressOwned,
        Self::ReplacesWholeTls,
        Self::TrustsDeadWatch,
        Self::FightsForEver,
        Self::KeyInLog,
        Self::LosesChangesAtWork,
        Self::IndexKeepsOldName,
        Self::ClearsOnServerError,
        Self::HappenedNeverTold,
        Self::HammersOnFailure,
        Self::NeverRenewsEvents,
        Self::GraceNeverRestarts,
        Self::WrittenHidesNewer,
        Self::ReadHidesNewer,
        Self::TellsWhatIsOver,
        Self::BelievesOtherUid,
        Self::BelievesForeignChange,
        Self::BelievesOlderVersion,
        Self::ClearsByStricterRules,
        Self::SilentWhileWritesFail,
        Self::LetsGoWithoutClearing,
    ];
}

/// Whether this bug is switched on for the current thread: never, in what ships.
#[cfg(not(feature = "seeded-bugs"))]
pub const fn has(_: Bug) -> bool {
    false
}

#[cfg(feature = "seeded-bugs")]
pub use switched::{has, switch};

#[cfg(feature = "seeded-bugs")]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        // A simulation runs on one thread, so others may run without the bug next to it.
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is switched on for the current thread.
    pub fn has(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }

    /// Switches one bug on for the current thread, and any other off.
    pub fn switch(bug: Option<Bug>) {
        ON.set(bug);
    }
}
