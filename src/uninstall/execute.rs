//! Writes the Routes, several at once, each from a fresh read.

use futures::{StreamExt, stream};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::plan::{Pairs, step};
use crate::{
    api::route::Route,
    inject::{
        act::{apply::Writer, capability::StatusField},
        decide::{apply_error::ApplyError, facts::RouteFacts},
    },
    k8s::{
        api_error::{self, ApiError},
        backoff::Backoff,
        object_ref::ObjectRef,
    },
};

const AT_ONCE: usize = 8;
/// Tries of one Route: others may write it too.
const ATTEMPTS: u32 = 6;

#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub pairs: Pairs,
    /// Whether `.status.certificate` is there to be taken out.
    pub status: StatusField,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    Done,
    /// It was deleted in the meantime.
    Gone,
    Failed(ApplyError),
    /// Asked to stop before it was tried.
    NotTried,
}

/// When asked to stop, or when the API server can't be used any longer, it finishes the Routes under
/// way and begins no other.
pub async fn execute(
    client: &Client,
    routes: Vec<ObjectRef>,
    order: Order,
    stop: &CancellationToken,
    mut progress: impl FnMut(usize),
) -> Vec<(ObjectRef, Removal)> {
    let remove = async |at: ObjectRef| {
        if stop.is_cancelled() {
            return (at, Removal::NotTried);
        }
        let outcome = with_retries(client, &at, order, stop).await;
        if let Removal::Failed(error) = &outcome
            && is_hopeless(error)
        {
            stop.cancel();
        }
        (at, outcome)
    };
    let mut outcomes = Vec::with_capacity(routes.len());
    let mut removals = stream::iter(routes).map(remove).buffered(AT_ONCE);
    while let Some(outcome) = removals.next().await {
        outcomes.push(outcome);
        progress(outcomes.len());
    }
    outcomes
}

async fn with_retries(
    client: &Client,
    at: &ObjectRef,
    order: Order,
    stop: &CancellationToken,
) -> Removal {
    let mut attempts = 1;
    loop {
        match attempt(client, at, order).await {
            Ok(outcome) => return outcome,
            Err(error) if attempts >= ATTEMPTS || !is_passing(&error) => {
                return Removal::Failed(error);
            }
            Err(error) => {
                tokio::select! {
                    () = tokio::time::sleep(Backoff::OBJECT.after(attempts)) => attempts += 1,
                    () = stop.cancelled() => return Removal::Failed(error),
                }
            }
        }
    }
}

/// Reads the Route, decides, writes. After a conflict the next read is decided on.
async fn attempt(client: &Client, at: &ObjectRef, order: Order) -> Result<Removal, ApplyError> {
    let api: Api<Route> = Api::namespaced(client.clone(), &at.namespace);
    let read = api_error::with_timeout(api.get_opt(&at.name)).await;
    let read = read.map_err(|cause| ApplyError::Read { route: at.clone(), cause })?;
    let Some(route) = read.as_ref().map(RouteFacts::read) else { return Ok(Removal::Gone) };
    let step = step(&route, order.pairs, order.status);
    let writer = Writer::new(client.clone());
    let done = async {
        let route = match step.release {
            Some(write) => writer.release(&route, write).await?,
            None => route,
        };
        if step.drop_status {
            writer.drop_status(&route).await?;
        }
        Ok(Removal::Done)
    };
    match done.await {
        Err(error) if ApplyError::is_not_found(&error) => Ok(Removal::Gone),
        done => done,
    }
}

/// Whether the next try may end better.
fn is_passing(error: &ApplyError) -> bool {
    !matches!(
        error.cause(),
        Some(ApiError::Forbidden | ApiError::Unauthorized | ApiError::Invalid { .. })
    )
}

/// Whether the next Route would end as this one did.
fn is_hopeless(error: &ApplyError) -> bool {
    matches!(
        error.cause(),
        Some(ApiError::Unauthorized | ApiError::Unreachable { .. } | ApiError::Timeout(_))
    )
}
