//! Warnings about a pair that the router serves.

use std::fmt;
use std::net::IpAddr;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::{CertificateFacts, ChainOrder, Validity};
use crate::runtime::printable::printable;

/// A warning shows at most this many names of a certificate.
const SHOWN: usize = 5;
/// No name of a host is longer.
const LONGEST_NAME: usize = 255;
/// Shown in place of a name that can't be a host's.
const NO_HOST: &str = "(a name that is no host)";

/// The Route's wildcardPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wildcard {
    #[default]
    None,
    /// The Route serves every name beside its host: `www.apps.example.com` serves
    /// `*.apps.example.com`.
    Subdomain,
}

/// Something that clients object to, though the router does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    NotYetValid {
        not_before: DateTime<Utc>,
    },
    Expiring {
        not_after: DateTime<Utc>,
    },
    Expired {
        not_after: DateTime<Utc>,
    },
    /// An intermediate certificate has expired, and the leaf has not.
    IntermediateExpired {
        not_after: DateTime<Utc>,
    },
    HostNotCovered {
        /// What the Route serves; with a wildcard, `*.` and the domain.
        host: Box<str>,
        /// The first few names that the certificate is for: it may have tens of thousands.
        names: Box<[Box<str>]>,
        more: usize,
    },
    ChainOutOfOrder,
    ChainIncomplete,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |time: &DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
        match self {
            Self::NotYetValid { not_before } => write!(
                f,
                "The certificate is not valid before {}, and clients refuse it until then. \
                 Check the clock of its issuer, or wait.",
                at(not_before)
            ),
            Self::Expiring { not_after } => {
                write!(f, "The certificate expires at {}. Renew it before then.", at(not_after))
            }
            Self::Expired { not_after } => write!(
                f,
                "The certificate expired at {}, and clients refuse it. Renew it.",
                at(not_after)
            ),
            Self::IntermediateExpired { not_after } => write!(
                f,
                "An intermediate certificate in tls.crt expired at {}, and clients that need it refuse \
                 the server. Replace it with the one that its issuer uses now.",
                at(not_after)
            ),
            Self::HostNotCovered { host, names, more } => {
                let (host, names) = (printable(host), Names(names, *more));
                write!(
                    f,
                    "The certificate is for {names}, not for the Route's host {host}, and clients \
                     refuse it there. Get a certificate for {host}, or correct the Route's host."
                )
            }
            Self::ChainOutOfOrder => f.write_str(
                "The certificates in tls.crt are out of order, and some clients refuse them. \
                 Put the server's certificate first, then the one of its issuer, and so on.",
            ),
            Self::ChainIncomplete => f.write_str(
                "An issuer's certificate is missing from tls.crt, and clients that don't have it \
                 refuse the server. Add the intermediate certificates after the server's.",
            ),
        }
    }
}

/// The first few names, and how many more there are.
struct Names<'a>(&'a [Box<str>], usize);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            ([], _) => f.write_str("no host at all (it has no subject alternative names)"),
            (names, 0) => f.write_str(&listed(names)),
            (names, more) => write!(f, "{} and {more} more", listed(names)),
        }
    }
}

/// A name in a certificate can be any ASCII: terminal escapes, or a sentence that tells the reader
/// what to run.
fn listed(names: &[Box<str>]) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*' | ':');
    let is_host = |name: &str| name.len() <= LONGEST_NAME && name.chars().all(is_part);
    let shown = names.iter().map(|name| if is_host(name) { name } else { NO_HOST });
    shown.collect::<Vec<_>>().join(", ")
}

/// The phase of a certificate's life at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    NotYetValid,
    Valid,
    Expiring,
    Expired,
}

/// The times at which an age begins.
struct Life {
    valid: DateTime<Utc>,
    expiring: DateTime<Utc>,
    intermediate_expired: Option<DateTime<Utc>>,
    expired: DateTime<Utc>,
}

impl Life {
    fn of(Validity { not_before, not_after, intermediates_until }: Validity) -> Self {
        let lifetime = (not_after - not_before).max(TimeDelta::zero());
        let notice = (lifetime / 6).min(TimeDelta::days(7));
        // A certificate's times count in seconds, and its last second is part of its life.
        let after =
            |time: DateTime<Utc>| time.checked_add_signed(TimeDelta::seconds(1)).unwrap_or(time);
        Self {
            valid: not_before,
            expiring: not_after.checked_sub_signed(notice).unwrap_or(not_after),
            intermediate_expired: intermediates_until.map(after),
            expired: after(not_after),
        }
    }

    fn age(&self, now: DateTime<Utc>) -> Age {
        match now {
            now if now >= self.expired => Age::Expired,
            now if now < self.valid => Age::NotYetValid,
            now if now >= self.expiring => Age::Expiring,
            _ => Age::Valid,
        }
    }

    /// Where the certificate itself has expired, nobody cares for its issuers.
    fn has_expired_intermediate(&self, now: DateTime<Utc>) -> bool {
        now < self.expired && self.intermediate_expired.is_some_and(|it| now >= it)
    }
}

/// All that is worth a warning at this time.
///
/// `host` may be empty: then it is not looked at. Names count only as subject alternative names;
/// browsers have long stopped looking at the common name.
pub fn warnings(
    facts: &CertificateFacts,
    host: &str,
    wildcard: Wildcard,
    now: DateTime<Utc>,
) -> Vec<Warning> {
    let time = age_warnings(facts.validity, now);
    time.chain(lasting_warnings(facts, host, wildcard)).collect()
}

/// Those that no time changes: they hold for as long as certificate and host are the same.
pub fn lasting_warnings(
    facts: &CertificateFacts,
    host: &str,
    wildcard: Wildcard,
) -> impl Iterator<Item = Warning> {
    let chain = match facts.chain {
        ChainOrder::InOrder => None,
        ChainOrder::OutOfOrder => Some(Warning::ChainOutOfOrder),
        ChainOrder::Incomplete => Some(Warning::ChainIncomplete),
    };
    host_warning(facts, host, wildcard).into_iter().chain(chain)
}

/// The warnings about the time: of the certificate itself, then of its issuers.
pub fn age_warnings(validity: Validity, now: DateTime<Utc>) -> impl Iterator<Item = Warning> {
    let Validity { not_before, not_after, intermediates_until } = validity;
    let life = Life::of(validity);
    let own = match life.age(now) {
        Age::NotYetValid => Some(Warning::NotYetValid { not_before }),
        Age::Valid => None,
        Age::Expiring => Some(Warning::Expiring { not_after }),
        Age::Expired => Some(Warning::Expired { not_after }),
    };
    let intermediate = intermediates_until.filter(|_| life.has_expired_intermediate(now));
    let intermediate = intermediate.map(|not_after| Warning::IntermediateExpired { not_after });
    own.into_iter().chain(intermediate)
}

/// When the warnings about the time change next. Not the moment itself, always after `now`.
pub fn next_change(validity: Validity, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let life = Life::of(validity);
    let at = |time| (life.age(time), life.has_expired_intermediate(time));
    [life.valid, life.expiring, life.expired]
        .into_iter()
        .chain(life.intermediate_expired)
        .filter(|time| *time > now && at(*time) != at(now))
        .min()
}

fn host_warning(facts: &CertificateFacts, host: &str, wildcard: Wildcard) -> Option<Warning> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let served = match (wildcard, host.split_once('.')) {
        (Wildcard::Subdomain, Some((_, domain))) => format!("*.{domain}"),
        _ => host,
    };
    let covered = served.is_empty() || facts.names().any(|name| covers(name, &served));
    (!covered).then(|| Warning::HostNotCovered {
        host: served.into_boxed_str(),
        names: facts.names().take(SHOWN).map(bounded).collect(),
        more: facts.names().skip(SHOWN).count(),
    })
}

/// A longer name is no host's, so that all of it needs not be kept.
fn bounded(name: &str) -> Box<str> {
    let end = name.char_indices().nth(LONGEST_NAME + 1).map_or(name.len(), |(at, _)| at);
    name[..end].into()
}

/// RFC 6125: the same name, or `*` for exactly the left-most label.
fn covers(name: &str, host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return name.parse() == Ok(address);
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let by_wildcard = || {
        let domain = name.strip_prefix("*.")?;
        let (label, rest) = host.split_once('.')?;
        Some(!label.is_empty() && !domain.is_empty() && rest == domain)
    };
    name == host || by_wildcard() == Some(true)
}
