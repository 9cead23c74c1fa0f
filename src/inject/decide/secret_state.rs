//! Whether a Route can use its Secret. Pure.

use chrono::{DateTime, Utc};

use crate::{
    inject::decide::state::Reason,
    tls::{Fingerprint, Problem},
};

/// The Secret that the Route's annotation names.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretState {
    /// It holds this pair, and the router would serve it.
    Usable(Fingerprint),
    /// Not there, since when. A Route that names no Secret sees this too; nobody asks then.
    Missing {
        since: DateTime<Utc>,
    },
    WrongType(Box<str>),
    /// A pair that the router would refuse.
    Invalid {
        problems: Box<[Problem]>,
        /// The pair nevertheless, if it is text.
        pair: Option<Fingerprint>,
    },
    /// A good pair that the Route's own `caCertificate` makes the router refuse.
    CaMismatch(Box<[Problem]>),
}

impl SecretState {
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Usable(_))
    }

    /// The pair to inject, or why there is none.
    pub(crate) fn usable(&self) -> Result<Fingerprint, Unusable<'_>> {
        match self {
            Self::Usable(pair) => Ok(*pair),
            Self::Missing { since } => Err(Unusable::Missing { since: *since }),
            Self::WrongType(found) => Err(Unusable::WrongType(found)),
            Self::Invalid { problems, .. } => Err(Unusable::Invalid(problems)),
            Self::CaMismatch(problems) => Err(Unusable::CaMismatch(problems)),
        }
    }
}

/// Why a Secret can't be injected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unusable<'a> {
    InvalidName(&'a str),
    Missing {
        since: DateTime<Utc>,
    },
    WrongType(&'a str),
    /// The router would refuse the pair.
    Invalid(&'a [Problem]),
    /// The router would refuse it because of the Route's own `caCertificate`.
    CaMismatch(&'a [Problem]),
}

impl Unusable<'_> {
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidName(_) => Reason::InvalidSecretName,
            Self::Missing { .. } => Reason::SecretNotFound,
            Self::WrongType(_) => Reason::SecretWrongType,
            Self::Invalid(_) => Reason::SecretInvalid,
            Self::CaMismatch(_) => Reason::CACertificateMismatch,
        }
    }
}
