//! Random Routes, Secrets, policies and times. A case holds choices, never key material, so
//! proptest can shrink and print it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use proptest::{option, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use trustplane::inject::decide::{
    plan::{OnInvalid, Policy, StatusScope, plan},
    secret_state::SecretState,
};
use trustplane::tls::Pair;

use crate::pool::{POOL, Texts};
use testkit::route_table::{ASKS, MARKER, Model, Requested, SOURCE, marker, source};

/// uid and resourceVersion of the Secret.
pub const SECRET: (&str, &str) = ("s-1", "7");
const PAIRS: usize = 10;
const INVALID: usize = 7;

#[derive(Clone, Debug)]
pub struct Case {
    pub owner: Owner,
    pub uid: &'static str,
    pub asks: Option<Name>,
    pub tls: Tls,
    pub holds: Holds,
    pub marker: MarkerIs,
    pub source: SourceIs,
    pub secret: Seen,
    pub status: Status,
    pub policy: Policy,
    pub now: DateTime<Utc>,
    pub host: (Option<&'static str>, Option<&'static str>),
    pub beside: Beside,
}

#[derive(Clone, Debug)]
pub enum Owner {
    Nobody,
    Deleted,
    Ref { api_version: &'static str, kind: &'static str, controller: Option<bool> },
}

/// The annotation's value: a possible Secret name, or an impossible one.
#[derive(Clone, Debug)]
pub enum Name {
    Good(String),
    Empty,
    Bad(String),
}

#[derive(Clone, Copy, Debug)]
pub enum Tls {
    Absent,
    Passthrough,
    External,
    Edge,
    Reencrypt,
}

#[derive(Clone, Copy, Debug)]
pub enum Holds {
    Nothing,
    EmptyTexts,
    AsTheSecret,
    Pair(usize),
    Mixed(usize, usize),
    CertificateOnly(usize),
    KeyOnly(usize),
    KeyBesideEmptyText(usize),
    Garbage,
}

#[derive(Clone, Copy, Debug)]
pub enum MarkerIs {
    Absent,
    Agrees,
    /// Agrees, but was written for the Route that this one was copied from.
    OfTheOriginal,
    OfPair(usize),
    /// The half for the key agrees, the half for the pair does not.
    KeyHalf,
    /// The same, and not even hexadecimal digits.
    Forged,
    Text(&'static str),
}

/// The annotation with the source of the pair. No decision may depend on it.
#[derive(Clone, Copy, Debug)]
pub enum SourceIs {
    Absent,
    Agrees,
    Text(&'static str),
}

#[derive(Clone, Debug)]
pub enum Seen {
    Usable(usize),
    /// Missing for this many milliseconds.
    Missing(i64),
    WrongType(&'static str),
    Invalid(usize),
    CaMismatch,
}

#[derive(Clone, Debug)]
pub enum Status {
    Absent,
    Empty,
    /// The plan's own condition, written this many seconds ago.
    AlreadySaid(u32),
    Conditions(Vec<(&'static str, &'static str, Option<u32>)>),
}

/// Fields that the controller must not touch.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    ca_certificate: Option<bool>,
    destination_ca: bool,
    insecure_policy: bool,
    other_annotation: bool,
    unknown: bool,
    ingress: bool,
}

fn owner() -> impl Strategy<Value = Owner> {
    let api_version = select(vec![
        "networking.k8s.io/v1",
        "networking.k8s.io/v1beta1",
        "extensions/v1beta1",
        "extensions.k8s.io/v1beta1",
        "networking.example.com/v1",
        "apps/v1",
    ]);
    let kind = prop_oneof![4 => Just("Ingress"), 1 => Just("Gateway")];
    let reference = (api_version, kind, option::of(any::<bool>()))
        .prop_map(|(api_version, kind, controller)| Owner::Ref { api_version, kind, controller });
    prop_oneof![20 => Just(Owner::Nobody), 1 => Just(Owner::Deleted), 3 => reference]
}

fn name() -> impl Strategy<Value = Name> {
    let good = prop_oneof![
        4 => Just("shop-tls".to_owned()),
        1 => Just("a.b.c".to_owned()),
        1 => Just("9".to_owned()),
        1 => Just("n".repeat(253)),
        1 => "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?",
    ];
    let bad = prop_oneof![
        Just(" ".to_owned()),
        Just("shop tls".to_owned()),
        Just("../x".to_owned()),
        Just("web/shop-tls".to_owned()),
        Just("n".repeat(300)),
        Just("n".repeat(254)),
        Just("Shop".to_owned()),
        Just("-shop".to_owned()),
        Just("shop.".to_owned()),
        Just("a..b".to_owned()),
        Just("läden".repeat(50)),
        "[a-z]{0,80}[A-Z _/\\\\\\n\u{0}\u{202e}€🔑]\\PC{0,80}",
    ];
    prop_oneof![6 => good.prop_map(Name::Good), 2 => bad.prop_map(Name::Bad), 1 => Just(Name::Empty)]
}

fn tls() -> impl Strategy<Value = Tls> {
    prop_oneof![
        1 => Just(Tls::Absent),
        1 => Just(Tls::Passthrough),
        1 => Just(Tls::External),
        9 => Just(Tls::Edge),
        5 => Just(Tls::Reencrypt),
    ]
}

fn holds() -> impl Strategy<Value = Holds> {
    prop_oneof![
        2 => Just(Holds::Nothing),
        1 => Just(Holds::EmptyTexts),
        6 => Just(Holds::AsTheSecret),
        4 => (0..PAIRS).prop_map(Holds::Pair),
        1 => (0..PAIRS, 0..PAIRS).prop_map(|(one, other)| Holds::Mixed(one, other)),
        1 => (0..PAIRS).prop_map(Holds::CertificateOnly),
        1 => (0..PAIRS).prop_map(Holds::KeyOnly),
        1 => (0..PAIRS).prop_map(Holds::KeyBesideEmptyText),
        1 => Just(Holds::Garbage),
    ]
}

fn marker_is() -> impl Strategy<Value = MarkerIs> {
    prop_oneof![
        4 => Just(MarkerIs::Absent),
        6 => Just(MarkerIs::Agrees),
        1 => Just(MarkerIs::OfTheOriginal),
        1 => (0..PAIRS).prop_map(MarkerIs::OfPair),
        1 => Just(MarkerIs::KeyHalf),
        1 => Just(MarkerIs::Forged),
        1 => select(vec!["", "v1", "v1::", "v2:00:00", "läden"]).prop_map(MarkerIs::Text),
    ]
}

fn source_is() -> impl Strategy<Value = SourceIs> {
    let text = select(vec!["", "v1", "v1:s-1:7:1:0123456789abcdef", "läden"]);
    prop_oneof![
        2 => Just(SourceIs::Absent),
        2 => Just(SourceIs::Agrees),
        1 => text.prop_map(SourceIs::Text),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        6 => (0..PAIRS).prop_map(Seen::Usable),
        1 => Just(Seen::Missing(0)),
        2 => (0..20_000i64).prop_map(Seen::Missing),
        1 => any::<u32>().prop_map(|ago| Seen::Missing(i64::from(ago) * 1_000)),
        1 => select(vec!["Opaque", "", "kubernetes.io/dockerconfigjson", "\"\n€"]).prop_map(Seen::WrongType),
        6 => (0..INVALID).prop_map(Seen::Invalid),
        1 => Just(Seen::CaMismatch),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    let condition = (
        select(vec!["Default", "Custom", "Managed"]),
        select(vec!["True", "False", "Unknown"]),
        option::weighted(0.8, any::<u32>()),
    );
    prop_oneof![
        2 => Just(Status::Absent),
        1 => Just(Status::Empty),
        3 => any::<u32>().prop_map(Status::AlreadySaid),
        3 => proptest::collection::vec(condition, 1..4).prop_map(Status::Conditions),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let grace = prop_oneof![
        1 => Just(TimeDelta::zero()),
        4 => Just(TimeDelta::seconds(5)),
        2 => (0..20_000i64).prop_map(TimeDelta::milliseconds),
        1 => Just(TimeDelta::MAX),
    ];
    let on_invalid = select(vec![OnInvalid::Default, OnInvalid::Keep]);
    let status = prop_oneof![
        3 => Just(StatusScope::All),
        1 => Just(StatusScope::Annotated),
        1 => Just(StatusScope::Off),
    ];
    (on_invalid, grace, status).prop_map(|(on_invalid, missing_grace, status)| Policy {
        on_invalid,
        missing_grace,
        status,
    })
}

/// Mostly while the pool's certificates are valid, sometimes centuries before or after.
fn time() -> impl Strategy<Value = DateTime<Utc>> {
    let seconds = prop_oneof![
        9 => 1_577_836_800i64..2_400_000_000,
        1 => -30_000_000_000i64..253_402_300_799,
    ];
    (seconds, 0..1_000_000_000u32)
        .prop_map(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos).unwrap())
}

fn beside() -> impl Strategy<Value = Beside> {
    (option::weighted(0.2, any::<bool>()), any::<[bool; 5]>()).prop_map(
        |(ca_certificate, there)| {
            let [destination_ca, insecure_policy, other_annotation, unknown, ingress] = there;
            Beside {
                ca_certificate,
                destination_ca,
                insecure_policy,
                other_annotation,
                unknown,
                ingress,
            }
        },
    )
}

pub fn cases() -> impl Strategy<Value = Case> {
    let host = select(vec![
        None,
        Some(""),
        Some("shop1.example.com"),
        Some("www.apps.example.com"),
        Some("other.test"),
    ]);
    let wildcard = select(vec![None, Some("None"), Some("Subdomain")]);
    let route = (
        owner(),
        select(vec!["4711", "4712", ""]),
        option::weighted(0.7, name()),
        tls(),
        holds(),
        (marker_is(), source_is()),
    );
    let around = (seen(), status(), policy(), time(), (host, wildcard), beside());
    (route, around).prop_map(
        |(
            (owner, uid, asks, tls, holds, (marker, source)),
            (secret, status, policy, now, host, beside),
        )| {
            Case {
                owner,
                uid,
                asks,
                tls,
                holds,
                marker,
                source,
                secret,
                status,
                policy,
                now,
                host,
                beside,
            }
        },
    )
}

impl Case {
    /// The pair in the Secret, if the router would serve it.
    pub fn pair(&self) -> Option<&'static Pair> {
        match self.secret {
            Seen::Usable(number) => Some(&POOL.pairs[number]),
            _ => None,
        }
    }

    /// The texts in the Secret, if the router would refuse them.
    fn refused(&self) -> Option<&'static Texts> {
        match self.secret {
            Seen::Invalid(number) => POOL.invalid[number].texts.as_ref(),
            _ => None,
        }
    }

    pub fn seen(&self) -> SecretState {
        match &self.secret {
            Seen::Usable(number) => SecretState::Usable(POOL.pairs[*number].fingerprint()),
            Seen::Missing(ago) => {
                SecretState::Missing { since: self.now - TimeDelta::milliseconds(*ago) }
            }
            Seen::WrongType(found) => SecretState::WrongType((*found).into()),
            Seen::Invalid(number) => POOL.invalid[*number].state(),
            Seen::CaMismatch => SecretState::CaMismatch(POOL.ca_mismatch.clone().into()),
        }
    }

    pub fn requested<'a>(&self, seen: &'a SecretState) -> Requested<'a> {
        let named = matches!(self.asks, Some(Name::Good(_)));
        Requested { seen, pair: self.pair(), refused: self.refused().map(Texts::both), named }
    }

    fn texts(&self) -> (Option<String>, Option<String>) {
        let whole = |it: Texts| (Some(it.certificate), Some(it.key));
        match self.holds {
            Holds::Nothing => (None, None),
            Holds::EmptyTexts => (Some(String::new()), Some(String::new())),
            Holds::AsTheSecret => match self.secret {
                Seen::Usable(number) => whole(POOL.texts(number)),
                Seen::Invalid(_) if self.refused().is_some() => {
                    self.refused().map_or((None, None), |texts| whole(texts.clone()))
                }
                _ => whole(POOL.texts(0)),
            },
            Holds::Pair(number) => whole(POOL.texts(number)),
            Holds::Mixed(one, other) => {
                (Some(POOL.texts(one).certificate), Some(POOL.texts(other).key))
            }
            Holds::CertificateOnly(number) => (Some(POOL.texts(number).certificate), None),
            Holds::KeyOnly(number) => (None, Some(POOL.texts(number).key)),
            Holds::KeyBesideEmptyText(number) => {
                (Some(String::new()), Some(POOL.texts(number).key))
            }
            Holds::Garbage => (Some("läden\r\n".into()), Some("\u{0}".into())),
        }
    }

    fn marker(&self, certificate: &str, key: &str) -> Option<String> {
        match self.marker {
            MarkerIs::Absent => None,
            MarkerIs::Agrees => Some(marker(self.uid, certificate, key)),
            MarkerIs::OfTheOriginal => Some(marker("4700", certificate, key)),
            MarkerIs::OfPair(number) => {
                let texts = POOL.texts(number);
                Some(marker(self.uid, &texts.certificate, &texts.key))
            }
            MarkerIs::KeyHalf => Some(marker(self.uid, "another", key)),
            MarkerIs::Forged => {
                Some(format!("v1:{}{}", "zz".repeat(32), &marker(self.uid, "", key)[67..]))
            }
            MarkerIs::Text(text) => Some(text.to_owned()),
        }
    }

    /// The Route as the API server would store it.
    pub fn model(&self) -> Model {
        let (certificate, key) = self.texts();
        let mut metadata = json!({
            "name": "shop", "namespace": "web", "uid": self.uid, "resourceVersion": "41",
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 7, "labels": { "app": "shop" },
        });
        let mut annotations = Map::new();
        let marker = self
            .marker(certificate.as_deref().unwrap_or_default(), key.as_deref().unwrap_or_default());
        let source = match (self.source, &marker) {
            (SourceIs::Agrees, Some(marker)) if marker.len() > 19 && marker.is_ascii() => {
                Some(source(SECRET.0, SECRET.1, marker))
            }
            (SourceIs::Text(text), _) => Some(text.to_owned()),
            _ => None,
        };
        annotations.extend(marker.map(|marker| (MARKER.to_owned(), json!(marker))));
        annotations.extend(source.map(|source| (SOURCE.to_owned(), json!(source))));
        annotations.extend(self.asks.as_ref().map(|asks| (ASKS.to_owned(), json!(asks.text()))));
        if self.beside.other_annotation {
            annotations.insert("haproxy.router.openshift.io/timeout".into(), json!("5s"));
        }
        if !annotations.is_empty() {
            metadata["annotations"] = annotations.into();
        }
        self.own(&mut metadata);
        let mut route = json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": metadata,
            "spec": { "to": { "kind": "Service", "name": "shop", "weight": 100 }, "port": { "targetPort": 8443 } },
        });
        if let Some(tls) = self.tls(certificate, key) {
            route["spec"]["tls"] = tls;
        }
        for (name, value) in [("host", self.host.0), ("wildcardPolicy", self.host.1)] {
            if let Some(value) = value {
                route["spec"][name] = json!(value);
            }
        }
        self.report(&mut route);
        Model(route)
    }

    fn own(&self, metadata: &mut Value) {
        match &self.owner {
            Owner::Nobody => {}
            Owner::Deleted => {
                metadata["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
                metadata["finalizers"] = json!(["example.com/wait"]);
            }
            Owner::Ref { api_version, kind, controller } => {
                let mut owner =
                    json!({ "apiVersion": api_version, "kind": kind, "name": "shop", "uid": "1" });
                if let Some(controller) = controller {
                    owner["controller"] = json!(controller);
                }
                metadata["ownerReferences"] = json!([owner]);
            }
        }
    }

    fn tls(&self, certificate: Option<String>, key: Option<String>) -> Option<Value> {
        let mut tls = match self.tls {
            Tls::Absent => return None,
            Tls::Passthrough => json!({ "termination": "passthrough" }),
            Tls::External => {
                json!({ "termination": "edge", "externalCertificate": { "name": "own-tls" } })
            }
            Tls::Edge => json!({ "termination": "edge" }),
            Tls::Reencrypt => json!({ "termination": "reencrypt" }),
        };
        let texts = [("certificate", certificate), ("key", key)];
        for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            tls[name] = json!(text);
        }
        match self.beside.ca_certificate {
            Some(true) => tls["caCertificate"] = json!(POOL.authority),
            Some(false) => tls["caCertificate"] = json!(""),
            None => {}
        }
        if self.beside.destination_ca {
            tls["destinationCACertificate"] = json!(POOL.authority);
        }
        if self.beside.insecure_policy {
            tls["insecureEdgeTerminationPolicy"] = json!("Redirect");
        }
        if self.beside.unknown {
            tls["fromTheFuture"] = json!({ "deep": [1, null, { "x": "y" }] });
        }
        Some(tls)
    }

    fn report(&self, route: &mut Value) {
        if self.beside.ingress {
            route["status"]["ingress"] = json!([{
                "routerName": "default", "host": "shop.example.com",
                "conditions": [{ "type": "Admitted", "status": "True" }],
            }]);
        }
        let at = |ago: u32| {
            let time = self.now.checked_sub_signed(TimeDelta::seconds(ago.into()));
            time.unwrap_or(self.now).to_rfc3339_opts(SecondsFormat::Secs, true)
        };
        match &self.status {
            Status::Absent => {}
            Status::Empty => route["status"]["certificate"] = json!([]),
            Status::AlreadySaid(ago) => {
                let policy = Policy { status: StatusScope::All, ..self.policy.clone() };
                let facts = Model(route.clone()).facts();
                let said = plan(&facts, &self.seen(), self.now, &policy).conditions;
                let mut said = json!(said.unwrap_or_default());
                for condition in said.as_array_mut().into_iter().flatten() {
                    condition["lastTransitionTime"] = json!(at(*ago));
                }
                route["status"]["certificate"] = said;
            }
            Status::Conditions(conditions) => {
                let written = conditions.iter().map(|(kind, status, ago)| {
                    let mut condition = json!({
                        "type": kind, "status": status, "reason": "SecretInjected", "message": "as it was",
                    });
                    if let Some(ago) = ago {
                        condition["lastTransitionTime"] = json!(at(*ago));
                    }
                    condition
                });
                route["status"]["certificate"] = written.collect();
            }
        }
    }
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Good(text) | Self::Bad(text) => text,
            Self::Empty => "",
        }
    }
}
