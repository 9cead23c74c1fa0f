//! Every name by which a cluster knows us, in one place.

/// Asks for a Secret's certificate; set by users on their Routes.
pub const SECRET_NAME_ANNOTATION: &str = "route.openshift.io/tls-secret-name";

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

/// What the API server logs and meters us as.
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

/// Source of the Events of `trustplane federate`.
pub const FEDERATE_REPORTER: &str = "trustplane.dev/federate";

/// The Lease that the replicas of `trustplane federate` compete for.
pub const FEDERATE_LEASE: &str = "trustplane-federate";

/// Lets us take an object over that somebody else made, if it is `"true"`.
pub const ADOPT_ANNOTATION: &str = "trustplane.dev/adopt";
