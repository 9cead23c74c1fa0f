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

/// Routes that are worked on at once.
const AT_ONCE: usize = 8;
/// How often one Route is tried: somebody else may write it too.
const ATTEMPTS: u32 = 6;

/// What is to be done to every Route.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// What becomes of pairs that are ours.
    pub pairs: Pairs,
    /// Whether `.status.certificate` is there to be taken out.
    pub status: StatusField,
}

/// How one Route ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Everything is removed.
    Done,
    /// It was deleted in the meantime.
    Gone,
    /// It is as it was.
    Failed(ApplyError),
    /// Asked to stop before it was tried.
    NotTried,
}

/// Does it to these Routes. Once asked to stop it finishes what is under way and begins nothing
/// more; so it does when the API server can't be used any longer.
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
        let outcome = patiently(client, &at, order, stop).await;
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

async fn patiently(
    client: &Client,
    at: &ObjectRef,
    order: Order,
    stop: &CancellationToken,
) -> Removal {
    let mut attempt = 1;
    loop {
        match once(client, at, order).await {
            Ok(outcome) => return outcome,
            Err(error) if attempt >= ATTEMPTS || !is_passing(&error) => {
                return Removal::Failed(error);
            }
            Err(error) => {
                tokio::select! {
                    () = tokio::time::sleep(Backoff::OBJECT.after(attempt)) => attempt += 1,
                    () = stop.cancelled() => return Removal::Failed(error),
                }
            }
        }
    }
}

/// Reads the Route, decides, writes. After a conflict the next read is decided on.
async fn once(client: &Client, at: &ObjectRef, order: Order) -> Result<Removal, ApplyError> {
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
