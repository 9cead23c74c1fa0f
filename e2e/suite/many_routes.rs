//! Many Routes, each with a Secret of its own, that are renewed together.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::Value;
use sha2::{Digest, Sha256};
use testkit::{Pair, authority::Authority, certificate_condition};
use trustplane::inject::act::capability::StatusField;
use trustplane::k8s::api_error;

use super::client::{fingerprint_of, serial_of};
use super::namespace::CaseNamespace;
use super::observation::{Observation, Shown, is_admitted};
use super::runner::Scene;

/// How many writes of users are under way at a time.
const WRITERS: usize = 8;
/// How many are visited at a time.
const VISITORS: usize = 8;
/// Longest that a user tries to get a write through.
const WRITE_WITHIN: Duration = Duration::from_secs(60);
/// Longest until everybody serves what it should.
const SERVED_WITHIN: Duration = Duration::from_secs(240);
/// Events come after what they tell of.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);

const ISSUER: &str = "e2e root";

pub struct ManyRoutes {
    authority: Authority,
    places: Vec<CaseNamespace>,
    members: Vec<Member>,
    /// Digest of the key that belongs to each certificate that was ever issued here.
    keys: HashMap<String, [u8; 32]>,
}

struct Member {
    /// Index of its place.
    place: usize,
    name: String,
    pair: Pair,
}

/// Routes, and the notes of their Events, by place and name.
type Reports = BTreeMap<(usize, String), (Value, Vec<String>)>;

/// Why a Route is not as it should be.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// All is right, but no Event says so.
    NotReported,
    Other(String),
}

impl Wrong {
    fn other(why: impl Into<String>) -> Self {
        Self::Other(why.into())
    }
}

impl ManyRoutes {
    /// Makes so many namespaces, so many Routes and Secrets in each, and waits until all are served.
    pub async fn start(scene: &Scene, namespaces: usize, each: usize) -> Self {
        let authority = Authority::new(ISSUER);
        let (mut places, mut members) = (Vec::new(), Vec::new());
        for index in 0..namespaces {
            let place = scene.place().await;
            members.extend((0..each).map(|number| {
                let name = format!("shop-{number}");
                let pair = authority.issue(&place.host(&name));
                Member { place: index, name, pair }
            }));
            places.push(place);
        }
        let mut routes = Self { authority, places, members, keys: HashMap::new() };
        routes.know_keys();
        let all = 0..routes.len();
        routes
            .each(all, async |place, member| {
                place.tls(&member.secret(), &member.pair).await;
                place.route(&place.edge(&member.name).annotated(&member.secret())).await;
            })
            .await;
        routes.is_served("CertificateInjected").await;
        routes
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// PEM of the root that its visitors trust.
    pub fn root(&self) -> String {
        self.authority.root()
    }

    pub fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|member| self.places[member.place].host(&member.name)).collect()
    }

    /// Makes new pairs for some, and puts them into their Secrets. A user whose write fails tries again.
    pub async fn renew(&mut self, some: Range<usize>) {
        for member in &mut self.members[some.clone()] {
            member.pair = self.authority.issue(&self.places[member.place].host(&member.name));
        }
        self.know_keys();
        self.each(some, async |place, member| {
            let start = Instant::now();
            while let Err(error) = place.try_renew(&member.secret(), &member.pair).await {
                assert!(start.elapsed() < WRITE_WITHIN, "{}: {error}", member.name);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    }

    async fn each(&self, some: Range<usize>, act: impl AsyncFn(&CaseNamespace, &Member)) {
        let acts = self.members[some].iter().map(|member| act(&self.places[member.place], member));
        stream::iter(acts).buffer_unordered(WRITERS).collect::<Vec<()>>().await;
    }

    /// Waits until every host serves its newest pair, and every Route is admitted, is `Managed`, and
    /// has an Event of this reason about that very pair.
    pub async fn is_served(&self, reason: &str) {
        let (_, untold) = self.is_served_but_not_reported(reason).await;
        assert_eq!(untold, 0, "Routes without an Event about their newest pair");
    }

    /// As [`ManyRoutes::is_served`], and returns since when, and how many have no such Event after a while.
    pub async fn is_served_but_not_reported(&self, reason: &str) -> (Instant, usize) {
        let start = Instant::now();
        let mut waiting: Vec<&Member> = self.members.iter().collect();
        let mut rest_since = None;
        let end = loop {
            let told = self.reports(reason).await;
            let looks = waiting.iter().map(|member| self.is_right(member, &told));
            let looks: Vec<Result<(), Wrong>> =
                stream::iter(looks).buffered(VISITORS).collect().await;
            let wrong: Vec<(&Member, Wrong)> = waiting
                .into_iter()
                .zip(looks)
                .filter_map(|(member, look)| Some((member, look.err()?)))
                .collect();
            let first = wrong.iter().find(|(_, wrong)| *wrong != Wrong::NotReported);
            if first.is_none() {
                let since: Instant = *rest_since.get_or_insert_with(Instant::now);
                if wrong.is_empty() || since.elapsed() > REPORTED_WITHIN {
                    break (since, wrong.len());
                }
            }
            assert!(
                start.elapsed() < SERVED_WITHIN,
                "{} of {} Routes are not as they should be, such as {:?}",
                wrong.len(),
                self.len(),
                first.map(|(member, wrong)| (&member.name, wrong))
            );
            waiting = wrong.into_iter().map(|(member, _)| member).collect();
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        self.note_sight(reason);
        end
    }

    /// All Routes, with their Events of this reason.
    async fn reports(&self, reason: &str) -> Reports {
        let mut told = BTreeMap::new();
        for (index, place) in self.places.iter().enumerate() {
            let routes = place.routes();
            let routes = api_error::with_timeout(routes.list(&ListParams::default())).await;
            for route in routes.map(|list| list.items).unwrap_or_default() {
                let name = route.metadata.name.clone().unwrap_or_default();
                let route = serde_json::to_value(route).expect("a Route is JSON");
                told.insert((index, name), (route, Vec::new()));
            }
            for event in place.events().await {
                let about = event.regarding.and_then(|about| about.name).unwrap_or_default();
                if event.reason.as_deref() == Some(reason)
                    && let Some((_, notes)) = told.get_mut(&(index, about))
                {
                    notes.push(event.note.unwrap_or_default());
                }
            }
        }
        told
    }

    async fn is_right(&self, member: &Member, told: &Reports) -> Result<(), Wrong> {
        let place = &self.places[member.place];
        let found = told.get(&(member.place, member.name.clone()));
        let (route, notes) = found.ok_or_else(|| Wrong::other("the Route is not listed"))?;
        let managed = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
        if place.world.condition == StatusField::Kept && certificate_condition(route) != managed {
            return Err(Wrong::other(format!("condition {:?}", certificate_condition(route))));
        }
        if !is_admitted(route) {
            return Err(Wrong::other("not admitted"));
        }
        let host = place.host(&member.name);
        let served = place.world.visit(&host).await.map_err(Wrong::Other)?;
        if served.fingerprint() != fingerprint_of(&member.pair.certificate) {
            return Err(Wrong::other(format!("served {} {}", served.issuer(), served.serial())));
        }
        if served.answer.is_some_and(|status| status != 200) {
            return Err(Wrong::other(format!("answered HTTP {:?}", served.answer)));
        }
        served.judged_with(&member.pair.authority, &host).map_err(Wrong::Other)?;
        let serial = serial_of(&member.pair.certificate);
        if notes.iter().any(|note| note.contains(&serial)) {
            Ok(())
        } else {
            Err(Wrong::NotReported)
        }
    }

    fn note_sight(&self, reason: &str) {
        let kept = self.places[0].world.condition == StatusField::Kept;
        self.places[0].sights.add(Observation {
            served: Shown::Several { issuer: ISSUER.to_owned(), serials: self.len() },
            condition: if kept { "Managed SecretInjected" } else { "not kept" }.to_owned(),
            event: format!("Normal {reason}"),
            times: 1,
        });
    }

    fn know_keys(&mut self) {
        for Member { pair, .. } in &self.members {
            self.keys.insert(pair.certificate.clone(), digest(&pair.key));
        }
    }

    /// By the audit log: no write of ours ever put a certificate with another's key into one of these
    /// Routes, or took a pair out. Returns how many pairs were sent.
    pub fn was_never_mismatched(&self) -> usize {
        let mut sent = 0;
        for place in &self.places {
            let writes = place.world.stack().audit().writes_by_account(&place.name);
            // Refused and unanswered ones too: they were meant.
            for write in writes.iter() {
                let Some(body) = &write.request_object else { continue };
                let Some(tls) = body.pointer("/spec/tls") else { continue };
                let text = |field: &str| tls[field].as_str();
                let (Some(certificate), Some(key)) = (text("certificate"), text("key")) else {
                    panic!("{} of {} took a pair out of its Route", write.object(), place.name);
                };
                let belongs = self.keys.get(certificate) == Some(&digest(key));
                assert!(belongs, "{} of {} got another's key", write.object(), place.name);
                sent += 1;
            }
        }
        sent
    }
}

impl Member {
    fn secret(&self) -> String {
        format!("{}-tls", self.name)
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}
