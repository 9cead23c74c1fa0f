//! The part of a Route that decisions need, and all that the cache keeps of it. Pure.
//!
//! Neither a key nor a certificate enters: the pair in the Route is reduced to its fingerprint, its
//! owner, and a description of its certificate.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    api::route::{Route, TlsConfig},
    inject::decide::{
        condition::PublishedCondition,
        marker::Marker,
        source::Source,
        state::{self, State},
    },
    k8s::object_ref::ObjectRef,
    names::{INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION, is_misspelt},
    tls::{self, Fingerprint, Validity, Warning, Wildcard},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFacts {
    pub at: ObjectRef,
    /// Another if the Route was made again.
    pub uid: Arc<str>,
    /// The version that these facts were read from; every write carries it.
    pub version: Box<str>,
    /// A digest of host and wildcard policy, which the certificate is compared with.
    pub host: u64,
    pub write_access: WriteAccess,
    pub requested: RequestedSecret,
    /// Whether `trustplane.dev/injected` is set, to any value.
    pub has_marker: bool,
    pub tls: Tls,
    /// Which version of its Secret the pair came from; none if that can't be trusted.
    pub source: Option<Source>,
    /// The certificate in the Route, where the pair is ours.
    pub certificate: HeldCertificate,
    /// `.status.certificate`.
    pub conditions: Box<[PublishedCondition]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldCertificate {
    /// The Route holds none of ours, or it can't be read.
    None,
    /// Too long to be read in a watch.
    Unread,
    Read(Box<Description>),
}

/// What metrics and warnings need of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The serial number of the leaf in hexadecimal digits.
    pub serial: Box<str>,
    pub validity: Validity,
    /// Those that hold at any time.
    pub warnings: Box<[Warning]>,
}

impl Description {
    /// All warnings at this time.
    pub fn warnings_at(&self, now: DateTime<Utc>) -> impl Iterator<Item = Warning> {
        tls::age_warnings(self.validity, now).chain(self.warnings.iter().cloned())
    }
}

/// How much of a Route's certificate is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Unless it is long.
    Short,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    Free,
    Deleting,
    /// Ingress-to-route puts back whatever anybody else writes.
    Ingress,
}

/// The annotation `route.openshift.io/tls-secret-name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedSecret {
    Nothing,
    /// Names a Secret of the Route's namespace.
    Secret(Arc<str>),
    /// Absent or empty; this similar key is set instead.
    Misspelt(Box<str>),
    /// Can't be the name of a Secret. Only the shown prefix is kept: an annotation may be as large as
    /// 256 KB.
    Invalid(Box<str>),
}

/// `spec.tls`, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    NotSecured,
    /// The router never decrypts.
    Passthrough,
    /// OpenShift's own `externalCertificate`, and what is left beside it.
    External(Holding),
    Terminated {
        holding: Holding,
        /// The digest of the Route's `caCertificate`, which the router verifies the pair with.
        ca_certificate: Option<Fingerprint>,
    },
}

/// `spec.tls.certificate` and `spec.tls.key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    Nothing,
    /// A key without a certificate: the router serves its default certificate.
    KeyOnly(Owner),
    /// A certificate, with its key or without.
    Certificate(Fingerprint, Owner),
}

impl Holding {
    /// The pair in the Route, if there is a certificate.
    pub(crate) fn pair(self) -> Option<Fingerprint> {
        let Self::Certificate(pair, _) = self else { return None };
        Some(pair)
    }

    /// Whether it is this pair, injected by us.
    pub(crate) fn is_ours(self, pair: Fingerprint) -> bool {
        self == Self::Certificate(pair, Owner::Ours)
    }

    /// Which certificate a router that terminates TLS serves with it.
    pub(crate) fn state(self) -> State {
        match self {
            Self::Certificate(_, Owner::Ours) => State::Managed,
            Self::Certificate(_, Owner::Theirs) => State::Custom,
            Self::Nothing | Self::KeyOnly(_) => State::Default,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The marker agrees with it.
    Ours,
    /// Anything else. When in doubt it is the user's.
    Theirs,
}

impl RouteFacts {
    /// A long chain is left unread.
    pub fn read(route: &Route) -> Self {
        Self::read_to(route, Depth::Short)
    }

    /// With the longest of chains: not for a task that others wait for.
    pub fn read_whole(route: &Route) -> Self {
        Self::read_to(route, Depth::Whole)
    }

    fn read_to(route: &Route, depth: Depth) -> Self {
        let meta = &route.metadata;
        let annotation = |name| meta.annotations.as_ref().and_then(|all| all.get(name));
        let uid = meta.uid.as_deref().unwrap_or_default();
        let annotated = annotation(INJECTED_ANNOTATION);
        let marker: Option<Marker> = annotated.and_then(|marker| marker.parse().ok());
        let tls = read_tls(route.spec.tls.as_ref(), uid, marker);
        let source = annotation(INJECTED_FROM_ANNOTATION)
            .zip(marker.filter(|_| tls.holds_ours()))
            .and_then(|(text, marker)| Source::read(text, &marker));
        Self {
            at: ObjectRef::of(meta),
            uid: uid.into(),
            version: meta.resource_version.as_deref().unwrap_or_default().into(),
            host: host_digest(route),
            write_access: write_access(route),
            requested: requested_secret(meta.annotations.as_ref()),
            has_marker: annotated.is_some(),
            source,
            certificate: held_certificate(route, &tls, depth),
            tls,
            conditions: PublishedCondition::read(&route.status.certificate),
        }
    }

    /// The Secret that the annotation names.
    pub fn secret(&self) -> Option<ObjectRef> {
        let RequestedSecret::Secret(name) = &self.requested else { return None };
        Some(ObjectRef::new(self.at.namespace.clone(), name.clone()))
    }

    /// The Secret that a decision depends on: none if the Route is not ours to write or the router
    /// terminates no TLS with its pair.
    pub fn deciding_secret(&self) -> Option<ObjectRef> {
        let decides =
            self.write_access == WriteAccess::Free && matches!(self.tls, Tls::Terminated { .. });
        self.secret().filter(|_| decides)
    }

    /// The digest of the `caCertificate` that the router will verify the pair with.
    pub fn ca_certificate(&self) -> Option<Fingerprint> {
        let Tls::Terminated { ca_certificate, .. } = self.tls else { return None };
        ca_certificate
    }

    /// Keeps the earlier reading of the same certificate.
    pub fn keep_reading_of(&mut self, known: &Self) {
        let same = self.holding() == known.holding() && self.host == known.host;
        if same && self.certificate == HeldCertificate::Unread {
            self.certificate.clone_from(&known.certificate);
        }
    }

    /// Whether pair, marker and annotation are the same: what says which pair the Route should hold.
    pub fn has_same_claim(&self, other: &Self) -> bool {
        let claim = |facts: &Self| (facts.holding(), facts.has_marker, facts.source);
        self.uid == other.uid && self.requested == other.requested && claim(self) == claim(other)
    }

    /// The pair that stands in the Route.
    pub fn holding(&self) -> Holding {
        match self.tls {
            Tls::Terminated { holding, .. } | Tls::External(holding) => holding,
            Tls::NotSecured | Tls::Passthrough => Holding::Nothing,
        }
    }

    pub fn description(&self) -> Option<&Description> {
        let HeldCertificate::Read(description) = &self.certificate else { return None };
        Some(description)
    }

    /// Whether a decision about the other would be the same.
    pub fn same_but_for_version(&self, other: &Self) -> bool {
        *self == Self { version: self.version.clone(), ..other.clone() }
    }

    /// Whether all that its users write is the same: a status is written by routers and by us.
    pub fn same_but_for_status(&self, other: &Self) -> bool {
        let conditions = self.conditions.clone();
        self.same_but_for_version(&Self { conditions, ..other.clone() })
    }

    /// Whether the annotation is set to anything but the empty string.
    pub fn is_annotated(&self) -> bool {
        matches!(self.requested, RequestedSecret::Secret(_) | RequestedSecret::Invalid(_))
    }
}

impl Tls {
    /// Which certificate the router serves; none where it terminates no TLS.
    pub(crate) fn state(&self) -> Option<State> {
        match self {
            Self::NotSecured | Self::Passthrough => None,
            Self::External(_) => Some(State::Custom),
            Self::Terminated { holding, .. } => Some(holding.state()),
        }
    }

    fn holds_ours(&self) -> bool {
        self.state() == Some(State::Managed)
    }
}

fn held_certificate(route: &Route, tls: &Tls, depth: Depth) -> HeldCertificate {
    let text = route.spec.tls.as_ref().and_then(|tls| tls.certificate.as_deref());
    let Some(text) = text.filter(|_| tls.holds_ours()) else { return HeldCertificate::None };
    if depth == Depth::Short && !tls::is_short(text) {
        return HeldCertificate::Unread;
    }
    let Some(facts) = tls::describe(text) else { return HeldCertificate::None };
    let host = route.spec.host.as_deref().unwrap_or_default();
    let wildcard = wildcard(route.spec.wildcard_policy.as_deref());
    HeldCertificate::Read(Box::new(Description {
        serial: facts.serial().into(),
        validity: facts.validity,
        warnings: tls::lasting_warnings(&facts, host, wildcard).collect(),
    }))
}

fn host_digest(route: &Route) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&route.spec.host, &route.spec.wildcard_policy).hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn wildcard(policy: Option<&str>) -> Wildcard {
    match policy {
        Some("Subdomain") => Wildcard::Subdomain,
        _ => Wildcard::None,
    }
}

fn write_access(route: &Route) -> WriteAccess {
    let owners = route.metadata.owner_references.as_deref().unwrap_or_default();
    if route.metadata.deletion_timestamp.is_some() {
        WriteAccess::Deleting
    } else if owners.iter().any(is_controlling_ingress) {
        WriteAccess::Ingress
    } else {
        WriteAccess::Free
    }
}

/// Ingress has lived in four API groups and versions, and old Routes still name each of them.
fn is_controlling_ingress(owner: &OwnerReference) -> bool {
    const INGRESS: [&str; 4] = [
        "networking.k8s.io/v1",
        "networking.k8s.io/v1beta1",
        "extensions/v1beta1",
        "extensions.k8s.io/v1beta1",
    ];
    owner.controller == Some(true)
        && owner.kind == "Ingress"
        && INGRESS.contains(&owner.api_version.as_str())
}

fn requested_secret(annotations: Option<&BTreeMap<String, String>>) -> RequestedSecret {
    use RequestedSecret::{Invalid, Misspelt, Nothing, Secret};
    let Some(annotations) = annotations else { return Nothing };
    match annotations.get(SECRET_NAME_ANNOTATION).map(String::as_str) {
        None | Some("") => {
            let misspelt = annotations.keys().find(|key| is_misspelt(key));
            misspelt.map_or(Nothing, |key| Misspelt(key.as_str().into()))
        }
        Some(name) if is_object_name(name) => Secret(name.into()),
        Some(other) => Invalid(state::shortened(other).into()),
    }
}

/// The API server's rule for names: a lower-case RFC 1123 subdomain of at most 253 characters.
fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric)
            && bytes.iter().all(|&c| alphanumeric(c) || c == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn read_tls(tls: Option<&TlsConfig>, uid: &str, marker: Option<Marker>) -> Tls {
    let Some(tls) = tls else { return Tls::NotSecured };
    if tls.termination.as_deref() == Some("passthrough") {
        return Tls::Passthrough;
    }
    if tls.external_certificate.as_ref().is_some_and(|external| !external.name.is_empty()) {
        return Tls::External(holding(tls, uid, marker));
    }
    let ca_certificate = tls.ca_certificate.as_deref().filter(|text| !text.is_empty());
    let ca_certificate = ca_certificate.map(|text| Fingerprint::of(text, ""));
    Tls::Terminated { holding: holding(tls, uid, marker), ca_certificate }
}

fn holding(tls: &TlsConfig, uid: &str, marker: Option<Marker>) -> Holding {
    let certificate = tls.certificate.as_deref().unwrap_or_default();
    let key = tls.key.as_ref().map(|key| key.expose()).unwrap_or_default();
    let owner = |owns: &dyn Fn(&Marker) -> bool| match marker.as_ref().is_some_and(owns) {
        true => Owner::Ours,
        false => Owner::Theirs,
    };
    match (certificate, key) {
        ("", "") => Holding::Nothing,
        ("", key) => Holding::KeyOnly(owner(&|marker| marker.owns_key(uid, key))),
        (certificate, key) => {
            let owner = owner(&|marker| marker.owns_pair(uid, certificate, key));
            Holding::Certificate(Fingerprint::of(certificate, key), owner)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
