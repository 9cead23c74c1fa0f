//! The watches of the controller. Changes trigger a reconcile.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Service, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, Resource, core::PartialObjectMeta};
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Federator, SERVERS, TRUST_DOMAINS, version_of};
use crate::{
    api::{federated_trust_domain::FederatedTrustDomain, route::Route, spire_server::SpireServer},
    federate::decide::{bootstrap_bundles::bootstrap_bundles, render, trust},
    k8s::{
        api_error::ApiError,
        decode::MaybeDecoded,
        watch::{Change, Watch},
    },
    runtime::lock::lock,
};

impl Federator {
    pub(super) async fn watch_server(self: Arc<Self>) {
        let api = Api::<MaybeDecoded<SpireServer>>::all(self.client.clone());
        self.watch(api, None, SERVERS, |this, change| match change {
            Change::Applied(server) => {
                let part = |it: &SpireServer| {
                    (version_of(it), it.status.clone(), it.metadata.deletion_timestamp.is_some())
                };
                let now = part(&server);
                let before = lock(&this.server).replace(server);
                if before.as_ref().map(part) != Some(now) {
                    this.changed.notify_one();
                }
            }
            Change::Deleted(_) => this.changed.notify_one(),
            Change::Listed(places) => {
                if places.is_empty() {
                    tracing::info!("there is no SpireServer; nothing to do until there is one");
                }
                this.listed(SERVERS);
                this.changed.notify_one();
            }
            _ => {}
        })
        .await;
    }

    pub(super) async fn watch_trust_domains(self: Arc<Self>) {
        let api = Api::<MaybeDecoded<FederatedTrustDomain>>::all(self.client.clone());
        self.watch(api, None, TRUST_DOMAINS, |this, change| {
            let listed = match change {
                Change::Applied(domain) => {
                    let name = domain.metadata.name.clone().unwrap_or_default();
                    lock(&this.trust_domains).insert(name, domain);
                    false
                }
                Change::Deleted(place) | Change::Undecodable(place) => {
                    lock(&this.trust_domains).remove(&*place.name);
                    false
                }
                Change::Listed(places) => {
                    let existing = |name: &str| places.iter().any(|it| *it.name == *name);
                    lock(&this.trust_domains).retain(|name, _| existing(name));
                    true
                }
                // The CRD is not installed.
                Change::Failing(ApiError::NotFound, _) => true,
                _ => return,
            };
            let federated = {
                let domains = lock(&this.trust_domains);
                this.peers.set_bootstrap_bundles(bootstrap_bundles(&domains));
                trust::federated(&domains)
            };
            // The status reports them.
            if std::mem::replace(&mut *lock(&this.federated), federated.clone()) != federated {
                this.changed.notify_one();
            }
            if listed {
                this.listed(TRUST_DOMAINS);
            }
        })
        .await;
    }

    pub(super) fn watch_owned(self: Arc<Self>, tasks: &mut JoinSet<()>) {
        self.clone().watch_owned_kind::<ConfigMap>(tasks, "ConfigMaps");
        self.clone().watch_owned_kind::<Service>(tasks, "Services");
        self.clone().watch_owned_kind::<StatefulSet>(tasks, "StatefulSets");
        self.clone().watch_owned_kind::<ServiceAccount>(tasks, "ServiceAccounts");
        self.clone().watch_owned_kind::<Role>(tasks, "Roles");
        self.clone().watch_owned_kind::<RoleBinding>(tasks, "RoleBindings");
        self.clone().watch_owned_kind::<Route>(tasks, "Routes");
        let roles = Api::<MaybeDecoded<PartialObjectMeta<ClusterRole>>>::all(self.client.clone());
        let name = Some("metadata.name=spire-server");
        tasks.spawn(self.clone().watch_names(roles, name, "ClusterRoles"));
        let bindings =
            Api::<MaybeDecoded<PartialObjectMeta<ClusterRoleBinding>>>::all(self.client.clone());
        tasks.spawn(self.watch_names(bindings, name, "ClusterRoleBindings"));
    }

    fn watch_owned_kind<K>(self: Arc<Self>, tasks: &mut JoinSet<()>, kind: &'static str)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let namespace = self.options.setting.namespace.clone();
        let api =
            Api::<MaybeDecoded<PartialObjectMeta<K>>>::namespaced(self.client.clone(), &namespace);
        tasks.spawn(self.watch_names(api, None, kind));
    }

    /// Watches objects by name; a change of one of ours triggers a reconcile.
    async fn watch_names<K>(
        self: Arc<Self>,
        api: Api<MaybeDecoded<PartialObjectMeta<K>>>,
        fields: Option<&'static str>,
        kind: &'static str,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        const OURS: [&str; 4] =
            [render::SERVER, render::CONTROLLER_MANAGER, render::ROUTE, render::BUNDLE];
        self.watch(api, fields, kind, |this, change| {
            let ours = match &change {
                Change::Applied(it) => {
                    it.metadata.name.as_deref().is_some_and(|it| OURS.contains(&it))
                }
                Change::Deleted(place) => OURS.contains(&&*place.name),
                Change::Listed(_) => true,
                _ => false,
            };
            if ours {
                this.changed.notify_one();
            }
        })
        .await;
    }

    async fn watch<K>(
        self: Arc<Self>,
        api: Api<MaybeDecoded<K>>,
        fields: Option<&'static str>,
        kind: &'static str,
        mut handle: impl FnMut(&Self, Change<K>),
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (timeout, lists) = (self.options.watch_timeout, Arc::new(Semaphore::new(1)));
        let watch = Watch { api, fields, timeout, lists };
        watch
            .run(|change| {
                if let Change::Failing(error, times) = &change {
                    if *error != ApiError::NotFound {
                        tracing::warn!(kind, %error, times, "watch failed");
                    } else if *times == 1 {
                        tracing::warn!(
                            kind,
                            "the API server has no such kind; install its CRD, see docs/federate.md"
                        );
                    }
                    self.metrics.watch_restarted(kind);
                }
                handle(&self, change);
            })
            .await;
    }
}
