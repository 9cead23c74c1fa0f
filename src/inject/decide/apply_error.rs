//! Errors when a Route is read or written. Pure.

use crate::k8s::{api_error::ApiError, object_ref::ObjectRef};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("Route {route}: the pair to inject is not at hand")]
    PairMissing { route: ObjectRef },
    #[error("Route {route}: certificate and key could not be patched: {cause}")]
    Pair { route: ObjectRef, cause: ApiError },
    #[error("Route {route}: its status could not be patched: {cause}")]
    Status { route: ObjectRef, cause: ApiError },
    #[error("Route {route}: could not be read: {cause}")]
    Read { route: ObjectRef, cause: ApiError },
    #[error("Secret {secret} of Route {route}: could not be read: {cause}")]
    Secret { route: ObjectRef, secret: ObjectRef, cause: ApiError },
}

impl ApplyError {
    pub fn cause(&self) -> Option<&ApiError> {
        match self {
            Self::PairMissing { .. } => None,
            Self::Pair { cause, .. }
            | Self::Status { cause, .. }
            | Self::Read { cause, .. }
            | Self::Secret { cause, .. } => Some(cause),
        }
    }

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
