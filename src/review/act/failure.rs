//! Why a renewal failed, and what to do about it.

use std::sync::Arc;

use super::token_request::AskError;
use crate::{
    k8s::api_error::ApiError,
    names::REVIEW_SECRET,
    review::decide::{credential::Account, status_report::Problem},
};

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RenewError {
    #[error(
        "serviceaccounts/token create for {0} is not allowed there. Grant it with: trustplane review register {1}"
    )]
    Forbidden(Account, Arc<str>),
    #[error(
        "the cluster does not accept our token of account {0}. Make a new one with: trustplane review register {1}"
    )]
    Unauthorized(Account, Arc<str>),
    #[error("there is no account {0}. Make it with: trustplane review register {1}")]
    NoAccount(Account, Arc<str>),
    #[error("asking for a new token failed: {0}")]
    Ask(AskError),
    #[error("trying the new token failed: {0}")]
    Try(ApiError),
    #[error("the cluster does not accept the token that it granted")]
    NotServed,
    #[error("the new token could not be written to Secret {REVIEW_SECRET}: {0}")]
    Save(ApiError),
}

impl RenewError {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden(..) => "RenewalForbidden",
            Self::Unauthorized(..) => "CredentialRefused",
            Self::NoAccount(..) => "AccountMissing",
            Self::NotServed => "NewTokenRefused",
            Self::Save(_) => "CredentialNotSaved",
            Self::Ask(_) | Self::Try(_) => "RenewalFailed",
        }
    }

    /// A bounded label for metrics.
    pub(super) fn category(&self) -> &'static str {
        match self {
            Self::Forbidden(..) => "forbidden",
            Self::Unauthorized(..) => "unauthorized",
            Self::NoAccount(..) => "not-found",
            Self::NotServed => "not-served",
            Self::Save(_) => "not-saved",
            Self::Ask(AskError::Foreign) => "foreign",
            Self::Ask(AskError::Call(error)) | Self::Try(error) => error.category(),
        }
    }
}

impl RenewError {
    pub(super) fn of_asking(error: AskError, account: &Account, cluster: &Arc<str>) -> Self {
        let (account, cluster) = (account.clone(), cluster.clone());
        match error {
            AskError::Call(ApiError::Forbidden) => Self::Forbidden(account, cluster),
            AskError::Call(ApiError::Unauthorized) => Self::Unauthorized(account, cluster),
            AskError::Call(ApiError::NotFound) => Self::NoAccount(account, cluster),
            error => Self::Ask(error),
        }
    }

    pub(super) fn problem(&self) -> Problem {
        Problem { reason: self.reason(), text: self.to_string() }
    }
}

pub(super) const REVIEWS_FORBIDDEN: &str = "ReviewsForbidden";

/// The token is good, and of no use.
pub(super) fn reviews_forbidden(cluster: &str, account: &Account) -> Problem {
    let text = format!(
        "tokenreviews create for {account} is not allowed there. Grant it with: trustplane review register {cluster}"
    );
    Problem { reason: REVIEWS_FORBIDDEN, text }
}
