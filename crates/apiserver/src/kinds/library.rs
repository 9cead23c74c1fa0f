//! The schemas of the built-in kinds, from k8s-openapi.

use std::sync::LazyLock;

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview},
        authorization::v1::SubjectAccessReview,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Event, Namespace, Secret, Service, ServiceAccount},
        events::v1::Event as NewEvent,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    schemars::generate::SchemaSettings,
};
use serde_json::{Map, Value};

use super::Kind;
use crate::{
    name_rules::Syntax,
    schema::{Library, List, Schema, Zero},
};

/// All definitions by name, as OpenAPI documents have them.
pub fn definitions() -> &'static Map<String, Value> {
    static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let mut generator = SchemaSettings::openapi3().into_generator();
        generator.subschema_for::<Namespace>();
        generator.subschema_for::<Secret>();
        generator.subschema_for::<ConfigMap>();
        generator.subschema_for::<Service>();
        generator.subschema_for::<ServiceAccount>();
        generator.subschema_for::<Event>();
        generator.subschema_for::<NewEvent>();
        generator.subschema_for::<Lease>();
        generator.subschema_for::<StatefulSet>();
        generator.subschema_for::<Role>();
        generator.subschema_for::<RoleBinding>();
        generator.subschema_for::<ClusterRole>();
        generator.subschema_for::<ClusterRoleBinding>();
        generator.subschema_for::<TokenRequest>();
        generator.subschema_for::<TokenReview>();
        generator.subschema_for::<SelfSubjectReview>();
        generator.subschema_for::<SubjectAccessReview>();
        generator.subschema_for::<ObjectMeta>();
        generator.take_definitions(true)
    });
    &DEFINITIONS
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema of `metadata` of every kind.
pub fn object_meta() -> &'static Schema {
    static META: LazyLock<Schema> = LazyLock::new(|| schema(OBJECT_META));
    &META
}

/// The description of a field of `metadata`.
pub(super) fn metadata_description(field: &str) -> String {
    let field = definitions().get(OBJECT_META).map(|meta| &meta["properties"][field]);
    field.and_then(|it| it["description"].as_str()).unwrap_or_default().to_owned()
}

fn schema(name: &str) -> Schema {
    let library = Library { definitions: definitions(), zero, list };
    // The definitions are compiled in, and the unit tests read all of them.
    #[allow(clippy::panic)]
    Schema::of_library(name, &library).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) struct Built {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
}

impl Built {
    /// A kind with the most common properties.
    pub fn kind(self) -> Kind {
        let package = match self.group {
            "" => "core",
            group => group.split('.').next().unwrap_or_default(),
        };
        let definition = format!("io.k8s.api.{package}.{}.{}", self.version, self.kind);
        Kind {
            group: self.group,
            version: self.version,
            kind: self.kind,
            plural: self.plural,
            singular: self.kind.to_lowercase().leak(),
            short_names: self.short_names,
            categories: &[],
            namespaced: true,
            status: false,
            generation: false,
            unconditional_update: true,
            create_on_update: false,
            returns_deleted: false,
            names: Syntax::Subdomain,
            fields: Vec::new(),
            schema: schema(&definition),
            definition,
            crd: None,
            slot: 0,
        }
    }
}

/// Which fields are pointers or structs in Go, which OpenAPI does not say.
fn zero(definition: &str, field: &str) -> Option<Zero> {
    let short = definition.rsplit('.').next().unwrap_or_default();
    match (short, field) {
        (_, "apiVersion" | "kind") if is_root(short) => Some(Zero::Shown),
        ("Event", "series" | "related") => None,
        (
            "Event",
            "eventTime" | "involvedObject" | "source" | "firstTimestamp" | "lastTimestamp",
        )
        | ("Event", "reportingComponent" | "regarding" | "deprecatedSource")
        | ("Event", "deprecatedFirstTimestamp" | "deprecatedLastTimestamp") => Some(Zero::Shown),
        ("Event", "reportingInstance") if definition.contains(".core.") => Some(Zero::Shown),
        ("EventSeries", "lastObservedTime") | ("NamespaceCondition", "lastTransitionTime") => {
            Some(Zero::Shown)
        }
        (_, "metadata") => Some(Zero::Shown),
        ("Namespace" | "Lease" | "Service" | "StatefulSet", "spec" | "status")
        | ("TokenRequest" | "TokenReview" | "SubjectAccessReview", "spec" | "status")
        | ("TokenReviewStatus", "user")
        | ("ServiceStatus", "loadBalancer")
        | ("StatefulSetStatus", "availableReplicas")
        | ("StatefulSetSpec", "updateStrategy")
        | ("ServicePort", "targetPort")
        | ("PodTemplateSpec", "spec")
        | ("Container", "resources") => Some(Zero::Shown),
        ("LeaseSpec", _)
        | ("TokenRequestSpec", "expirationSeconds")
        | ("Secret" | "ConfigMap", "immutable")
        | ("ObjectMeta", "deletionGracePeriodSeconds")
        | ("OwnerReference", "controller" | "blockOwnerDeletion")
        | ("ServiceAccount", "automountServiceAccountToken")
        | ("ServiceSpec", "internalTrafficPolicy" | "ipFamilyPolicy" | "loadBalancerClass")
        | ("ServiceSpec", "allocateLoadBalancerNodePorts" | "trafficDistribution")
        | ("ServicePort", "appProtocol")
        | ("StatefulSetSpec", "replicas" | "revisionHistoryLimit")
        | ("StatefulSetStatus", "collisionCount")
        | ("RollingUpdateStatefulSetStrategy", "partition")
        | ("SecurityContext" | "PodSecurityContext", _)
        | ("PersistentVolumeClaimSpec", "storageClassName" | "volumeMode") => Some(Zero::Kept),
        ("PodSpec", "terminationGracePeriodSeconds" | "activeDeadlineSeconds" | "priority")
        | ("PodSpec", "automountServiceAccountToken" | "shareProcessNamespace")
        | ("PodSpec", "enableServiceLinks" | "hostUsers" | "setHostnameAsFQDN")
        | ("Toleration", "tolerationSeconds")
        | (_, "optional" | "defaultMode" | "mode") => Some(Zero::Kept),
        _ => None,
    }
}

/// Which lists are merged by which key: in Kubernetes' OpenAPI, but not in k8s-openapi.
pub fn list(definition: &str, field: &str) -> List {
    let short = definition.rsplit('.').next().unwrap_or_default();
    let key = match (short, field) {
        ("ObjectMeta", "finalizers") => return List::Set,
        ("ObjectMeta", "ownerReferences") => "uid",
        ("ServiceAccount", "secrets")
        | ("PodSpec", "containers" | "initContainers" | "ephemeralContainers" | "volumes")
        | ("PodSpec", "imagePullSecrets" | "resourceClaims" | "schedulingGates")
        | ("Container" | "EphemeralContainer", "env") => "name",
        ("ServiceSpec", "ports") => "port",
        ("Container" | "EphemeralContainer", "ports") => "containerPort",
        ("Container" | "EphemeralContainer", "volumeMounts") => "mountPath",
        ("Container" | "EphemeralContainer", "volumeDevices") => "devicePath",
        ("PodSpec", "hostAliases") => "ip",
        ("PodSpec", "topologySpreadConstraints") => "topologyKey",
        (_, "conditions") => "type",
        _ => return List::Atomic,
    };
    List::Map(vec![key.to_owned()])
}

fn is_root(short: &str) -> bool {
    let roots = [
        "Namespace",
        "Secret",
        "ConfigMap",
        "Service",
        "ServiceAccount",
        "Event",
        "Lease",
        "StatefulSet",
        "SelfSubjectReview",
        "SubjectAccessReview",
        "TokenRequest",
        "TokenReview",
    ];
    roots.contains(&short)
}
