//! What becomes of our CAs, for those who look on: audit records, Events, readiness and metrics.

use k8s_openapi::api::core::v1::ObjectReference;

use super::{Authority, OwnError, call};
use crate::{
    authority::decide::{
        audit::{self, AuditedOwn},
        ca::{AuthorityState, Changed},
    },
    k8s::{
        api_error::ApiError,
        events::{Message, Reported},
    },
    names::{BUNDLE_CONFIG_MAP, FEDERATIONS_CONFIG_MAP},
    runtime::lock::lock,
};

impl OwnError {
    /// The reason of its Event. None for what usually passes by itself.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Lost | Self::Unreadable => Some("AuthorityLost"),
            Self::Outdated { .. } => Some("AuthorityOutdated"),
            Self::OtherTrustDomain { .. } => Some("OtherTrustDomain"),
            Self::Sign(_) | Self::State(_) | Self::Damaged(_) => Some("AuthorityDamaged"),
            Self::NotAudited => Some("NotAudited"),
            Self::Call { cause, .. } => is_refusal(cause).then_some("AuthorityBlocked"),
        }
    }

    /// Whether what is served can't be right any more.
    fn stops_serving(&self) -> bool {
        !matches!(self, Self::Call { .. } | Self::NotAudited)
    }

    /// Another replica was faster, and nothing is wrong.
    fn is_harmless(&self) -> bool {
        use ApiError::{AlreadyExists, Conflict, NotLeader};
        matches!(self, Self::Call { cause: Conflict | AlreadyExists | NotLeader, .. })
    }
}

/// Whether the next try will end the same way until somebody changes something.
fn is_refusal(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Unauthorized
            | ApiError::Forbidden
            | ApiError::Denied { .. }
            | ApiError::WebhookFailed { .. }
            | ApiError::RequestTooLarge
            | ApiError::Invalid { .. }
    )
}

impl Authority {
    pub(super) fn own_succeeded(&self) {
        self.metrics.set_failing(false);
        lock(&self.own).problem = None;
    }

    pub(super) async fn own_failed(&self, error: &OwnError) {
        let text = error.to_string();
        tracing::warn!(error = %text, "looking after our CA failed");
        self.metrics.set_failing(!error.is_harmless());
        let Some(reason) = error.reason() else { return };
        {
            let mut own = lock(&self.own);
            if error.stops_serving() || own.served.is_none() {
                own.problem = Some(text.clone());
                // A key that may be lost, or another trust domain's, signs for nobody.
                self.view.set_issuer(None);
            }
        }
        if self.gate.is_open() {
            let message = self.own_message("Warning", reason, "Rotate", text);
            if let Err(error) = self.publisher.publish_ongoing(&message, Reported::NotYet).await {
                tracing::warn!(%error, "Event not published");
            }
        }
    }

    /// Records what changed since our CAs were last audited, and notes that it did. So a record is lost in
    /// no crash, and after one it comes twice at most, with the same id.
    pub(super) async fn audit_own(&self, state: &AuthorityState) -> Result<(), OwnError> {
        let audited = AuditedOwn::of(state);
        let known = lock(&self.own).audited.clone();
        if known.as_ref() == Some(&audited) {
            return Ok(());
        }
        let noted = self.writer.load_audited_own().await;
        let noted = noted.map_err(call("read", "ConfigMap", FEDERATIONS_CONFIG_MAP))?;
        if noted.as_ref() != Some(&audited) {
            // Somebody may have emptied the ConfigMap.
            let before = noted.or(known).unwrap_or_default();
            if let Some(record) = audit::own(&before, state, self.clock.now())
                && !self.record(&record)
            {
                return Err(OwnError::NotAudited);
            }
            let written = self.writer.note_audited_own(&audited).await;
            written.map_err(call("written", "ConfigMap", FEDERATIONS_CONFIG_MAP))?;
        }
        lock(&self.own).audited = Some(audited);
        Ok(())
    }

    pub(super) async fn report_own(&self, changed: &Changed, sequence: u64) {
        let mut notes = Vec::new();
        if let Some(id) = &changed.revoked {
            notes.push((
                "Warning",
                "CARevoked",
                format!("CA {id} was revoked and is no longer published (sequence {sequence})"),
            ));
        }
        if let Some(id) = &changed.unknown {
            notes.push((
                "Warning",
                "CAUnknown",
                format!("There is no CA {id}, so nothing was revoked"),
            ));
        }
        if let Some(id) = &changed.prepared {
            notes.push((
                "Normal",
                "CAPrepared",
                format!("CA {id} is published (sequence {sequence}) and signs nothing yet"),
            ));
        }
        if let Some(id) = &changed.activated {
            notes.push((
                "Normal",
                "CAActivated",
                format!("CA {id} signs from now on (sequence {sequence})"),
            ));
        }
        let removed = changed.removed.iter().filter(|it| changed.revoked.as_ref() != Some(it));
        for id in removed {
            notes.push((
                "Normal",
                "CARemoved",
                format!("CA {id} is no longer published (sequence {sequence})"),
            ));
        }
        for (kind, reason, note) in notes {
            tracing::info!(reason, "{note}");
            let message = self.own_message(kind, reason, "Rotate", note);
            if let Err(error) = self.publisher.publish(&message).await {
                tracing::warn!(%error, "Event not published");
            }
        }
    }

    fn own_message(
        &self,
        kind: &'static str,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) -> Message {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.options.namespace.clone()),
            name: Some(BUNDLE_CONFIG_MAP.to_owned()),
            ..ObjectReference::default()
        };
        Message { regarding, kind, reason, action, note, topic: None }
    }
}
