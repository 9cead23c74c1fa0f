//! Feeds the join service: its tokens, the bundles that count, and who signs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Api;
use rustls::server::ResolvesServerCert;
use tokio::{
    sync::Semaphore,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{Authority, bind};
use crate::{
    api::{join_token::JoinToken, spiffe_federation::SpiffeFederation},
    authority::{
        decide::{eligibility, sync::TRUSTED},
        join::{
            server::{JoinOptions, JoinService, Parts},
            view::{WATCH_TIMEOUT, Watched},
        },
    },
    k8s::{
        api_error::ApiError,
        decode::MaybeDecoded,
        watch::{Change, Watch},
    },
    runtime::{lock::lock, tls_listener::TlsListener},
    spiffe::id::TrustDomain,
};

impl Authority {
    /// Watches that joins are judged by must show that they live.
    pub(super) fn watch_timeout(&self) -> Duration {
        match &self.options.join {
            Some(_) => self.options.watch_timeout.min(WATCH_TIMEOUT),
            None => self.options.watch_timeout,
        }
    }

    pub(super) async fn watch_tokens(self: Arc<Self>) {
        let api = Api::<MaybeDecoded<JoinToken>>::all(self.client.clone());
        let (timeout, lists) = (self.watch_timeout(), Arc::new(Semaphore::new(1)));
        let watch = Watch { api, fields: None, timeout, lists };
        let handle = |change: Change<JoinToken>| match change {
            Change::Applied(token) => self.view.learn_token(token),
            // One that can't be read is none.
            Change::Deleted(at) | Change::Undecodable(at) => self.view.forget_token(&at.name),
            Change::Listing => {}
            Change::Listed(all) => {
                let names: BTreeSet<_> = all.iter().map(|it| &*it.name).collect();
                self.view.keep_tokens(&names);
            }
            Change::Failing(error, times) => tokens_failed(&error, times),
        };
        let pulse = || self.view.heard_of(Watched::Tokens, Instant::now());
        watch.run_with_pulse(handle, pulse).await;
    }

    /// Looks again which bundles count, at each change.
    pub(super) async fn keep_trusted(self: Arc<Self>) {
        loop {
            self.refresh_trusted();
            self.federations_changed.notified().await;
        }
    }

    pub(super) fn refresh_trusted(&self) {
        let _turn = lock(&self.refreshing);
        let mut documents = {
            let federations = lock(&self.federations);
            trusted_documents(
                federations.values().map(|it| &it.outline),
                &self.options.trust_domain,
            )
        };
        let own = self.own_document();
        documents.extend(own.map(|document| (self.options.trust_domain.clone(), document)));
        self.view.set_trusted(documents);
    }

    /// The join service, and where clients connect to it.
    pub(super) async fn join_service(
        &self,
        options: &JoinOptions,
        stop: CancellationToken,
    ) -> anyhow::Result<(Arc<JoinService>, Option<TlsListener>)> {
        let parts = Parts {
            trust_domain: self.options.trust_domain.clone(),
            namespace: self.options.namespace.clone(),
            instance: self.options.instance.clone(),
            clock: self.clock.clone(),
            view: self.view.clone(),
            audit: self.audit.clone(),
            metrics: self.metrics.clone(),
            stop,
        };
        let service = JoinService::new(options, parts);
        let Some(address) = options.listen else { return Ok((service, None)) };
        let listener = bind(address, "--join-listen").await?;
        // A replica binds once.
        let _ = self.join_address.set(listener.local_addr()?);
        let resolver: Arc<dyn ResolvesServerCert> = match &options.certificate {
            Some(pair) => pair.clone(),
            None => self.svid.clone(),
        };
        let listener = TlsListener::for_grpc(listener, resolver, options.peers)?;
        Ok((service, Some(listener)))
    }
}

/// The documents of all federations that are trusted now.
fn trusted_documents<'a>(
    federations: impl Iterator<Item = &'a SpiffeFederation>,
    own: &TrustDomain,
) -> BTreeMap<TrustDomain, Arc<str>> {
    let mut same_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for it in federations.filter(|it| it.metadata.deletion_timestamp.is_none()) {
        same_name.entry(it.trust_domain().to_ascii_lowercase()).or_default().push(it);
    }
    let document = |it: &SpiffeFederation, rivals: &[&SpiffeFederation]| {
        let trust_domain = eligibility::trust_domain(it, rivals.iter().copied(), own).ok()?;
        it.condition(TRUSTED).filter(|it| it.status == "True")?;
        Some((trust_domain, it.status.current_bundle.as_deref()?.into()))
    };
    let groups = same_name.values();
    groups.flat_map(|group| group.iter().filter_map(|it| document(it, group))).collect()
}

fn tokens_failed(error: &ApiError, times: u32) {
    match error {
        ApiError::NotFound if times > 1 => {}
        ApiError::NotFound => tracing::warn!(
            "the API server has no JoinToken; install its CRD: kubectl apply -k crds/spiffe"
        ),
        error => tracing::warn!(%error, times, "watch of JoinTokens failed"),
    }
}
