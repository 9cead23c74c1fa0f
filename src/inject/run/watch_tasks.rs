//! The watches: objects go into the index, and the Routes that they concern into the queue.

use std::sync::Arc;

use kube::{Api, Resource};
use tokio::time::Instant;

use super::Injector;
use crate::{
    api::{route::Route, secret::SecretMetadata},
    inject::{
        cache::{
            index::{Arrival, Origin, Scope},
            watch_health::{Kind, Watched},
        },
        decide::{facts::RouteFacts, source::Revision},
    },
    k8s::{
        api_error::ApiError,
        decode::MaybeDecoded,
        object_ref::ObjectRef,
        watch::{Change, Unlisted, Watch},
    },
};

impl Injector {
    pub(super) async fn watch_routes(self: Arc<Self>, scope: Scope) {
        let watched = Watched { kind: Kind::Route, scope: scope.clone() };
        let watch = self.watch::<Route>(&scope, None);
        let mut unlisted = Unlisted::default();
        watch
            .run_lean(|change| match change {
                Change::Applied(route) => {
                    let at = ObjectRef::of(&route.metadata);
                    unlisted.seen(&at);
                    self.route_applied(&watched, &at, &route);
                }
                Change::Deleted(at) => self.route_gone(&at),
                Change::Undecodable(at) => {
                    let at = self.skip_undecodable("Route", at);
                    self.route_gone(&at);
                }
                Change::Listing => {
                    unlisted.expect(self.index().routes_of(&scope));
                    self.watch_health().listing(&watched);
                }
                Change::Listed(()) => {
                    for at in unlisted.finish() {
                        self.route_gone(&at);
                    }
                    self.watch_listed(&watched);
                    self.relisted.notify_one();
                }
                Change::Failing(error, failures) => self.watch_failing(&watched, error, failures),
            })
            .await;
    }

    pub(super) async fn watch_secrets(self: Arc<Self>, scope: Scope) {
        let watched = Watched { kind: Kind::Secret, scope: scope.clone() };
        // Only Secrets that a Route names are remembered, so the Routes come first.
        self.until(|watches| watches.is_not_to_be_waited_for(Kind::Route, &scope)).await;
        let watch = self.watch::<SecretMetadata>(&scope, Some("type=kubernetes.io/tls"));
        let mut unlisted = Unlisted::default();
        let mut is_listing = false;
        watch
            .run_lean(|change| {
                let concerned = match change {
                    Change::Applied(secret) => {
                        let at = ObjectRef::of(&secret.metadata);
                        unlisted.seen(&at);
                        let arrival = match is_listing {
                            true if self.watch_health().has_listed(&watched) => Arrival::Relist,
                            true => Arrival::FirstList,
                            false => Arrival::Event,
                        };
                        self.secret_applied(&at, &secret, arrival)
                    }
                    Change::Deleted(at) => self.secret_gone(&at),
                    Change::Undecodable(at) => {
                        let at = self.skip_undecodable("Secret", at);
                        self.secret_gone(&at)
                    }
                    Change::Listing => {
                        is_listing = true;
                        unlisted.expect(self.index().secrets_of(&scope));
                        self.watch_health().listing(&watched);
                        Vec::new()
                    }
                    Change::Listed(()) => {
                        is_listing = false;
                        // Secrets deleted in the gap had no event to end the use of their reads.
                        self.reconciler.reads.clear();
                        let concerned =
                            self.index().secrets_listed(&unlisted.finish(), Instant::now());
                        self.watch_listed(&watched);
                        concerned
                    }
                    Change::Failing(error, failures) => {
                        self.watch_failing(&watched, error, failures);
                        Vec::new()
                    }
                };
                for route in concerned {
                    self.queue.add(route);
                }
            })
            .await;
    }

    fn route_applied(&self, watched: &Watched, at: &ObjectRef, route: &Route) {
        let now = Instant::now();
        let uid = route.metadata.uid.as_deref().unwrap_or_default();
        let version = route.metadata.resource_version.as_deref().unwrap_or_default();
        if self.index().is_own_write(at, uid, version, now) {
            return;
        }
        let facts = RouteFacts::read(route);
        let has_listed = self.watch_health().has_listed(watched);
        let origin = if has_listed { Origin::Server } else { Origin::FirstList };
        let changed = self.index().route_applied(facts, origin, now);
        let Some(at) = changed else { return };
        let not_before = self.index().not_before(&at);
        match not_before.filter(|time| *time > now) {
            Some(time) => self.queue.add_at(at, time),
            None => self.queue.add(at),
        }
    }

    fn secret_applied(
        &self,
        at: &ObjectRef,
        secret: &SecretMetadata,
        arrival: Arrival,
    ) -> Vec<ObjectRef> {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        let (uid, version) = (text(&secret.metadata.uid), text(&secret.metadata.resource_version));
        let revision = Revision::of(&uid, &version);
        let concerned = self.index().secret_applied(at, revision, arrival, Instant::now());
        if !concerned.is_empty() {
            self.reconciler.reads.forget(at);
        }
        concerned
    }

    pub(super) fn secret_gone(&self, at: &ObjectRef) -> Vec<ObjectRef> {
        self.reconciler.reads.forget(at);
        self.index().secret_gone(at, Instant::now())
    }

    fn watch<K>(&self, scope: &Scope, fields: Option<&'static str>) -> Watch<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let client = self.reconciler.client.clone();
        let api: Api<MaybeDecoded<K>> = match scope {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        Watch { api, fields, timeout: self.options.watch_timeout, lists: self.lists.clone() }
    }

    fn skip_undecodable(&self, kind: &'static str, at: ObjectRef) -> ObjectRef {
        self.reconciler.metrics.skipped_undecodable(kind);
        tracing::warn!(kind, object = %at, "object skipped: it can't be decoded");
        at
    }

    pub(super) fn watch_failing(&self, watched: &Watched, error: ApiError, failures: u32) {
        self.reconciler.metrics.watch_restarted(watched.kind.as_str());
        let hint = match (&error, &watched.scope) {
            (ApiError::Forbidden, Some(namespace)) => format!(
                ". Its account needs the rules of deploy/base/role.yaml in {namespace}. The chart's \
                 `namespaces` and deploy/overlays/single-namespace grant them"
            ),
            _ => hint(&error).to_owned(),
        };
        if failures == 1 {
            tracing::debug!(watch = %watched, %error, "watch failed");
        } else {
            tracing::warn!(watch = %watched, %error, failures, "cannot watch{hint}");
        }
        self.watch_health().failing(watched, error, failures, Instant::now());
        self.watch_health_changed.notify_waiters();
    }

    pub(super) fn watch_listed(&self, watched: &Watched) {
        self.watch_health().listed(watched);
        self.watch_health_changed.notify_waiters();
    }
}

pub(super) fn hint(error: &ApiError) -> &'static str {
    match error {
        ApiError::Forbidden => {
            ". Apply again what it was installed with, or limit it with --namespace; trustplane check names the missing right"
        }
        ApiError::NotFound => {
            ". Is the Route API installed? On plain Kubernetes: kubectl apply -f crds/route.openshift.io_routes.yaml"
        }
        _ => "",
    }
}
