//! What can go wrong when a Route is read or written. Pure.

use crate::k8s::{api_error::ApiError, object_ref::ObjectRef};

/// What went wrong with a Route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The pair in hand is not the one that the plan speaks of.
    #[error("Route {route}: the pair to inject is not at hand")]
    PairMissing { route: ObjectRef },
    /// The pair could not be written.
    #[error("Route {route}: certificate and key could not be patched: {cause}")]
    Pair { route: ObjectRef, cause: ApiError },
    /// The condition could not be written.
    #[error("Route {route}: its status could not be patched: {cause}")]
    Status { route: ObjectRef, cause: ApiError },
    /// The Route could not be read again.
    #[error("Route {route}: could not be read: {cause}")]
    Read { route: ObjectRef, cause: ApiError },
    /// The Secret could not be read.
    #[error("Secret {secret} of Route {route}: could not be read: {cause}")]
    Secret { route: ObjectRef, secret: ObjectRef, cause: ApiError },
}

impl ApplyError {
    /// The call that failed.
    pub fn cause(&self) -> Option<&ApiError> {
        match self {
            Self::PairMissing { .. } => None,
            Self::Pair { cause, .. }
            | Self::Status { cause, .. }
            | Self::Read { cause, .. }
            | Self::Secret { cause, .. } => Some(cause),
        }
    }

    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        self.cause().map_or("pair-missing", ApiError::category)
    }

    /// Whether the Route that was to be written is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Pair { .. } | Self::Status { .. })
            && self.cause() == Some(&ApiError::NotFound)
    }

    /// Whether the write met an object that it was not decided from.
    pub fn is_conflict(&self) -> bool {
        self.cause() == Some(&ApiError::Conflict)
    }
}
