//! The only writer of job inject.
//!
//! Every write is a merge patch that carries the uid and the resourceVersion of what it was
//! decided from, so a stale decision fails instead of winning, and a field that we do not know
//! survives. Certificate, key and note go in one patch: no crash can part them.

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    api::route::{CertificateCondition, Route},
    inject::{
        facts::{ObjectRef, RouteFacts},
        note::Note,
        plan::Write,
    },
    kit::call::{self, CallError},
    names::{FIELD_MANAGER, INJECTED_ANNOTATION},
    tls::Pair,
};

/// What went wrong with a Route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The pair in hand is not the one that the plan speaks of.
    #[error("Route {route}: the pair to inject is not at hand")]
    PairMissing {
        /// The Route.
        route: ObjectRef,
    },
    /// The pair could not be written.
    #[error("Route {route}: certificate and key could not be patched: {cause}")]
    Pair {
        /// The Route.
        route: ObjectRef,
        /// Why.
        cause: CallError,
    },
    /// The condition could not be written.
    #[error("Route {route}: its status could not be patched: {cause}")]
    Status {
        /// The Route.
        route: ObjectRef,
        /// Why.
        cause: CallError,
    },
    /// The Route could not be read again.
    #[error("Route {route}: could not be read: {cause}")]
    Read {
        /// The Route.
        route: ObjectRef,
        /// Why.
        cause: CallError,
    },
    /// The Secret could not be read.
    #[error("Secret {secret} of Route {route}: could not be read: {cause}")]
    Secret {
        /// The Route.
        route: ObjectRef,
        /// The Secret.
        secret: ObjectRef,
        /// Why.
        cause: CallError,
    },
}

impl ApplyError {
    /// The call that failed.
    pub fn cause(&self) -> Option<&CallError> {
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
        self.cause().map_or("pair-missing", CallError::category)
    }

    /// Whether the Route that was to be written is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Pair { .. } | Self::Status { .. })
            && self.cause() == Some(&CallError::NotFound)
    }

    /// Whether the write met an object that it was not decided from.
    pub fn is_conflict(&self) -> bool {
        self.cause() == Some(&CallError::Conflict)
    }
}

/// Patches Routes.
#[derive(Clone)]
pub struct Writer {
    client: Client,
}

impl Writer {
    /// A writer through this client; its gate decides whether anything is sent.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Writes certificate, key and note as decided. Answers what the Route is now.
    pub async fn write(
        &self,
        route: &RouteFacts,
        write: Write,
        pair: Option<&Pair>,
    ) -> Result<RouteFacts, ApplyError> {
        let change = change(route, write, pair)
            .ok_or_else(|| ApplyError::PairMissing { route: route.at.clone() })?;
        let patch = Patch::Merge(with_preconditions(change, route));
        let written = call::bounded(self.api(route).patch(&route.at.name, &params(), &patch))
            .await
            .map_err(|cause| ApplyError::Pair { route: route.at.clone(), cause })?;
        Ok(RouteFacts::read(&written))
    }

    /// Writes `.status.certificate`. Answers what the Route is now.
    pub async fn write_status(
        &self,
        route: &RouteFacts,
        conditions: &[CertificateCondition],
    ) -> Result<RouteFacts, ApplyError> {
        let change = json!({ "status": { "certificate": conditions } });
        let patch = Patch::Merge(with_preconditions(change, route));
        let written =
            call::bounded(self.api(route).patch_status(&route.at.name, &params(), &patch))
                .await
                .map_err(|cause| ApplyError::Status { route: route.at.clone(), cause })?;
        Ok(RouteFacts::read(&written))
    }

    fn api(&self, route: &RouteFacts) -> Api<Route> {
        Api::namespaced(self.client.clone(), &route.at.namespace)
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The fields that a write changes; none where it needs a pair that is not the planned one.
fn change(route: &RouteFacts, write: Write, pair: Option<&Pair>) -> Option<Value> {
    let planned = |fingerprint| pair.filter(|pair| pair.facts().fingerprint == fingerprint);
    Some(match write {
        Write::Inject(fingerprint) => {
            let pair = planned(fingerprint)?;
            let (certificate, key) = (pair.certificate(), pair.key().expose());
            noting(json!(note(route, pair)), json!({ "certificate": certificate, "key": key }))
        }
        Write::NoteAlone(fingerprint) => noting_only(json!(note(route, planned(fingerprint)?))),
        Write::Clear => noting(Value::Null, json!({ "certificate": null, "key": null })),
        Write::ClearKey => noting(Value::Null, json!({ "key": null })),
        Write::DropNote => noting_only(Value::Null),
    })
}

fn note(route: &RouteFacts, pair: &Pair) -> String {
    Note::of(&route.uid, pair.certificate(), pair.key().expose()).to_string()
}

fn noting(note: Value, tls: Value) -> Value {
    let mut change = noting_only(note);
    change["spec"] = json!({ "tls": tls });
    change
}

fn noting_only(note: Value) -> Value {
    json!({ "metadata": { "annotations": { INJECTED_ANNOTATION: note } } })
}

fn with_preconditions(mut change: Value, route: &RouteFacts) -> Value {
    change["metadata"]["uid"] = json!(route.uid);
    change["metadata"]["resourceVersion"] = json!(route.version);
    change
}
