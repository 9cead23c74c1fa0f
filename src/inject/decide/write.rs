//! The changes to a Route's certificate. Pure.

use crate::{
    inject::decide::facts::{Holding, Owner, RouteFacts},
    tls::Fingerprint,
};

/// A change to `spec.tls` and the marker, always in one patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Certificate, key and marker of the pair with this fingerprint.
    Inject(Fingerprint),
    /// The pair stands there already; only the marker is missing.
    AddMarker(Fingerprint),
    /// Certificate, key and marker go.
    Clear,
    /// A key without its certificate, and the marker, go.
    ClearKey,
    /// The marker goes; the pair is not ours.
    DropMarker,
}

impl Write {
    /// The pair that stands in the Route afterwards by our doing, if any.
    pub fn target(self) -> Option<Fingerprint> {
        match self {
            Self::Inject(fingerprint) | Self::AddMarker(fingerprint) => Some(fingerprint),
            Self::Clear | Self::ClearKey | Self::DropMarker => None,
        }
    }

    /// Whether the Route is what this write makes of it.
    pub fn stands_in(self, route: &RouteFacts) -> bool {
        let holding = route.holding();
        match self {
            Self::Inject(fingerprint) | Self::AddMarker(fingerprint) => {
                holding == Holding::Certificate(fingerprint, Owner::Ours)
            }
            Self::Clear | Self::ClearKey => holding == Holding::Nothing && !route.has_marker,
            Self::DropMarker => !route.has_marker,
        }
    }
}

/// What stood in the Route before an injection; only the Event's words differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// A pair that we injected earlier.
    Ours,
    /// A certificate of the user's own.
    Theirs,
}

/// A write of ours that the Route's owner gets an Event about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedWrite {
    /// The pair went in.
    Injected(Before),
    /// The pair went out, because the annotation did.
    Cleared,
}
