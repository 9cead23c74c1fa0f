//! The changes to a Route's certificate. Pure.

use crate::{
    inject::decide::facts::{Holding, RouteFacts},
    tls::Fingerprint,
};

/// A change to `spec.tls` and the marker, always in one patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Certificate, key and marker of the pair with this fingerprint.
    Inject(Fingerprint),
    /// The Route holds the pair already; only the marker is missing.
    AddMarker(Fingerprint),
    Clear,
    /// A key without its certificate, and the marker, go.
    ClearKey,
    /// The marker goes; the pair is not ours.
    DropMarker,
}

impl Write {
    /// The pair of ours that the Route holds afterwards, if any.
    pub fn target(self) -> Option<Fingerprint> {
        match self {
            Self::Inject(fingerprint) | Self::AddMarker(fingerprint) => Some(fingerprint),
            Self::Clear | Self::ClearKey | Self::DropMarker => None,
        }
    }

    /// Whether this write is in effect in the Route.
    pub fn is_done_in(self, route: &RouteFacts) -> bool {
        let holding = route.holding();
        match self {
            Self::Inject(fingerprint) | Self::AddMarker(fingerprint) => {
                holding.is_ours(fingerprint)
            }
            Self::Clear | Self::ClearKey => holding == Holding::Nothing && !route.has_marker,
            Self::DropMarker => !route.has_marker,
        }
    }
}

/// The Route before an injection; only the Event's text differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Ours,
    Theirs,
}

/// A write of ours that the Route's owner gets an Event about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedWrite {
    Injected(Before),
    /// The pair went out, because the annotation did.
    Cleared,
}
