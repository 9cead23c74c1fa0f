//! Reports on a Route: Events, and the condition while a write waits.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::{Reconciler, earlier};
use crate::{
    api::route::API_VERSION,
    inject::{
        cache::refusals::{self, Retry},
        decide::{
            apply_error::ApplyError,
            condition,
            facts::{RouteFacts, WriteAccess},
            messages::{self, Notice, Severity},
            plan::{self, Plan},
            secret_state::SecretState,
            state::Reason,
        },
    },
    k8s::{
        api_error::ApiError,
        events::{Message, Reported},
        object_ref::ObjectRef,
    },
    runtime::failpoints::{self, Bug},
};

/// An Event that could not be published is tried again after this long.
const RETRY_EVENT: Duration = Duration::from_secs(60);

impl Reconciler {
    /// Answers when the first of the warnings is to be renewed.
    pub(super) async fn warn(&self, route: &RouteFacts, plan: &Plan) -> Option<Instant> {
        let said_in_status = plan
            .verdict
            .as_ref()
            .is_some_and(|verdict| condition::is_published(&route.conditions, verdict));
        let mut renewal = None;
        for notice in &plan.warnings {
            // A condition tells of an unusable Secret, but not of a certificate that expires.
            let is_verdict = plan.verdict.as_ref().is_some_and(|v| v.message == notice.note);
            let renew_in = self.publish_ongoing(route, notice, said_in_status && is_verdict).await;
            let renew_in = renew_in.unwrap_or(RETRY_EVENT);
            renewal = earlier(renewal, Some(Instant::now() + renew_in));
        }
        renewal
    }

    /// Publishes the Event of a problem that lasts. Answers when to renew it, or nothing if it could
    /// not be published.
    async fn publish_ongoing(
        &self,
        route: &RouteFacts,
        notice: &Notice,
        is_in_status: bool,
    ) -> Option<Duration> {
        let reported = if is_in_status { Reported::InStatus } else { Reported::NotYet };
        let published = self.publisher.publish_ongoing(&message(route, notice), reported).await;
        let published = published.inspect_err(|error| self.event_failed(route, error)).ok()?;
        if published.written {
            self.metrics.wrote("event", "ok");
        }
        Some(published.renew_in)
    }

    /// Publishes the Event of an earlier write, if it is still true. If that fails it stays pending;
    /// answers when to try again.
    pub(super) async fn publish_pending(
        &self,
        route: &RouteFacts,
        secret: &SecretState,
    ) -> Option<Instant> {
        let pending = self.index().take_pending(&route.at, &route.uid)?;
        let notice = match plan::event_if_still_true(pending.write, route, secret) {
            None if failpoints::has(Bug::TellsWhatIsOver) => {
                messages::completed(pending.write, route)
            }
            notice => notice?,
        };
        if self.publish(route, &notice).await {
            return None;
        }
        self.index().keep_pending(&route.at, &route.uid, pending);
        Some(Instant::now() + RETRY_EVENT)
    }

    /// Answers whether it was published. A lost Event is not worth a second write of the pair.
    pub(super) async fn publish(&self, route: &RouteFacts, notice: &Notice) -> bool {
        let published = self.publisher.publish(&message(route, notice)).await;
        match &published {
            Ok(()) => self.metrics.wrote("event", "ok"),
            Err(error) => self.event_failed(route, error),
        }
        published.is_ok()
    }

    fn event_failed(&self, route: &RouteFacts, error: &ApiError) {
        self.metrics.wrote("event", error.category());
        tracing::warn!(route = %route.at, %error, "publishing an Event failed");
    }

    /// While the write has to wait, the condition must not claim that it was done.
    pub(super) async fn write_interim_status(
        &self,
        route: &RouteFacts,
        cause: (Reason, String),
    ) -> Result<(), ApplyError> {
        let interim = plan::interim(route, cause, self.clock.now(), &self.policy);
        self.record_state(route, &interim);
        if let Some(conditions) = interim.conditions.as_ref().filter(|_| self.keeps_status()) {
            self.write_status(route, &interim, conditions).await?;
        }
        Ok(())
    }

    /// Counts a failure. Answers what to report, if it lasts, and when to try again.
    pub fn count_failure(&self, at: &ObjectRef, error: &ApplyError) -> (Option<Failure>, Retry) {
        let route = self.index().route(at).filter(|route| route.write_access == WriteAccess::Free);
        let Some(route) = route.filter(|_| !self.dry_run) else { return (None, Retry::BackOff) };
        let now = Instant::now();
        let (lasts, retry) = self.with_backoffs(&route, |backoffs| {
            let refusals = backoffs.refusals.get_or_insert_default();
            (refusals.count(error, now), refusals.retry(error, now))
        });
        let lasts = lasts && !failpoints::has(Bug::SilentWhileWritesFail);
        let notice = messages::not_done(&route, error).filter(|_| lasts);
        let is_final = error.cause().is_some_and(refusals::is_final);
        // The pair is in its place, and the status was tried just now.
        let is_status = matches!(error, ApplyError::Status { .. });
        let failure = notice.map(|notice| {
            let cause = (notice.reason, notice.note.clone());
            let plan = plan::interim(&route, cause, self.clock.now(), &self.policy);
            // Alternating causes are one failure: the message does not change each time.
            let is_in_status = plan.verdict.as_ref().is_some_and(|verdict| {
                let has = condition::has(&route.conditions, verdict.state, verdict.reason);
                condition::is_published(&route.conditions, verdict) || has && !is_final
            });
            Failure { route, notice, plan: Some(plan).filter(|_| !is_status), is_in_status }
        });
        (failure, retry)
    }

    /// Publishes in the condition that the Route can't be changed. Answers whether that worked.
    pub async fn write_failure(&self, failure: &Failure) -> bool {
        let Some(plan) = &failure.plan else { return true };
        self.record_state(&failure.route, plan);
        let conditions = plan.conditions.as_ref().filter(|_| self.keeps_status());
        let Some(conditions) = conditions.filter(|_| !failure.is_in_status) else { return true };
        match self.write_status(&failure.route, plan, conditions).await {
            Ok(wait) => wait.is_none(),
            Err(error) => {
                tracing::debug!(route = %failure.route.at, %error, "reporting a failure in the status failed");
                false
            }
        }
    }

    /// Publishes the Event about it. Answers whether that was possible.
    pub async fn publish_failure(&self, failure: &Failure) -> bool {
        let Failure { route, notice, is_in_status, .. } = failure;
        self.publish_ongoing(route, notice, *is_in_status).await.is_some()
    }

    /// For a failure that no worker is free to publish.
    pub fn postpone_failure(&self, failure: &Failure) {
        self.publisher.postpone(&message(&failure.route, &failure.notice));
    }
}

/// A failure that lasts, and its report.
pub struct Failure {
    route: RouteFacts,
    notice: Notice,
    /// None where the condition itself is what can't be written.
    plan: Option<Plan>,
    /// Whether the condition says it already.
    is_in_status: bool,
}

fn message(route: &RouteFacts, notice: &Notice) -> Message {
    let regarding = ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some("Route".to_owned()),
        namespace: Some(route.at.namespace.to_string()),
        name: Some(route.at.name.to_string()),
        uid: Some(route.uid.to_string()),
        ..ObjectReference::default()
    };
    Message {
        regarding,
        kind: match notice.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
        reason: notice.reason.as_str(),
        action: notice.action,
        note: notice.note.clone(),
        topic: None,
    }
}
