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
    /// The marker of the pair's origin follows in a second patch.
    MarkerAfterwards,
    /// The condition is written before the change that it reports.
    StatusFirst,
    /// The lease is checked when work begins, and not again before the write.
    LeaseUnchecked,
    /// A deleted Secret stays in the cache.
    SecretStaysCached,
    /// HTTP 410 at the start of a watch: the same lost version is requested again and again.
    GoneIgnored,
    /// A Secret's change reaches the first of its Routes.
    FirstRouteOnly,
    /// Objects that a list no longer contains stay in the cache.
    RelistForgetsNothing,
    /// Changes that leave `metadata.generation` alone are filtered out.
    GenerationFilter,
    /// The first 404 clears the Route, though a Secret is often deleted and made again.
    NoGrace,
    /// After a conflict the same patch is sent again with the new version.
    BlindRetry,
    /// The pair is written although it is there already.
    RewritesAlways,
    /// The condition gets a new time with every reconcile.
    RestampsStatus,
    /// Routes that an Ingress controls are written too.
    TouchesIngressOwned,
    /// `spec.tls` is replaced as a whole.
    ReplacesWholeTls,
    /// The cache of a failing watch is trusted.
    TrustsDeadWatch,
    /// A write that somebody keeps undoing is repeated without end.
    FightsForEver,
    /// The key goes into a log line.
    KeyInLog,
    /// Changes while a worker has the Route are lost.
    LosesChangesAtWork,
    /// The index keeps the Secret that a Route named before.
    IndexKeepsOldName,
    /// HTTP 5xx to the read of a Secret counts as its absence.
    ClearsOnServerError,
    /// No Event reports a write.
    HappenedNeverTold,
    /// Failures are retried at once, whatever Retry-After says.
    HammersOnFailure,
    /// The Event of an ongoing problem is never renewed.
    NeverRenewsEvents,
    /// A Secret that came back and went again has no grace.
    GraceNeverRestarts,
    /// The answer to our write hides an earlier event of the watch.
    WrittenHidesNewer,
    /// The answer to a read hides an event that came meanwhile.
    ReadHidesNewer,
    /// A failed Event is published later, whatever became of the Route meanwhile.
    TellsWhatIsOver,
    /// A Route whose pair came from another Secret, or another version of it, counts as up to date.
    BelievesOtherUid,
    /// The recorded origin is trusted after somebody else changed pair and annotations.
    BelievesForeignChange,
    /// The recorded origin is not compared with the version in a new list.
    BelievesOlderVersion,
    /// A pair that earlier rules accepted is cleared by stricter ones.
    ClearsByStricterRules,
    /// The condition stays as it was while every write is refused.
    SilentWhileWritesFail,
    /// A Route with an external certificate loses its marker, and keeps the key.
    LetsGoWithoutClearing,
    /// A new CA of ours signs before others can know it.
    ActivatesAtOnce,
    /// A new CA signs although the ConfigMap does not have it yet.
    SignsUnpublished,
    /// The hint that clients saw last is forgotten when a shorter one is published.
    ForgetsLongerHint,
    /// A CA leaves the bundle while SVIDs of it are valid.
    GoesEarly,
    /// The document changes under the same sequence.
    SequenceStays,
    /// Keys of new CAs follow in a second write.
    KeysAfterwards,
    /// Of two replicas that create the first CA, the slower one wins.
    OverwritesFirstCa,
    /// A lost Secret is replaced by a new CA that nobody asked for.
    SilentNewCa,
    /// After `--new-authority` the sequence starts again.
    SequenceStartsAgain,
    /// A Secret that was restored from an old copy is believed.
    BelievesOldCopy,
    /// The Secret is read from a cache that lags.
    CachedSecret,
    /// A bundle with a lower sequence is taken.
    TakesLowerSequence,
    /// An acceptance counts again and again.
    AcceptsForEver,
    /// A fetch that fails takes the last bundle away.
    FailureDropsBundle,
    /// A verified bundle without keys counts as a failed fetch.
    EmptyIsFailure,
    /// Our own status writes cause the next sync.
    OwnWritesTrigger,
    /// `spiffe refresh` is not noticed.
    RefreshIgnored,
    /// Audit records are buffered, and a crash loses them.
    AuditBuffered,
    /// A deletion that nobody saw is not audited.
    UnseenDeletionForgotten,
    /// After a change of the source the bundle of the old one stays until the next interval.
    KeepsOldSource,
    /// The use of a token is written after its certificate was signed.
    SignsBeforeUse,
    /// The use of a token is written without the version that it was decided from.
    UseWithoutPrecondition,
    /// A use that collided with another one counts as written.
    ConflictIsSuccess,
    /// A join is not judged again after its use was written, which may have taken long.
    NotJudgedAgain,
    /// Joins are judged by watches that died.
    BelievesDeadWatch,
    /// An event that is older than our own write replaces it.
    OlderEventOverwrites,
    /// A token that was made again under its name counts as the one before.
    RecreatedTakenForOld,
    /// A deleted token stays known.
    DeletedTokenStays,
    /// The late answer to a call brings a deleted token back.
    LateAnswerRevives,
    /// The bundle of a federation that ended stays known.
    EndedTrustCounts,
    /// Certificates are signed by the CA that was active first.
    KeepsFirstIssuer,
    /// A certificate is recorded after it was handed out, and a crash loses the record.
    CertificateBeforeRecord,
    /// Refusals that have no record of their own are not summed.
    RefusalsForgotten,
    /// A renewed token is saved although no cluster served it yet.
    SavedUntried,
    /// A renewed token is used before it was saved, and a crash loses it.
    UsedBeforeSaved,
    /// The client of a cluster keeps the token that it was made with.
    OldBearerKept,
    /// A cluster for which there is no token gets the one of our own Pod.
    LocalTokenSentOut,
    /// The old token is removed first, and the new one written in a second patch.
    OldDroppedFirst,
    /// What a server granted is renewed as if it had granted all that was asked for.
    CapIgnored,
    /// A replica reads the Secret once, and then only while it leads.
    StandbyNeverFollows,
    /// Tokens are forgotten when somebody deletes the Secret.
    LostSecretForgotten,
    /// Whose each key was first is noted again each time.
    NotesOverwritten,
    /// A token that an administrator puts into the file later is not read.
    NewerFileIgnored,
    /// A token is called bad because its cluster does not answer.
    OutageAsFalse,
    /// A token of an unknown key is sent to a cluster that it may be of.
    SentToCandidates,
    /// Keys that can't be fetched again are forgotten.
    KeysDroppedByOutage,
    /// Whoever asks for new keys is content with a fetch that was sent before.
    OldFetchCounts,
    /// A cluster that failed for long is never asked again.
    NeverTriesAgain,
    /// A remembered verdict for one audience answers for another.
    AudiencesLeftOut,
    /// Whoever asks while an older review of the token is under way gets its verdict.
    SharedFlight,
}

impl Bug {
    /// Those that the simulator of the injector catches.
    pub const INJECT: [Self; 36] = [
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

    /// Those that the simulator of the authority catches.
    pub const AUTHORITY: [Self; 22] = [
        Self::NoPrecondition,
        Self::LeaseUnchecked,
        Self::ActivatesAtOnce,
        Self::SignsUnpublished,
        Self::ForgetsLongerHint,
        Self::GoesEarly,
        Self::SequenceStays,
        Self::KeysAfterwards,
        Self::OverwritesFirstCa,
        Self::SilentNewCa,
        Self::SequenceStartsAgain,
        Self::BelievesOldCopy,
        Self::CachedSecret,
        Self::TakesLowerSequence,
        Self::AcceptsForEver,
        Self::FailureDropsBundle,
        Self::EmptyIsFailure,
        Self::OwnWritesTrigger,
        Self::RefreshIgnored,
        Self::AuditBuffered,
        Self::UnseenDeletionForgotten,
        Self::KeepsOldSource,
    ];

    /// Those that the simulator of joins catches.
    pub const JOIN: [Self; 14] = [
        Self::SignsBeforeUse,
        Self::UseWithoutPrecondition,
        Self::ConflictIsSuccess,
        Self::NotJudgedAgain,
        Self::BelievesDeadWatch,
        Self::OlderEventOverwrites,
        Self::RecreatedTakenForOld,
        Self::DeletedTokenStays,
        Self::LateAnswerRevives,
        Self::EndedTrustCounts,
        Self::KeepsFirstIssuer,
        Self::CertificateBeforeRecord,
        Self::RefusalsForgotten,
        Self::KeyInLog,
    ];

    /// Those that the simulator of renewals catches.
    pub const RENEWAL: [Self; 16] = [
        Self::NoPrecondition,
        Self::LeaseUnchecked,
        Self::RewritesAlways,
        Self::HammersOnFailure,
        Self::KeyInLog,
        Self::ConflictIsSuccess,
        Self::SavedUntried,
        Self::UsedBeforeSaved,
        Self::OldBearerKept,
        Self::LocalTokenSentOut,
        Self::OldDroppedFirst,
        Self::CapIgnored,
        Self::StandbyNeverFollows,
        Self::LostSecretForgotten,
        Self::NotesOverwritten,
        Self::NewerFileIgnored,
    ];

    /// Those that the simulator of reviews catches.
    pub const REVIEW: [Self; 7] = [
        Self::OutageAsFalse,
        Self::SentToCandidates,
        Self::KeysDroppedByOutage,
        Self::OldFetchCounts,
        Self::NeverTriesAgain,
        Self::AudiencesLeftOut,
        Self::SharedFlight,
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
