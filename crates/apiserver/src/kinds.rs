//! The kinds that a server knows: a few built-in ones, reviews, and those of the CRDs it is given. Pure.
//!
//! To add a built-in kind: a line in `describe_built_in`, and its rules in `rules.rs` if it has any.

mod crd;
mod library;
mod reviews;

use std::{fmt, sync::LazyLock};

use serde_json::Value;

pub use self::{
    crd::{Column, Crd, CrdError},
    library::{definitions, list as library_list, object_meta},
    reviews::{self_subject_review, subject_access_review, token_request, token_review},
};
use crate::{name_rules::Syntax, schema::Schema};

/// One version of a kind.
pub struct Kind {
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// Name of the kind, such as `Secret`.
    pub kind: &'static str,
    /// As in paths, such as `secrets`.
    pub plural: &'static str,
    /// Singular for kubectl.
    pub singular: &'static str,
    /// Abbreviations for kubectl.
    pub short_names: &'static [&'static str],
    /// Groups of kinds for kubectl.
    pub categories: &'static [&'static str],
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Whether it has `/status`.
    pub status: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// Whether a PUT without resourceVersion overwrites.
    pub unconditional_update: bool,
    /// Whether a PUT creates missing objects.
    pub create_on_update: bool,
    /// Whether a deletion answers with the object.
    pub returns_deleted: bool,
    pub names: Syntax,
    /// Selectable fields, besides name and namespace.
    pub fields: Vec<String>,
    pub schema: Schema,
    /// Name of the schema in the OpenAPI documents.
    pub definition: String,
    /// None for built-in kinds.
    pub crd: Option<Crd>,
    /// Kinds with the same slot are views of the same objects.
    pub(crate) slot: usize,
}

/// The built-in kinds and those of CRDs. Stores and changes refer to kinds for as long as the
/// process runs, so a program builds this once, in a static.
pub struct Kinds {
    custom: Vec<Kind>,
}

impl Kinds {
    /// Reads CRDs, each a YAML document. Of several versions, only the first counts.
    pub fn new(crds: &[&str]) -> Result<Self, CrdError> {
        let mut custom = Vec::with_capacity(crds.len());
        for (index, source) in crds.iter().enumerate() {
            custom.push(Kind { slot: built_in_slots() + index, ..crd::read(source)? });
        }
        Ok(Self { custom })
    }

    pub fn all(&self) -> impl Iterator<Item = &Kind> {
        BUILT_IN.iter().chain(&self.custom)
    }

    /// Those with a path of their own: the stored ones, and reviews.
    pub fn with_path(&self) -> impl Iterator<Item = &Kind> {
        self.all().chain(reviews::with_path())
    }

    /// How many sets of objects there are.
    pub(crate) fn slots(&self) -> usize {
        built_in_slots() + self.custom.len()
    }

    /// The kind in whose shape the objects of a slot are stored.
    pub(crate) fn stored_in(&self, slot: usize) -> Option<&Kind> {
        self.all().find(|kind| kind.slot == slot)
    }

    /// The stored kind with that plural.
    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Kind> {
        self.all()
            .find(|kind| kind.plural == plural && kind.group == group && kind.version == version)
    }

    /// The kind that an object or reference names.
    pub fn named(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.all().find(|one| one.is_named(api_version, kind))
    }
}

static BUILT_IN: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds = describe_built_in();
    let mut slots = 0;
    for kind in &mut kinds {
        let newer_event = kind.kind == "Event" && !kind.group.is_empty();
        if newer_event {
            kind.slot = EVENT_SLOT;
        } else {
            kind.slot = slots;
            slots += 1;
        }
    }
    kinds
});

/// Both kinds of Events share a slot.
fn built_in_slots() -> usize {
    BUILT_IN.len() - 1
}

/// Events of both groups are the same objects.
const EVENT_SLOT: usize = 0;

fn describe_built_in() -> Vec<Kind> {
    use library::Built;
    let built = |group, version, kind, plural, short_names| Built {
        group,
        version,
        kind,
        plural,
        short_names,
    };
    let event_fields = |object: &str, source: &str, component: &str| {
        let of_object =
            ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
        let mut fields: Vec<String> =
            of_object.iter().map(|field| format!("{object}.{field}")).collect();
        fields.extend([component.to_owned(), "reason".into(), "type".into(), source.to_owned()]);
        fields
    };
    let event = |mut kind: Kind| {
        kind.create_on_update = true;
        if kind.group.is_empty() {
            kind.names = Syntax::PathSegment;
        }
        kind.fields = match kind.group {
            "" => {
                kind.names = Syntax::PathSegment;
                event_fields("involvedObject", "source", "reportingComponent")
            }
            _ => event_fields("regarding", "reason", "reportingController"),
        };
        kind
    };
    // Stored and shown, but without effect on permissions.
    let rights = |kind, plural, namespaced| Kind {
        namespaced,
        create_on_update: true,
        names: Syntax::PathSegment,
        ..built("rbac.authorization.k8s.io", "v1", kind, plural, &[]).kind()
    };
    vec![
        event(built("", "v1", "Event", "events", &["ev"]).kind()),
        Kind {
            namespaced: false,
            status: true,
            returns_deleted: true,
            names: Syntax::Label,
            fields: vec!["status.phase".into()],
            ..built("", "v1", "Namespace", "namespaces", &["ns"]).kind()
        },
        Kind { fields: vec!["type".into()], ..built("", "v1", "Secret", "secrets", &[]).kind() },
        built("", "v1", "ConfigMap", "configmaps", &["cm"]).kind(),
        Kind {
            status: true,
            create_on_update: true,
            returns_deleted: true,
            names: Syntax::Label,
            fields: vec!["spec.clusterIP".into(), "spec.type".into()],
            categories: &["all"],
            ..built("", "v1", "Service", "services", &["svc"]).kind()
        },
        Kind {
            returns_deleted: true,
            ..built("", "v1", "ServiceAccount", "serviceaccounts", &["sa"]).kind()
        },
        event(built("events.k8s.io", "v1", "Event", "events", &["ev"]).kind()),
        Kind {
            unconditional_update: false,
            create_on_update: true,
            ..built("coordination.k8s.io", "v1", "Lease", "leases", &[]).kind()
        },
        Kind {
            status: true,
            generation: true,
            names: Syntax::Label,
            categories: &["all"],
            ..built("apps", "v1", "StatefulSet", "statefulsets", &["sts"]).kind()
        },
        rights("Role", "roles", true),
        rights("RoleBinding", "rolebindings", true),
        rights("ClusterRole", "clusterroles", false),
        rights("ClusterRoleBinding", "clusterrolebindings", false),
    ]
}

/// The built-in kind that an object names, perhaps in a version that has no path.
pub(crate) fn built_in(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let mut all = BUILT_IN.iter().chain(reviews::all());
    all.find(|one| one.is_named(api_version, kind)).or_else(|| reviews::earlier(api_version, kind))
}

/// The review with that plural.
pub(crate) fn review(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    let asked = (group, version, plural);
    reviews::with_path().iter().find(|one| (one.group, one.version, one.plural) == asked)
}

macro_rules! known {
    ($($name:ident, $what:literal, $group:literal, $plural:literal;)*) => {$(
        #[doc = concat!("The kind ", $what, ".")]
        pub fn $name() -> &'static Kind {
            static FOUND: LazyLock<&'static Kind> = LazyLock::new(|| {
                let found = BUILT_IN.iter().find(|kind| {
                    kind.group == $group && kind.version == "v1" && kind.plural == $plural
                });
                // The table is a constant, and a test calls every one of these.
                #[allow(clippy::expect_used)]
                found.expect("the table has it")
            });
            &FOUND
        }
    )*};
}
known! {
    namespace, "Namespace", "", "namespaces";
    secret, "Secret", "", "secrets";
    config_map, "ConfigMap", "", "configmaps";
    service, "Service", "", "services";
    service_account, "ServiceAccount", "", "serviceaccounts";
    event, "Event of the core group, in whose shape Events are stored", "", "events";
    new_event, "Event of the group events.k8s.io", "events.k8s.io", "events";
    lease, "Lease", "coordination.k8s.io", "leases";
    stateful_set, "StatefulSet", "apps", "statefulsets";
}

impl Kind {
    /// The value of `apiVersion`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn is_named(&self, api_version: &str, kind: &str) -> bool {
        self.kind == kind && self.api_version() == api_version
    }

    /// Plural and group, as in messages.
    pub fn resource(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether a CRD defines it.
    pub fn is_custom(&self) -> bool {
        self.crd.is_some()
    }

    /// Paths of a selectable field in the stored shape; the first one with a text counts.
    pub fn selectable(&self, field: &str) -> Option<Vec<String>> {
        let known = match field {
            "metadata.name" => true,
            "metadata.namespace" => self.namespaced,
            _ => self.fields.iter().any(|known| known == field),
        };
        if !known {
            return None;
        }
        Some(match (self.kind, field) {
            ("Event", "source") => vec!["source.component".into(), "reportingComponent".into()],
            ("Event", "reportingController") => vec!["reportingComponent".into()],
            ("Event", _) if field.starts_with("regarding.") => {
                vec![field.replacen("regarding", "involvedObject", 1)]
            }
            _ => vec![field.to_owned()],
        })
    }
}

impl Kind {
    /// The error message for a field that is not selectable.
    pub fn unselectable(&self, field: &str) -> String {
        if self.fields.is_empty() {
            format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        } else {
            format!("field label not supported: {field}")
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource())
    }
}

/// The text at a path, empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(object, |value, step| value.get(step));
    found.and_then(Value::as_str).unwrap_or_default()
}
