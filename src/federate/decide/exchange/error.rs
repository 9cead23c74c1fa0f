//! Why a file is not imported.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{KIND, LONGEST, VERSION};

/// Why a file is not imported. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It can't be an export.
    #[error("the file is longer than {} MiB, and no export is", LONGEST >> 20)]
    TooLong,
    /// It ends in the middle.
    #[error("the file was cut: it ends in the middle. Have it sent again")]
    Cut,
    /// It is something else.
    #[error("the file is not one of trustplane federation export: its kind is not {KIND}")]
    NotAnExport,
    /// Another program wrote it.
    #[error("the file is not of version {VERSION}: another version of trustplane wrote it")]
    OtherVersion,
    /// It can't be used.
    #[error("the file can't be used: {0}")]
    Malformed(String),
    /// It says that it has the right fingerprint, and has another.
    #[error(
        "the file was changed after it was made: it claims this fingerprint, and its content has another. Do not use it, and ask who sent it"
    )]
    Changed,
    /// It is another file.
    #[error(
        "the file is another than the one that you were told of: its fingerprint is {found}, not {expected}. Ask the administrators of the other cluster which is right, over another channel than the one that the file came by"
    )]
    OtherFingerprint {
        /// Of the file.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// It is of the cluster that it is brought to.
    #[error("the file is of {0}, the trust domain of this cluster itself")]
    OwnTrustDomain(String),
    /// Nobody wants it here.
    #[error(
        "the file is of {trust_domain}, which the SpireServer of this cluster does not list under spec.federation.federatesWith ({}). Is it the right file, and the right cluster? List the trust domain first; or say --unlisted, and SPIRE trusts it all the same",
        in_words(listed)
    )]
    Unlisted {
        /// Whose file it is.
        trust_domain: String,
        /// Who is listed.
        listed: Vec<String>,
    },
    /// It was made later than now.
    #[error("the file was made at {made_at}, and here it is {now}: do the clocks agree?")]
    FromTheFuture {
        /// When it was made.
        made_at: DateTime<Utc>,
        /// When it was read.
        now: DateTime<Utc>,
    },
    /// It was made long ago.
    #[error(
        "the file is old: it was made at {made_at}, longer ago than {} (--max-age). Authorities change; have a new one made. To take it all the same, say --older",
        humantime::format_duration(*max_age)
    )]
    TooOld {
        /// When it was made.
        made_at: DateTime<Utc>,
        /// The oldest that is taken.
        max_age: Duration,
    },
    /// All of its authorities have ended.
    #[error(
        "the file is old: its authorities have ended, the last at {ended}. Have a new one made"
    )]
    Ended {
        /// When the last did.
        ended: DateTime<Utc>,
    },
    /// None of its authorities has begun.
    #[error(
        "no authority in the file is valid yet, the first will be at {from}: do the clocks agree?"
    )]
    NotYetValid {
        /// When the first will be.
        from: DateTime<Utc>,
    },
    /// There is nothing to verify with.
    #[error("the bundle in the file has no authority for X.509")]
    NoAuthority,
    /// Something newer is known.
    #[error(
        "the file is old: the sequence of its bundle is {found}, and this cluster knows {known} already. Have a new one made. If the other SPIRE server started over, from a backup or without its data, say --older"
    )]
    OlderSequence {
        /// In the file.
        found: u64,
        /// PeerState here.
        known: u64,
    },
    /// Something newer was brought.
    #[error(
        "the file is old: the youngest of its authorities is of {found}, and this cluster has one of {known} already. Have a new one made. If the other SPIRE server started over, say --older"
    )]
    OlderAuthorities {
        /// In the file.
        found: DateTime<Utc>,
        /// Brought before.
        known: DateTime<Utc>,
    },
}

fn in_words(listed: &[String]) -> String {
    match listed {
        [] => "it lists none".to_owned(),
        some => format!("it lists {}", some.join(", ")),
    }
}
