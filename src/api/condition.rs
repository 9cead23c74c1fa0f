//! Conditions in the status of our own kinds.

use std::borrow::Cow;

use chrono::{DateTime, SubsecRound, Utc};
use serde::{Deserialize, Serialize};

use crate::runtime::printable;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    pub reason: Cow<'static, str>,
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: DateTime<Utc>,
    #[serde(default)]
    pub observed_generation: i64,
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    /// Its type.
    pub about: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl ConditionValue {
    pub fn new(
        about: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        // Peers, routers and owners of other objects may choose parts of the text.
        let message = printable::lines(&message.into()).into_owned();
        Self { about, status, reason, message }
    }

    /// Adds the time, which changes only with the status.
    pub fn stamped(
        &self,
        existing: &[Condition],
        generation: i64,
        now: DateTime<Utc>,
    ) -> Condition {
        let before = existing.iter().find(|it| it.r#type == self.about);
        let since = before.filter(|it| it.status == self.status);
        Condition {
            r#type: Cow::Borrowed(self.about),
            status: Cow::Borrowed(self.status),
            reason: Cow::Borrowed(self.reason),
            message: self.message.clone(),
            // The API keeps whole seconds.
            last_transition_time: since
                .map_or_else(|| now.trunc_subsecs(0), |it| it.last_transition_time),
            observed_generation: generation,
        }
    }
}
