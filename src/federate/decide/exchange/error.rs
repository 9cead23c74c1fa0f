//! Why a file is not imported.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{KIND, LONGEST, VERSION};

/// The import changed nothing then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the file is longer than {} MiB, and no export is", LONGEST >> 20)]
    TooLong,
    #[error("the file was cut: it ends in the middle. Have it sent again")]
    Cut,
    #[error("the file is not one of trustplane federation export: its kind is not {KIND}")]
    NotAnExport,
    #[error("the file is not of version {VERSION}: another version of trustplane wrote it")]
    OtherVersion,
    #[error("the file can't be used: {0}")]
    Malformed(String),
    #[error(
        "the file was changed after it was made: it claims this fingerprint, and its content has another. Do not use it, and ask who sent it"
    )]
    Changed,
    #[error(
        "the file is another than the one that you were told of: its fingerprint is {found}, not {expected}. Ask the administrators of the other cluster which is right, over another channel than the one that the file came by"
    )]
    OtherFingerprint { found: String, expected: String },
    #[error("the file is of {0}, the trust domain of this cluster itself")]
    OwnTrustDomain(String),
    #[error(
        "the file is of {trust_domain}, which the SpireServer of this cluster does not list under spec.federation.federatesWith ({}). Is it the right file, and the right cluster? List the trust domain first; or say --unlisted, and SPIRE trusts it all the same",
        in_words(listed)
    )]
    Unlisted { trust_domain: String, listed: Vec<String> },
    #[error("the file was made at {made_at}, and here it is {now}: do the clocks agree?")]
    FromTheFuture { made_at: DateTime<Utc>, now: DateTime<Utc> },
    #[error(
        "the file is old: it was made at {made_at}, longer ago than {} (--max-age). Authorities change; have a new one made. To take it all the same, say --older",
        humantime::format_duration(*max_age)
    )]
    TooOld { made_at: DateTime<Utc>, max_age: Duration },
    #[error(
        "the file is old: its authorities have ended, the last at {ended}. Have a new one made"
    )]
    Ended { ended: DateTime<Utc> },
    #[error(
        "no authority in the file is valid yet, the first will be at {from}: do the clocks agree?"
    )]
    NotYetValid { from: DateTime<Utc> },
    #[error("the bundle in the file has no authority for X.509")]
    NoAuthority,
    #[error(
        "the file is old: the sequence of its bundle is {found}, and this cluster knows {known} already. Have a new one made. If the other SPIRE server started over, from a backup or without its data, say --older"
    )]
    OlderSequence { found: u64, known: u64 },
    #[error(
        "the file is old: the youngest of its authorities is of {found}, and this cluster has one of {known} already. Have a new one made. If the other SPIRE server started over, say --older"
    )]
    OlderAuthorities { found: DateTime<Utc>, known: DateTime<Utc> },
}

fn in_words(listed: &[String]) -> String {
    match listed {
        [] => "it lists none".to_owned(),
        some => format!("it lists {}", some.join(", ")),
    }
}
