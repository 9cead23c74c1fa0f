//! All cases, in the order in which they start.

mod cert_manager;
mod disturbed;
mod installed;
mod kinds;
mod many;
mod origin;
mod parts;
mod permission;

use super::capabilities::Need::{CertManager, Ingress, Long, OwnStack, Permission};
use super::runner::Pace::{Alone, Heavy};
use super::runner::{Case, Scene, Skip};

const MANAGED: &str = "Managed SecretInjected";
const CUSTOM: &str = "Custom CertificateInRoute";
const NOT_FOUND: &str = "Default SecretNotFound";
const WRONG_TYPE: &str = "Default SecretWrongType";
const NO_CERTIFICATE: &str = "Default NoCertificate";

const INJECTED: &str = "Normal CertificateInjected";
const INJECTED_TWICE: &str = "Normal CertificateInjected x2";
const UPDATED: &str = "Normal CertificateUpdated";
const CLEARED: &str = "Normal CertificateCleared";
const IS_MISSING: &str = "Warning SecretNotFound";
const IS_WRONG_TYPE: &str = "Warning SecretWrongType";

/// Result of a case: it ends, or the cluster lacks something that it needs.
type Shown = Result<(), Skip>;

macro_rules! case {
    ($room:ident::$name:ident) => {
        Case::new(stringify!($name), |scene: Scene| Box::pin($room::$name(scene)))
    };
}

/// Those that wait longest come first; the stack is disturbed and replaced at the end.
pub fn all() -> Vec<Case> {
    vec![
        case!(kinds::smoke),
        case!(origin::a_deleted_secret_takes_all_six_routes_back_to_the_default),
        case!(origin::a_secret_that_is_created_again_is_served_again),
        case!(origin::a_route_that_switches_to_an_absent_secret_goes_back_to_the_default),
        case!(cert_manager::a_route_annotated_before_its_certificate_exists).needs(&[CertManager]),
        case!(permission::a_user_who_may_not_read_the_secret_is_refused).needs(&[Permission]),
        case!(kinds::the_same_names_in_twenty_namespaces).pace(Heavy),
        case!(origin::six_routes_share_one_secret),
        case!(origin::a_secret_in_another_namespace_is_not_served),
        case!(origin::an_opaque_secret_is_not_served),
        case!(origin::a_passthrough_route_serves_what_its_backend_has),
        case!(origin::a_secret_that_is_absent_leaves_the_default),
        case!(origin::a_secret_from_a_new_authority_is_served_by_all_six_routes),
        case!(origin::a_route_that_switches_to_a_second_secret_serves_its_pair),
        case!(origin::a_route_that_switches_to_an_opaque_secret_goes_back_to_the_default),
        case!(origin::labels_alone_cause_no_write),
        case!(origin::without_the_annotation_a_route_goes_back_to_the_default),
        case!(origin::an_annotation_that_is_put_back_is_obeyed_again),
        case!(kinds::a_reencrypt_route_keeps_its_destination_authority),
        case!(kinds::a_route_of_an_ingress_is_left_alone).needs(&[Ingress]),
        case!(kinds::a_route_goes_from_custom_to_managed_and_back),
        case!(kinds::a_wildcard_route_serves_every_name_of_its_domain),
        case!(parts::a_bad_pair_is_refused_by_the_router_and_stops_nobody).needs(&[OwnStack]),
        case!(cert_manager::renewals_under_load_show_no_other_certificate)
            .pace(Alone)
            .needs(&[CertManager]),
        case!(parts::a_configuration_that_haproxy_refuses_is_never_loaded)
            .pace(Alone)
            .needs(&[OwnStack]),
        case!(parts::a_reload_loses_no_connection).pace(Alone).needs(&[OwnStack]),
        case!(many::four_namespaces_of_25_pairs_in_two_rounds).pace(Alone),
        case!(many::ten_namespaces_of_100_pairs_in_two_rounds).pace(Alone).needs(&[Long]),
        case!(disturbed::the_leader_is_killed_in_the_middle_of_200_renewals)
            .pace(Alone)
            .needs(&[OwnStack]),
        case!(disturbed::the_api_server_is_restarted_in_the_middle_of_renewals)
            .pace(Alone)
            .needs(&[OwnStack]),
        case!(disturbed::watches_expire_in_the_middle_of_renewals).pace(Alone).needs(&[OwnStack]),
        case!(parts::a_stack_that_is_interrupted_leaves_nothing).pace(Alone).needs(&[OwnStack]),
        case!(parts::a_stack_that_is_killed_leaves_nothing).pace(Alone).needs(&[OwnStack, Long]),
        case!(installed::a_chart_installed_by_helm_does_the_same).pace(Alone).needs(&[OwnStack]),
        case!(installed::the_suite_needs_a_kubeconfig_alone).pace(Alone).needs(&[OwnStack]),
    ]
}
