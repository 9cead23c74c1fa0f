//! The sandbox's API server: the kinds of Kubernetes, of this repository and of SPIRE.

use std::sync::LazyLock;

use apiserver::{
    api::ApiServer,
    kinds::{Kind, Kinds},
    store::Store,
};

use crate::{k8s::sandbox::SERVER_NAME, runtime::clock::Clock};

const CRDS: [&str; 7] = [
    include_str!("../../crds/route.openshift.io_routes.yaml"),
    include_str!("../../crds/federate/operator.openshift.io_spireservers.yaml"),
    include_str!("../../crds/spiffe/trustplane.dev_jointokens.yaml"),
    include_str!("../../crds/spiffe/trustplane.dev_spiffefederations.yaml"),
    include_str!("kinds/spire/clusterfederatedtrustdomains.yaml"),
    include_str!("kinds/spire/clusterspiffeids.yaml"),
    include_str!("kinds/spire/clusterstaticentries.yaml"),
];

/// All kinds that the sandbox knows.
pub static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    // The CRDs are constants, and every test of a sandbox reads them.
    #[allow(clippy::expect_used)]
    Kinds::new(&CRDS).expect("the CRDs are valid")
});

pub fn route() -> &'static Kind {
    // A test calls this.
    #[allow(clippy::expect_used)]
    KINDS.kind("route.openshift.io", "v1", "routes").expect("the Route is among the CRDs")
}

/// An empty store of these kinds. `history` is how many changes are remembered for watches; uids
/// and generated names follow from `seed`.
pub fn store(history: usize, seed: u64) -> Store {
    Store::new(&KINDS, history, seed)
}

/// An API server that [`crate::k8s::sandbox::recognise`] recognises.
pub fn server(store: Store, clock: Clock) -> ApiServer {
    ApiServer::new(SERVER_NAME, store, move || clock.now())
}

#[cfg(test)]
mod tests {
    use apiserver::kinds;

    use super::*;
    use crate::api::{join_token, spiffe_federation, spire_server};

    #[test]
    fn every_kind_of_the_table_is_known_by_name() {
        let rights =
            |kind| KINDS.named("rbac.authorization.k8s.io/v1", kind).expect("a kind of RBAC");
        let spire = |kind| KINDS.named("spire.spiffe.io/v1alpha1", kind).expect("a kind of SPIRE");
        let known = [
            kinds::namespace(),
            kinds::secret(),
            kinds::config_map(),
            kinds::service(),
            kinds::service_account(),
            kinds::event(),
            kinds::new_event(),
            kinds::lease(),
            kinds::stateful_set(),
            route(),
            KINDS.named(spire_server::API_VERSION, spire_server::KIND).expect("the SpireServer"),
            KINDS
                .named(spiffe_federation::API_VERSION, spiffe_federation::KIND)
                .expect("the SPIFFEFederation"),
            KINDS.named(spiffe_federation::API_VERSION, join_token::KIND).expect("the JoinToken"),
            spire("ClusterFederatedTrustDomain"),
            spire("ClusterSPIFFEID"),
            spire("ClusterStaticEntry"),
            rights("Role"),
            rights("RoleBinding"),
            rights("ClusterRole"),
            rights("ClusterRoleBinding"),
        ];
        assert_eq!(known.len(), KINDS.all().count());
    }
}
