//! Lists objects, then watches them, for ever.
//!
//! - Pages of a list are bounded in bytes (`pages.rs`).
//! - A watch that ends in good order is opened again from the version that it reached. HTTP 410, as
//!   the answer or as an event, leads to a list.
//! - Each watch has its own back-off, so one that is forbidden slows no other.
//! - An object that can't be decoded is reported and skipped. After an event that can't be read at
//!   all, and may be of any object, everything is listed.
//! - A silent connection is given up a little after the watch's own time-out.
//! - Deletes during a relist produce no event, so `Watch::run` collects the names that a list
//!   contained and passes them on at its end. A caller that knows its many objects anyway uses
//!   `Watch::run_lean`, and keeps an `Unlisted` instead.

use std::{collections::HashSet, fmt::Debug, hash::Hash, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    k8s::{
        api_error::ApiError,
        backoff::Backoff,
        decode::MaybeDecoded,
        object_ref::ObjectRef,
        pages::{Pages, Progress},
    },
    runtime::failpoints::{self, Bug},
};

/// A change that a watch reports. `All` are the names of all objects at the end of a list.
#[derive(Debug)]
pub enum Change<K, All = HashSet<ObjectRef>> {
    Applied(K),
    Deleted(ObjectRef),
    /// The object is there, but it can't be decoded. The reason is not passed on: it may quote
    /// what it could not decode.
    Undecodable(ObjectRef),
    /// A list begins: there was a gap, or nothing is known yet.
    Listing,
    /// A list is complete: these are all objects.
    Listed(All),
    /// The watch can't be opened, or broke, this many times in a row.
    Failing(ApiError, u32),
}

/// The objects that were known when a list began and that it has not contained yet. Those that are
/// left at its end were deleted.
#[derive(Debug)]
pub struct Unlisted<T>(HashSet<T>);

impl<T> Default for Unlisted<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: Eq + Hash + Ord> Unlisted<T> {
    /// A list begins while these are known.
    pub fn expect(&mut self, known: impl IntoIterator<Item = T>) {
        self.0 = known.into_iter().collect();
    }

    pub fn seen(&mut self, one: &T) {
        self.0.remove(one);
    }

    /// The list is complete: the objects that it did not contain, in order.
    pub fn finish(&mut self) -> Vec<T> {
        let rest = std::mem::take(&mut self.0).into_iter();
        let mut rest: Vec<T> =
            rest.filter(|_| !failpoints::has(Bug::RelistForgetsNothing)).collect();
        rest.sort_unstable();
        rest
    }
}

#[derive(Clone, Debug)]
pub struct Watch<K> {
    pub api: Api<MaybeDecoded<K>>,
    pub fields: Option<&'static str>,
    /// The watch is opened again after this long, and given up when silent for a little longer.
    pub timeout: Duration,
    /// A permit for each page: lists that share it hold so many pages in memory at once.
    pub lists: Arc<Semaphore>,
}

/// A watch that did not fail for so long is well.
const HEALTHY: Duration = Duration::from_secs(60);

/// A server that lives ends a watch at its time-out; one that is silent for longer is given up.
const MARGIN: Duration = Duration::from_secs(5);

/// Why a list or a watch ended.
enum Failure {
    /// The server works, but our place in its history is lost: everything is listed.
    Lost(ApiError),
    /// The same is tried again.
    Failed(ApiError),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match ApiError::from(error) {
            ApiError::Gone => Self::Lost(ApiError::Gone),
            error => Self::Failed(error),
        }
    }
}

/// Failures in a row.
struct Failures {
    all: u32,
    lost: u32,
    last: Instant,
}

impl Failures {
    /// Counts one more; answers which it is of all, and of its kind.
    fn count(&mut self, is_lost: bool) -> (u32, u32) {
        // A list is no sign of success if the watch after it fails every time, and a healthy watch
        // may be silent: only time without failures counts.
        if self.last.elapsed() > HEALTHY {
            (self.all, self.lost) = (0, 0);
        }
        self.last = Instant::now();
        self.all += 1;
        self.lost += u32::from(is_lost);
        (self.all, if is_lost { self.lost } else { self.all })
    }
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    pub async fn run(self, handle: impl FnMut(Change<K>)) {
        self.run_with_pulse(handle, || {}).await;
    }

    /// As `run`. `pulse` is called when everything until now was reported: at the end of a list, and where
    /// the server ends a watch at its time-out. A healthy watch has one within `timeout`, also where nothing
    /// changes. Neither an opened watch nor an event shows as much: a server may accept a watch and bring
    /// nothing, and behind one event that was missed there may be others.
    pub async fn run_with_pulse(self, mut handle: impl FnMut(Change<K>), pulse: impl FnMut()) {
        let mut listed = HashSet::new();
        let mut is_listing = false;
        let handle = |change: Change<K, ()>| {
            match &change {
                Change::Listing => {
                    listed.clear();
                    is_listing = true;
                }
                Change::Applied(object) if is_listing => {
                    listed.insert(ObjectRef::of(object.meta()));
                }
                Change::Undecodable(at) if is_listing => {
                    listed.insert(at.clone());
                }
                Change::Listed(()) => is_listing = false,
                _ => {}
            }
            handle(change.with(|| std::mem::take(&mut listed)));
        };
        self.list_and_watch(handle, pulse).await;
    }

    /// As `run`, but without the names at the end of a list.
    pub async fn run_lean(self, handle: impl FnMut(Change<K, ()>)) {
        self.list_and_watch(handle, || {}).await;
    }

    async fn list_and_watch(self, mut handle: impl FnMut(Change<K, ()>), mut pulse: impl FnMut()) {
        let mut pages = Pages::new(&self.api, self.fields);
        let mut failures = Failures { all: 0, lost: 0, last: Instant::now() };
        // Where the next watch begins; none where everything is to be listed first.
        let mut version = None;
        loop {
            let ended = match &mut version {
                None => self.list(&mut pages, &mut handle).await.map(|listed| {
                    pulse();
                    version = Some(listed);
                }),
                Some(version) => self.watch(version, &mut handle, &mut pulse).await,
            };
            let (error, is_lost) = match ended {
                Ok(()) => continue,
                Err(Failure::Failed(error)) => (error, false),
                Err(Failure::Lost(error)) => (error, true),
            };
            if is_lost {
                version = None;
            }
            let (all, of_its_kind) = failures.count(is_lost);
            handle(Change::Failing(error, all));
            tokio::time::sleep(Backoff::WATCH.after(of_its_kind)).await;
        }
    }

    /// Lists everything; answers the version of it.
    async fn list(
        &self,
        pages: &mut Pages<K>,
        handle: &mut impl FnMut(Change<K, ()>),
    ) -> Result<String, Failure> {
        handle(Change::Listing);
        loop {
            // The semaphore is never closed.
            let _permit = self.lists.acquire().await;
            if let Progress::Complete(version) =
                pages.next(|object| handle(applied(object))).await?
            {
                let version = version.ok_or(Failure::Failed(ApiError::Undecodable))?;
                handle(Change::Listed(()));
                return Ok(version);
            }
        }
    }

    /// Watches from this version on, and moves it along, until the watch ends in good order.
    async fn watch(
        &self,
        version: &mut String,
        handle: &mut impl FnMut(Change<K, ()>),
        pulse: &mut impl FnMut(),
    ) -> Result<(), Failure> {
        let seconds = u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX).max(1);
        let params = WatchParams {
            field_selector: self.fields.map(str::to_owned),
            timeout: Some(seconds),
            ..WatchParams::default()
        };
        let patience = Duration::from_secs(seconds.into()) + MARGIN;
        let opened = self.api.watch(&params, version).await;
        let mut events = pin!(opened.map_err(|error| match Failure::from(error) {
            Failure::Lost(error) if failpoints::has(Bug::GoneIgnored) => Failure::Failed(error),
            failure => failure,
        })?);
        // Silent for too long: the connection is dead, or the server does not bring what it should.
        while let Ok(next) = tokio::time::timeout(patience, events.next()).await {
            let Some(event) = next else {
                pulse();
                break;
            };
            let (at, change) = read(event)?;
            if at.is_empty() {
                return Err(Failure::Lost(ApiError::Undecodable));
            }
            *version = at;
            change.into_iter().for_each(&mut *handle);
        }
        Ok(())
    }
}

/// The version of an event, and the change that it means.
fn read<K: Resource<DynamicType = ()>>(
    event: kube::Result<WatchEvent<MaybeDecoded<K>>>,
) -> Result<(String, Option<Change<K, ()>>), Failure> {
    match event {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            Ok((version_of(object.meta()), Some(applied(object))))
        }
        Ok(WatchEvent::Deleted(object)) => {
            let meta = object.meta();
            Ok((version_of(meta), Some(Change::Deleted(ObjectRef::of(meta)))))
        }
        Ok(WatchEvent::Bookmark(bookmark)) => Ok((bookmark.metadata.resource_version, None)),
        Ok(WatchEvent::Error(status)) => Err(kube::Error::Api(status).into()),
        // It may be of any object.
        Err(kube::Error::SerdeError(_)) => Err(Failure::Lost(ApiError::Undecodable)),
        Err(error) => Err(error.into()),
    }
}

fn version_of(meta: &ObjectMeta) -> String {
    meta.resource_version.clone().unwrap_or_default()
}

impl<K> Change<K, ()> {
    /// The same, with the names at the end of a list.
    fn with<All>(self, all: impl FnOnce() -> All) -> Change<K, All> {
        match self {
            Self::Applied(object) => Change::Applied(object),
            Self::Deleted(at) => Change::Deleted(at),
            Self::Undecodable(at) => Change::Undecodable(at),
            Self::Listing => Change::Listing,
            Self::Listed(()) => Change::Listed(all()),
            Self::Failing(error, failures) => Change::Failing(error, failures),
        }
    }
}

fn applied<K: Resource<DynamicType = ()>>(object: MaybeDecoded<K>) -> Change<K, ()> {
    match object {
        MaybeDecoded::Decoded(object) => Change::Applied(object),
        MaybeDecoded::Undecodable(meta) => Change::Undecodable(ObjectRef::of(&meta)),
    }
}

#[cfg(test)]
mod tests;
