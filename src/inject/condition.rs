//! `.status.certificate`: three conditions, exactly one True where the router terminates TLS. Pure.

use std::borrow::Cow;

use chrono::{DateTime, SubsecRound, Utc};

use crate::{
    api::route::CertificateCondition,
    inject::words::{State, Verdict},
};

/// The conditions that say this verdict, unless the ones that stand there say it already.
pub fn unless_said(
    verdict: &Verdict,
    standing: &[CertificateCondition],
    now: DateTime<Utc>,
) -> Option<Vec<CertificateCondition>> {
    let wanted: Vec<_> =
        State::ALL.iter().map(|&state| condition(state, verdict, standing, now)).collect();
    (wanted != standing).then_some(wanted)
}

/// Whether the conditions say this verdict in so many words.
pub fn say(standing: &[CertificateCondition], verdict: &Verdict) -> bool {
    // The time plays no part: a condition that only lacks it is rewritten, but it was said.
    State::ALL.iter().all(|&state| {
        standing.iter().any(|stands| {
            stands.r#type == state.as_str()
                && stands.status == status(state, verdict)
                && stands.reason == verdict.reason.as_str()
                && *stands.message == *message(state, verdict)
        })
    })
}

fn condition(
    state: State,
    verdict: &Verdict,
    standing: &[CertificateCondition],
    now: DateTime<Utc>,
) -> CertificateCondition {
    let status = status(state, verdict);
    let unchanged_since = standing
        .iter()
        .find(|stands| stands.r#type == state.as_str() && stands.status == status)
        .and_then(|stands| stands.last_transition_time);
    CertificateCondition {
        r#type: Cow::Borrowed(state.as_str()),
        status: Cow::Borrowed(status),
        reason: Cow::Borrowed(verdict.reason.as_str()),
        message: message(state, verdict).into(),
        // The API keeps whole seconds; a finer time would come back changed and be written again.
        last_transition_time: Some(unchanged_since.unwrap_or_else(|| now.trunc_subsecs(0))),
    }
}

fn status(state: State, verdict: &Verdict) -> &'static str {
    if verdict.state == Some(state) { "True" } else { "False" }
}

/// The condition that is True explains; where none is, each does.
fn message(state: State, verdict: &Verdict) -> &str {
    if verdict.state.is_none_or(|holds| holds == state) { &verdict.message } else { "" }
}
