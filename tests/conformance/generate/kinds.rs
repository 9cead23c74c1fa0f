//! The kinds that are compared.

use serde_json::Value;

use super::Generator;

/// A kind and how to generate its objects.
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Relative frequency.
    pub weight: u32,
    /// All fields but apiVersion, kind and metadata.
    pub content: fn(&mut Generator) -> Value,
    /// A merge patch of those fields.
    pub change: fn(&mut Generator) -> Value,
    pub field_selectors: &'static [&'static str],
}

impl Kind {
    /// Path of its objects in a namespace.
    pub fn collection(&self, namespace: &str) -> String {
        match self.namespaced {
            true => format!("{}/namespaces/{namespace}/{}", self.base(), self.plural),
            false => self.everywhere(),
        }
    }

    /// Path of its objects in all namespaces.
    pub fn everywhere(&self) -> String {
        format!("{}/{}", self.base(), self.plural)
    }

    pub fn base(&self) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}", self.api_version)
    }

    /// A prefix for generated names, unique in a sequence so that generated objects have the same
    /// order on both sides.
    pub fn prefix(&self, number: usize) -> String {
        match self.namespaced {
            // Different names in both groups: see `Generator::name`.
            true if self.kind == "Event" && self.api_version == "v1" => format!("h{number}-"),
            true => format!("g{number}-"),
            false => format!("${{gen}}{number}-"),
        }
    }
}

pub static KINDS: &[Kind] = &[
    Kind {
        api_version: "v1",
        kind: "Secret",
        plural: "secrets",
        namespaced: true,
        weight: 24,
        content: Generator::secret,
        change: Generator::secret_change,
        field_selectors: &["type=Opaque", "type=kubernetes.io/tls", "type!=Opaque,metadata.name=a"],
    },
    Kind {
        api_version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        namespaced: true,
        weight: 13,
        content: Generator::config_map,
        change: Generator::config_map_change,
        field_selectors: &["type=Opaque", "data.a=b"],
    },
    Kind {
        api_version: "route.openshift.io/v1",
        kind: "Route",
        plural: "routes",
        namespaced: true,
        weight: 26,
        content: Generator::route,
        change: Generator::route_change,
        field_selectors: &[
            "spec.host=a.example.com",
            "spec.host!=a.example.com",
            "spec.to.name=web",
            "spec.path=",
            "spec.to.kind=Service",
        ],
    },
    Kind {
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        plural: "leases",
        namespaced: true,
        weight: 12,
        content: Generator::lease,
        change: Generator::lease_change,
        field_selectors: &["spec.holderIdentity=a"],
    },
    Kind {
        api_version: "v1",
        kind: "Event",
        plural: "events",
        namespaced: true,
        weight: 8,
        content: Generator::core_event,
        change: Generator::core_event_change,
        field_selectors: &[
            "involvedObject.name=a",
            "involvedObject.kind=Route,reason=Injected",
            "reason!=Injected",
            "type=Warning",
            "source=x",
            "reportingComponent=trustplane.dev/injector",
            "involvedObject.uid=u-1",
            "regarding.name=a",
        ],
    },
    Kind {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        plural: "events",
        namespaced: true,
        weight: 9,
        content: Generator::event,
        change: Generator::event_change,
        field_selectors: &[
            "regarding.name=a",
            "involvedObject.name=a",
            "reason=Injected",
            "type=Normal",
            "reportingController=trustplane.dev/injector",
        ],
    },
    Kind {
        api_version: "v1",
        kind: "Namespace",
        plural: "namespaces",
        namespaced: false,
        weight: 8,
        content: Generator::namespace,
        change: Generator::namespace_change,
        field_selectors: &["status.phase=Active", "status.phase=Terminating", "name=x"],
    },
];
