//! The watch of SPIFFEFederations.

use std::sync::Arc;

use kube::Api;
use tokio::{sync::Semaphore, time::Instant};

use super::Authority;
use crate::{
    api::spiffe_federation::SpiffeFederation,
    authority::{
        decide::{
            summary::{self, Summary},
            sync::TRUSTED,
        },
        join::view::Watched,
    },
    k8s::{
        api_error::ApiError,
        decode::MaybeDecoded,
        watch::{Change, Watch},
    },
    runtime::lock::lock,
};

impl Authority {
    pub(super) async fn watch_federations(self: Arc<Self>) {
        let api = Api::<MaybeDecoded<SpiffeFederation>>::all(self.client.clone());
        let (timeout, lists) = (self.watch_timeout(), Arc::new(Semaphore::new(1)));
        let watch = Watch { api, fields: None, timeout, lists };
        let handle = |change: Change<SpiffeFederation>| {
            match change {
                Change::Applied(federation) => self.remember(&federation),
                Change::Deleted(at) => {
                    lock(&self.unreadable).remove(&*at.name);
                    self.forget(&at.name);
                }
                Change::Undecodable(at) => {
                    lock(&self.unreadable).insert(at.name.to_string());
                    self.forget(&at.name);
                }
                Change::Listing => {}
                Change::Listed(all) => {
                    let is_there = |name: &str| all.iter().any(|it| &*it.name == name);
                    lock(&self.unreadable).retain(|name| is_there(name));
                    let gone: Vec<_> = {
                        let known = lock(&self.federations);
                        known.keys().filter(|name| !is_there(name)).cloned().collect()
                    };
                    gone.iter().for_each(|name| self.forget(name));
                    *lock(&self.is_listed) = true;
                    self.enqueue_audited();
                }
                Change::Failing(error, times) => self.watch_failed(&error, times),
            }
            self.federations_changed.notify_one();
        };
        let pulse = || {
            // First: whoever is judged from now on is judged by what was heard.
            self.refresh_trusted();
            self.view.heard_of(Watched::Federations, Instant::now());
        };
        watch.run_with_pulse(handle, pulse).await;
    }

    /// The join service judges by bundles and sends them, so a replica that has one keeps those that count.
    fn summary(&self, federation: &SpiffeFederation) -> Summary {
        let mut summary = Summary::of(federation);
        let is_trusted = summary.outline.condition(TRUSTED).is_some_and(|it| it.status == "True");
        if self.options.join.is_some() && is_trusted {
            let known = lock(&self.federations);
            if summary::has_room(known.values().map(|it| &**it), federation) {
                let bundle = &federation.status.current_bundle;
                summary.outline.status.current_bundle.clone_from(bundle);
            } else {
                tracing::warn!(
                    federation = federation.name(),
                    "all bundles together are too large: nobody joins by this one, and agents do not get it"
                );
            }
        }
        summary
    }

    fn remember(&self, federation: &SpiffeFederation) {
        let summary = Arc::new(self.summary(federation));
        let name = federation.name().to_owned();
        lock(&self.unreadable).remove(&name);
        let trust_domain = federation.trust_domain().to_owned();
        {
            let mut known = lock(&self.federations);
            // What we wrote ourselves may be newer than what the watch brings.
            if known.get(&name).is_some_and(|it| {
                it.version() > summary.version() && it.outline.uid() == federation.uid()
            }) {
                return;
            }
            known.insert(name.clone(), summary);
        }
        self.enqueue(&name);
        self.enqueue_rivals(&name, &trust_domain);
    }

    /// What a write of ours answered.
    pub(super) fn written(&self, federation: &SpiffeFederation) {
        let summary = self.summary(federation);
        let mut known = lock(&self.federations);
        // It may have been deleted meanwhile.
        if let Some(before) = known.get_mut(federation.name())
            && before.outline.uid() == federation.uid()
            && before.version() < summary.version()
        {
            *before = Arc::new(summary);
            drop(known);
            self.federations_changed.notify_one();
        }
    }

    /// Trust ends at once: nobody finds its bundle here any more.
    fn forget(&self, name: &str) {
        let gone = lock(&self.federations).remove(name);
        self.enqueue(name);
        if let Some(gone) = gone {
            self.enqueue_rivals(name, gone.outline.trust_domain());
        }
    }

    /// Of several for one trust domain, another may count now.
    fn enqueue_rivals(&self, name: &str, trust_domain: &str) {
        let rivals: Vec<_> = {
            let known = lock(&self.federations);
            let is_rival = |it: &&SpiffeFederation| {
                it.name() != name && it.trust_domain().eq_ignore_ascii_case(trust_domain)
            };
            known
                .values()
                .map(|it| &it.outline)
                .filter(is_rival)
                .map(|it| it.name().to_owned())
                .collect()
        };
        rivals.iter().for_each(|rival| self.enqueue(rival));
    }

    /// Those that were deleted while nobody watched are audited now.
    pub(super) fn enqueue_audited(&self) {
        let audited = lock(&self.audited);
        let names: Vec<_> = audited.iter().flat_map(|it| it.keys().cloned()).collect();
        drop(audited);
        names.iter().for_each(|name| self.enqueue(name));
    }

    fn watch_failed(&self, error: &ApiError, times: u32) {
        match error {
            ApiError::NotFound if times > 1 => {}
            ApiError::NotFound => tracing::warn!(
                "the API server has no SPIFFEFederation; install its CRD: kubectl apply -k crds/spiffe"
            ),
            error => tracing::warn!(%error, times, "watch of SPIFFEFederations failed"),
        }
    }
}

#[cfg(test)]
mod tests;
