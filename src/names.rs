//! Every name by which a cluster knows us, in one place.

/// Asks for a Secret's certificate; set by users on their Routes.
pub const SECRET_NAME_ANNOTATION: &str = "route.openshift.io/tls-secret-name";

/// Edits between a misspelt key and the right one, at most.
const MISSPELLING: usize = 3;

/// Whether this annotation key is probably a typo of `SECRET_NAME_ANNOTATION`.
pub fn is_misspelt(key: &str) -> bool {
    let (right, name) = (SECRET_NAME_ANNOTATION, "tls-secret-name");
    if key == right {
        return false;
    }
    let is_close = |key: &str| {
        key.len().abs_diff(right.len()) <= MISSPELLING
            && strsim::osa_distance(key, right) <= MISSPELLING
    };
    let key = key.to_ascii_lowercase();
    key == name || key.ends_with("openshift.io/tls-secret-name") || is_close(&key)
}

/// Notes what we injected, in the same write as the pair itself.
pub const INJECTED_ANNOTATION: &str = "trustplane.dev/injected";

/// Which version of which Secret that was, in the same write: saves a read after a restart.
pub const INJECTED_FROM_ANNOTATION: &str = "trustplane.dev/injected-from";

/// Owner of the fields that we write, as `metadata.managedFields` names it.
pub const FIELD_MANAGER: &str = "trustplane";

/// Source of our Events.
pub const INJECT_REPORTER: &str = "trustplane.dev/inject";

/// The Lease that the replicas of `trustplane inject` compete for.
pub const INJECT_LEASE: &str = "trustplane-inject";

pub const USER_AGENT: &str = concat!("trustplane/", env!("CARGO_PKG_VERSION"));

/// Where we are installed, unless somebody chose another namespace.
pub const NAMESPACE: &str = "trustplane";

/// The account that `trustplane inject` runs under.
pub const ACCOUNT: &str = "trustplane";

/// The Deployment of `trustplane inject`.
pub const INJECT_DEPLOYMENT: &str = "trustplane-inject";

/// The admission policy that guards the annotation, and its binding.
pub const POLICY: &str = "trustplane-route-secrets";

/// Notes which fields of an object are ours, in the same write as the fields themselves.
pub const FIELDS_ANNOTATION: &str = "trustplane.dev/fields";

/// The digest of the server's configuration on its Pods: a change rolls them out.
pub const CONFIG_ANNOTATION: &str = "trustplane.dev/server-config";

/// The spec that the server's configuration was made from, on its ConfigMap: what counts while a newer one
/// is invalid.
pub const LAST_VALID_SPEC_ANNOTATION: &str = "trustplane.dev/last-valid-spec";

/// Source of the Events of `trustplane federate`.
pub const FEDERATE_REPORTER: &str = "trustplane.dev/federate";

/// The Deployment of `trustplane federate`.
pub const FEDERATE_DEPLOYMENT: &str = "trustplane-federate";

/// The admission policy that guards the SpireServer, and its binding.
pub const ENDPOINT_POLICY: &str = "trustplane-federation-endpoint";

/// Where the SPIRE server runs, unless `trustplane federate --namespace` says otherwise.
pub const SPIRE_NAMESPACE: &str = "spire";

/// The Lease that the replicas of `trustplane federate` compete for.
pub const FEDERATE_LEASE: &str = "trustplane-federate";

/// Source of the Events of `trustplane review`.
pub const REVIEW_REPORTER: &str = "trustplane.dev/review";
/// The Lease that the replicas of `trustplane review` compete for.
pub const REVIEW_LEASE: &str = "trustplane-review";
/// The ConfigMap with its configuration.
pub const REVIEW_CONFIG_MAP: &str = "trustplane-review-config";
/// The Secret with the credentials that we renewed, and whose each key was first.
pub const REVIEW_SECRET: &str = "trustplane-review";
/// The ConfigMap with how it stands with each cluster.
pub const REVIEW_STATUS_CONFIG_MAP: &str = "trustplane-review-status";
/// The configuration in that ConfigMap.
pub const REVIEW_CONFIG_KEY: &str = "clusters.yaml";
/// The Deployment of `trustplane review`.
pub const REVIEW_DEPLOYMENT: &str = "trustplane-review";

/// Lets us take an object over that somebody else made, if it is `"true"`.
pub const ADOPT_ANNOTATION: &str = "trustplane.dev/adopt";

/// Source of the Events of `trustplane authority`.
pub const AUTHORITY_REPORTER: &str = "trustplane.dev/authority";
/// The Lease that the replicas of `trustplane authority` compete for.
pub const AUTHORITY_LEASE: &str = "trustplane-authority";
/// The Deployment of `trustplane authority`.
pub const AUTHORITY_DEPLOYMENT: &str = "trustplane-authority";
/// The Service of `trustplane authority`.
pub const AUTHORITY_SERVICE: &str = "trustplane-authority";
/// The Secret with the keys and phases of our own CAs.
pub const AUTHORITY_SECRET: &str = "trustplane-authority";
/// The ConfigMap with our published bundle.
pub const BUNDLE_CONFIG_MAP: &str = "trustplane-bundle";
/// The ConfigMap with the federations that the audit log knows.
pub const FEDERATIONS_CONFIG_MAP: &str = "trustplane-spiffe-federations";
/// The admission policy that guards the status of SPIFFEFederations and JoinTokens.
pub const SPIFFE_STATUS_POLICY: &str = "trustplane-spiffe-status";
/// The ConfigMap on which rotations are asked for. It holds nothing else, so the right to change it can be
/// given away alone.
pub const REQUESTS_CONFIG_MAP: &str = "trustplane-authority-requests";
/// Asks for a rotation of our CA, by any new text; on the ConfigMap of requests.
pub const ROTATE_ANNOTATION: &str = "trustplane.dev/rotate-requested";
/// Names a CA whose key is stolen; on the ConfigMap of requests.
pub const REVOKE_ANNOTATION: &str = "trustplane.dev/revoke-requested";
/// Asks for a sync of a SPIFFEFederation, by any new text.
pub const REFRESH_ANNOTATION: &str = "trustplane.dev/refresh-requested";
/// Accepts one bundle with a lower sequence: its fingerprint, and when it was accepted.
pub const ACCEPT_ANNOTATION: &str = "trustplane.dev/accept-bundle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_a_slip_of_the_pen_away_from_the_right_one_is_misspelt() {
        for key in [
            "route.openshift.io/tls-secret-nam",
            "router.openshift.io/tls-secret-name",
            "routes.openshift.io/tls-secretname",
            "haproxy.router.openshift.io/tls-secret-name",
            "route.openshift.io/TLS-Secret-Name",
            "route.openshfit.io/tls_secret_name",
            "tls-secret-name",
        ] {
            assert!(is_misspelt(key), "{key}");
        }
    }

    #[test]
    fn the_right_key_and_those_of_others_are_not_misspelt() {
        for key in [
            SECRET_NAME_ANNOTATION,
            INJECTED_ANNOTATION,
            "route.openshift.io/termination",
            "openshift.io/host.generated",
            "nginx.example.com/tls-secret-name",
            "cert-manager.io/issuer-name",
            "",
        ] {
            assert!(!is_misspelt(key), "{key}");
        }
    }
}
