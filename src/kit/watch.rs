//! One watch that never gives up and never lies: kube's watcher with its known traps dealt with.
//!
//! - An HTTP 410 at the start of a watch makes kube's watcher ask for the same lost version for
//!   ever; here the watcher is built anew and lists.
//! - Each watch has its own back-off, so one that is forbidden slows no other.
//! - An object that can't be decoded is reported and skipped. After an event that can't be read at
//!   all, and may be of any object, everything is listed; kube's watcher would go on without it.
//! - A silent connection is given up a little after the watch's own time-out.
//! - Deletes that fall into a relist produce no event: `Follow::run` remembers which names a list
//!   brought and says at its end which ones are there. Who has many objects, and knows them anyway,
//!   asks for `Follow::run_lean` and keeps an `Unseen` instead.

use std::{collections::HashSet, fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::kit::{
    backoff::Backoff,
    call::CallError,
    decode::Guarded,
    seeded::{self, Bug},
};

/// What a watch has to say; at the end of a list, with all the places that it brought or without.
#[derive(Debug)]
pub enum Change<K, All = HashSet<Place>> {
    /// The object is there, in this version.
    Applied(K),
    /// The object is gone.
    Deleted(Place),
    /// The object is there, but it can't be decoded. The reason is not passed on: it may quote
    /// what it could not decode.
    Undecodable(Place),
    /// A list begins: there was a gap, or nothing is known yet.
    Listing,
    /// A list is through: these are all there are.
    Listed(All),
    /// The watch can't be opened, or broke, this many times in a row.
    Failing(CallError, u32),
}

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Place {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }
}

/// What was known when a list began and has not come yet; whatever is left at its end is gone. At a
/// start that is nothing, and later it shares the texts of what is known.
#[derive(Debug)]
pub struct Unseen<T>(HashSet<T>);

impl<T> Default for Unseen<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: Eq + Hash + Ord> Unseen<T> {
    /// A list begins, and this is known.
    pub fn expect(&mut self, known: impl IntoIterator<Item = T>) {
        self.0 = known.into_iter().collect();
    }

    /// The list brought it.
    pub fn came(&mut self, one: &T) {
        self.0.remove(one);
    }

    /// The list is through: what it did not bring, in order.
    pub fn rest(&mut self) -> Vec<T> {
        let rest = std::mem::take(&mut self.0).into_iter();
        let mut rest: Vec<T> = rest.filter(|_| !seeded::has(Bug::RelistForgetsNothing)).collect();
        rest.sort_unstable();
        rest
    }
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Follow<K> {
    /// Where.
    pub api: Api<Guarded<K>>,
    /// Which of them; the API server chooses.
    pub fields: Option<&'static str>,
    /// The watch is opened anew after this long, and given up when silent for a little longer.
    pub timeout: Duration,
}

/// Objects in one answer to a list. A page is held as text and as objects at once, and its keys are
/// in both: small pages bound the memory, and the API server's as well.
const PAGE: u32 = 100;
/// A watch that did not fail for so long is well.
const HEALTHY: Duration = Duration::from_secs(60);

type Events<K> = BoxStream<'static, watcher::Result<Event<Guarded<K>>>>;

impl<K> Follow<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Follows the objects for ever.
    pub async fn run(self, mut tell: impl FnMut(Change<K>)) {
        let mut listed = HashSet::new();
        let mut is_listing = false;
        self.run_lean(|change| {
            match &change {
                Change::Listing => {
                    listed.clear();
                    is_listing = true;
                }
                Change::Applied(object) if is_listing => {
                    listed.insert(Place::of(object.meta()));
                }
                Change::Undecodable(place) if is_listing => {
                    listed.insert(place.clone());
                }
                Change::Listed(()) => is_listing = false,
                _ => {}
            }
            tell(change.with(|| std::mem::take(&mut listed)));
        })
        .await;
    }

    /// As `run`, but keeps no places: at the end of a list it is told that it is through, no more.
    pub async fn run_lean(self, mut tell: impl FnMut(Change<K, ()>)) {
        let mut events = self.open();
        let (mut failures, mut losses) = (0, 0);
        let mut last_failure = Instant::now();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => tell(told(event)),
                Err(error) => {
                    // A list is no sign of success where the watch after it fails every time, and
                    // a healthy watch may have nothing to say: only time tells.
                    if last_failure.elapsed() > HEALTHY {
                        (failures, losses) = (0, 0);
                    }
                    failures += 1;
                    last_failure = Instant::now();
                    let must_list = is_unreadable(&error)
                        || is_gone_at_start(&error) && !seeded::has(Bug::GoneIgnored);
                    // It comes from a server that is well again, and whose state we lack.
                    let is_lost = must_list || is_gone(&error);
                    losses += u32::from(is_lost);
                    tell(Change::Failing(describe(error), failures));
                    let in_a_row = if is_lost { losses } else { failures };
                    tokio::time::sleep(Backoff::WATCH.after(in_a_row)).await;
                    if must_list {
                        events = self.open();
                    }
                }
            }
        }
    }

    fn open(&self) -> Events<K> {
        let seconds = u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX).max(1);
        let mut config = watcher::Config::default().timeout(seconds).page_size(PAGE);
        config.field_selector = self.fields.map(str::to_owned);
        watcher(self.api.clone(), config).boxed()
    }
}

impl<K> Change<K, ()> {
    /// The same, with the places at the end of a list.
    fn with<All>(self, all: impl FnOnce() -> All) -> Change<K, All> {
        match self {
            Self::Applied(object) => Change::Applied(object),
            Self::Deleted(place) => Change::Deleted(place),
            Self::Undecodable(place) => Change::Undecodable(place),
            Self::Listing => Change::Listing,
            Self::Listed(()) => Change::Listed(all()),
            Self::Failing(error, failures) => Change::Failing(error, failures),
        }
    }
}

fn told<K: Resource<DynamicType = ()>>(event: Event<Guarded<K>>) -> Change<K, ()> {
    match event {
        Event::Init => Change::Listing,
        Event::Apply(object) | Event::InitApply(object) => applied(object),
        Event::Delete(object) => Change::Deleted(Place::of(object.meta())),
        Event::InitDone => Change::Listed(()),
    }
}

fn applied<K: Resource<DynamicType = ()>>(object: Guarded<K>) -> Change<K, ()> {
    match object {
        Guarded::Decoded(object) => Change::Applied(object),
        Guarded::Undecodable(meta) => Change::Undecodable(Place::of(&meta)),
    }
}

fn is_gone_at_start(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

fn is_unreadable(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchFailed(kube::Error::SerdeError(_)))
}

fn is_gone(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

fn describe(error: watcher::Error) -> CallError {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => cause.into(),
        watcher::Error::WatchError(status) => CallError::from(status.as_ref()),
        watcher::Error::NoResourceVersion => CallError::Undecodable,
    }
}

#[cfg(test)]
mod tests;
