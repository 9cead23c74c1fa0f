//! Events (events.k8s.io/v1) that are said once, renewed at most once an hour, and not repeated
//! by a restart.
//!
//! An Event's name is a digest of what it says about which object, so the cluster itself
//! remembers what was said: a new process asks for the Event by its name before it speaks.
//! kube's own `Recorder` names Events by the clock and forgets at every restart.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    k8s::api_error::{self, ApiError},
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
        lock::lock,
        printable,
    },
};

/// The API server's limit for a note, in bytes.
const LONGEST_NOTE: usize = 1024;
/// The API server's limit for the name of who reports, in bytes.
const LONGEST_INSTANCE: usize = 128;
/// So many Events are remembered.
const MOST_REMEMBERED: usize = 20_000;
/// A lasting problem is said again after this long.
const RENEWAL: TimeDelta = TimeDelta::hours(1);

/// What is to be said about an object.
#[derive(Clone, Debug)]
pub struct Message {
    /// The object.
    pub regarding: ObjectReference,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// Why, for machines.
    pub reason: &'static str,
    /// What was done about it.
    pub action: &'static str,
    /// Why, for people; cut to what the API takes.
    pub note: String,
    /// Where the note may be another each time although it is about the same: what it is about.
    pub topic: Option<String>,
}

/// Whether the object itself says already what the Event would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Its status does, so an Event was written at the time.
    InStatus,
    /// It does not.
    NotYet,
}

/// What became of a lasting problem's Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// When to come back to say it again.
    pub again: Duration,
    /// Whether anything was written.
    pub written: bool,
}

/// Writes Events and remembers when.
pub struct Publisher {
    client: Client,
    clock: Clock,
    controller: &'static str,
    instance: String,
    /// When lasting problems were last said. What happened once is not in it: ten thousand renewals
    /// would each be remembered for hours.
    said: Mutex<HashMap<String, DateTime<Utc>>>,
    /// What could not be said, though the object's status may tell otherwise by now.
    unsaid: Mutex<HashMap<String, DateTime<Utc>>>,
}

impl Publisher {
    /// A publisher that speaks as this controller and this instance of it.
    pub fn new(client: Client, clock: Clock, controller: &'static str, instance: String) -> Self {
        Self {
            client,
            clock,
            controller,
            instance,
            said: Mutex::default(),
            unsaid: Mutex::default(),
        }
    }

    /// Something happened: says so once.
    pub async fn happened(&self, message: &Message) -> Result<(), ApiError> {
        match self.create(message).await {
            // The same thing happened within the life of an Event: count it.
            Err(ApiError::AlreadyExists) => match self.find(message).await? {
                Some(event) => self.renew(message, &event).await,
                // It expired just now, so nobody has heard of this time.
                None => self.create(message).await,
            },
            written => written,
        }
    }

    /// Something is wrong and stays wrong: says so unless it was said within the hour.
    pub async fn stands(&self, message: &Message, said: Said) -> Result<Standing, ApiError> {
        let name = event_name(message);
        let said = if self.unsaid().contains_key(&name) { Said::NotYet } else { said };
        let outcome = self.stands_by_name(&name, message, said).await;
        match &outcome {
            Ok(_) => self.unsaid().remove(&name),
            Err(_) => {
                insert_bounded(&mut self.unsaid(), name, self.clock.now());
                None
            }
        };
        outcome
    }

    async fn stands_by_name(
        &self,
        name: &str,
        message: &Message,
        said: Said,
    ) -> Result<Standing, ApiError> {
        let now = self.clock.now();
        let remembered = self.remembered(name);
        if remembered.is_some() && failpoints::has(Bug::NeverRenewsEvents) {
            return Ok(Standing { again: Duration::from_secs(31_536_000), written: false });
        }
        if let Some(last) = remembered.filter(|last| is_recent(*last, now)) {
            return Ok(Standing { again: renewal_due(last, now), written: false });
        }
        let (last, written) = match (self.find(message).await?, said) {
            (Some(event), _) if is_recent(last_said(&event), now) => (last_said(&event), false),
            (Some(event), _) => {
                self.renew(message, &event).await?;
                (now, true)
            }
            (None, Said::InStatus) if remembered.is_none() => (now, false),
            (None, _) => match self.create(message).await {
                // Another replica, or an earlier attempt whose answer was lost, said it.
                Ok(()) | Err(ApiError::AlreadyExists) => (now, true),
                Err(error) => return Err(error),
            },
        };
        self.remember(name.to_owned(), last);
        Ok(Standing { again: renewal_due(last, now), written })
    }

    /// Forgets what was said longer ago than it could matter.
    pub fn tidy(&self) {
        let now = self.clock.now();
        self.said().retain(|_, last| now - *last < RENEWAL * 2);
        self.unsaid().retain(|_, last| now - *last < RENEWAL * 2);
    }

    fn said(&self) -> std::sync::MutexGuard<'_, HashMap<String, DateTime<Utc>>> {
        lock(&self.said)
    }

    fn unsaid(&self) -> std::sync::MutexGuard<'_, HashMap<String, DateTime<Utc>>> {
        lock(&self.unsaid)
    }

    fn remembered(&self, name: &str) -> Option<DateTime<Utc>> {
        self.said().get(name).copied()
    }

    fn remember(&self, name: String, at: DateTime<Utc>) {
        insert_bounded(&mut self.said(), name, at);
    }

    fn api(&self, message: &Message) -> Api<Event> {
        let namespace = message.regarding.namespace.as_deref().unwrap_or("default");
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn find(&self, message: &Message) -> Result<Option<Event>, ApiError> {
        api_error::with_timeout(self.api(message).get_opt(&event_name(message))).await
    }

    async fn create(&self, message: &Message) -> Result<(), ApiError> {
        let now = self.clock.now();
        let event = Event {
            metadata: ObjectMeta { name: Some(event_name(message)), ..Default::default() },
            event_time: Some(micro_time(now)),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(shortened(&self.instance, LONGEST_INSTANCE).to_owned()),
            action: Some(message.action.to_owned()),
            reason: Some(message.reason.to_owned()),
            type_: Some(message.kind.to_owned()),
            note: Some(cut(&message.note)),
            regarding: Some(message.regarding.clone()),
            ..Default::default()
        };
        api_error::with_timeout(self.api(message).create(&PostParams::default(), &event))
            .await
            .map(drop)
    }

    async fn renew(&self, message: &Message, event: &Event) -> Result<(), ApiError> {
        let now = self.clock.now();
        let series = EventSeries {
            count: event.series.as_ref().map_or(1, |series| series.count).saturating_add(1),
            last_observed_time: micro_time(now),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let name = event_name(message);
        let (api, how) = (self.api(message), PatchParams::default());
        api_error::with_timeout(api.patch(&name, &how, &patch)).await.map(drop)
    }
}

/// Clocks of two replicas differ by less.
const SKEW: TimeDelta = TimeDelta::minutes(5);

/// Whether it was said within the hour. A time in the future is that of a clock that was ahead, and
/// would silence a problem until it is reached.
fn is_recent(last: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (-SKEW..RENEWAL).contains(&(now - last))
}

fn renewal_due(last: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (last + RENEWAL - now).to_std().unwrap_or_default()
}

/// Objects whose problems change all the time must not fill the memory. What is forgotten is asked
/// of the API server again, as after a restart.
fn insert_bounded(map: &mut HashMap<String, DateTime<Utc>>, name: String, at: DateTime<Utc>) {
    if map.len() >= MOST_REMEMBERED {
        map.clear();
    }
    map.insert(name, at);
}

fn last_said(event: &Event) -> DateTime<Utc> {
    let last = event.series.as_ref().map(|series| &series.last_observed_time);
    last.or(event.event_time.as_ref())
        .and_then(|time| DateTime::from_timestamp_micros(time.0.as_microsecond()))
        .unwrap_or(DateTime::<Utc>::MIN_UTC)
}

fn micro_time(time: DateTime<Utc>) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.timestamp_micros()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The object's name and a digest of which incarnation of it is told what.
fn event_name(message: &Message) -> String {
    const DIGEST: usize = 16;
    const LONGEST: usize = 253 - 1 - DIGEST;
    let regarding = &message.regarding;
    let mut hasher = Sha256::new();
    for part in [
        regarding.uid.as_deref().unwrap_or_default(),
        message.kind,
        message.reason,
        message.action,
        message.topic.as_deref().unwrap_or(&message.note),
    ] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let digest = hex::encode(hasher.finalize());
    let name = regarding.name.as_deref().unwrap_or("unnamed");
    let name = name.get(..LONGEST).unwrap_or(name).trim_end_matches(['.', '-']);
    format!("{name}.{}", &digest[..DIGEST])
}

fn cut(note: &str) -> String {
    const ELLIPSIS: &str = "…";
    // Where a message quotes a tenant, it has escaped it already; none may forget it.
    let note = printable::lines(note);
    if note.len() <= LONGEST_NOTE {
        return note.into_owned();
    }
    format!("{}{ELLIPSIS}", shortened(&note, LONGEST_NOTE - ELLIPSIS.len()))
}

/// As much of the text as fits, cut between two characters.
fn shortened(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, atomic::AtomicI64, atomic::Ordering},
    };

    use http::{Method, Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::Value;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::runtime::printable::{HOSTILE, is_harmless};

    fn message(name: &str, note: &str) -> Message {
        let regarding = ObjectReference {
            name: Some(name.into()),
            uid: Some("4711".into()),
            ..ObjectReference::default()
        };
        Message {
            regarding,
            kind: "Warning",
            reason: "Because",
            action: "Look",
            note: note.into(),
            topic: None,
        }
    }

    /// An API server that knows nothing but Events, and a clock to turn.
    #[derive(Clone, Default)]
    struct World {
        events: Arc<Mutex<BTreeMap<String, Value>>>,
        writes: Arc<Mutex<Vec<String>>>,
        minutes: Arc<AtomicI64>,
    }

    impl World {
        /// A publisher as a new process has it.
        fn publisher(&self) -> Publisher {
            let (world, minutes) = (self.clone(), self.minutes.clone());
            let service = service_fn(move |request| {
                let world = world.clone();
                async move { Ok::<_, BoxError>(world.answer(request).await) }
            });
            let noon = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
            let clock =
                Clock::from_fn(move || noon + TimeDelta::minutes(minutes.load(Ordering::SeqCst)));
            let client = Client::new(service, "web");
            Publisher::new(client, clock, "trustplane.dev/test", "a".into())
        }

        async fn answer(&self, request: Request<Body>) -> Response<Body> {
            let method = request.method().clone();
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut events = self.events.lock().unwrap();
            if method != Method::GET {
                self.writes.lock().unwrap().push(method.to_string());
            }
            let event = match method {
                Method::POST => {
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    Some(events.entry(name).or_insert(body).clone())
                }
                Method::PATCH => events.get_mut(&name).map(|event| {
                    event["series"] = body["series"].clone();
                    event.clone()
                }),
                _ => events.get(&name).cloned(),
            };
            let missing =
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
            let code = if event.is_some() { 200 } else { 404 };
            let text = event.unwrap_or(missing).to_string();
            Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap()
        }

        fn pass(&self, minutes: i64) {
            self.minutes.fetch_add(minutes, Ordering::SeqCst);
        }

        fn writes(&self) -> Vec<String> {
            std::mem::take(&mut *self.writes.lock().unwrap())
        }

        fn expire_events(&self) {
            self.events.lock().unwrap().clear();
        }
    }

    #[tokio::test]
    async fn a_lasting_problem_is_said_once_and_renewed_after_an_hour() {
        let world = World::default();
        let publisher = world.publisher();
        let problem = message("shop", "no key");

        let again = publisher.stands(&problem, Said::NotYet).await.unwrap();
        assert_eq!((world.writes(), again.again.as_secs()), (vec!["POST".to_owned()], 3600));
        for _ in 0..59 {
            world.pass(1);
            publisher.stands(&problem, Said::InStatus).await.unwrap();
        }
        assert!(world.writes().is_empty(), "not within the hour");
        world.pass(1);
        publisher.stands(&problem, Said::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["PATCH"]);
        let events = world.events.lock().unwrap();
        assert_eq!(events.values().next().unwrap()["series"]["count"], 2);
    }

    #[tokio::test]
    async fn a_restart_repeats_nothing_even_where_no_status_is_kept() {
        let world = World::default();
        let problem = message("shop", "no key");
        world.publisher().stands(&problem, Said::NotYet).await.unwrap();
        world.writes();
        world.pass(20);

        let again = world.publisher().stands(&problem, Said::NotYet).await.unwrap();

        assert!(world.writes().is_empty());
        assert_eq!(again.again.as_secs(), 40 * 60, "the hour counts from when it was really said");
    }

    #[tokio::test]
    async fn what_the_status_says_is_not_said_again_by_a_restart_after_the_event_has_expired() {
        let world = World::default();
        let problem = message("shop", "no key");
        let publisher = world.publisher();

        publisher.stands(&problem, Said::InStatus).await.unwrap();
        assert!(world.writes().is_empty());
        world.pass(60);
        publisher.stands(&problem, Said::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["POST"], "but it stays visible");
    }

    #[tokio::test]
    async fn a_time_in_the_future_counts_as_not_said() {
        let world = World::default();
        let problem = message("shop", "no key");
        world.pass(24 * 60);
        let publisher = world.publisher();
        publisher.stands(&problem, Said::NotYet).await.unwrap();
        world.writes();
        world.pass(-24 * 60 + 1);

        for publisher in [publisher, world.publisher()] {
            let again = publisher.stands(&problem, Said::NotYet).await.unwrap();
            assert!(again.again.as_secs() <= 3600, "{again:?}");
        }
        assert_eq!(world.writes(), ["PATCH"], "said once, by the clock as it is now");
    }

    #[tokio::test]
    async fn an_event_that_the_api_server_let_expire_is_written_anew_when_due() {
        let world = World::default();
        let publisher = world.publisher();
        let problem = message("shop", "no key");
        publisher.stands(&problem, Said::NotYet).await.unwrap();
        world.expire_events();
        world.pass(61);
        publisher.stands(&problem, Said::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["POST", "POST"]);
    }

    #[test]
    fn the_same_words_about_the_same_object_have_the_same_name_and_others_another() {
        let name = event_name(&message("shop", "no key"));
        assert_eq!(name, event_name(&message("shop", "no key")));
        assert_ne!(name, event_name(&message("shop", "no certificate")));
        assert!(name.starts_with("shop."), "{name}");
    }

    #[test]
    fn the_longest_name_of_an_object_still_gives_a_valid_name() {
        let name = event_name(&message(&format!("{}.{}", "a".repeat(235), "b".repeat(17)), ""));
        assert!(name.len() <= 253, "{}", name.len());
        assert!(!name.contains(".."), "{name}");
    }

    #[test]
    fn a_note_is_cut_at_the_limit_of_the_api_between_two_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"x".repeat(1024)).len(), 1024);
        let long = cut(&"ü".repeat(1024));
        assert!(long.len() <= 1024 && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn whatever_a_message_quotes_a_note_is_harmless() {
        let note = cut(&format!("{HOSTILE}{}", "\u{202e}".repeat(1024)));
        assert!(is_harmless(&note) && note.len() <= 1024, "{note:?}");
    }

    #[tokio::test]
    async fn what_happens_again_while_the_event_of_the_last_time_expires_is_said() {
        let world = World::default();
        let (served, posts) = (world.clone(), Arc::new(AtomicI64::new(0)));
        let service = service_fn(move |request: Request<Body>| {
            let (served, posts) = (served.clone(), posts.clone());
            async move {
                let is_first =
                    request.method() == Method::POST && posts.fetch_add(1, Ordering::SeqCst) == 0;
                if !is_first {
                    return Ok::<_, BoxError>(served.answer(request).await);
                }
                let status = json!({
                    "kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists",
                });
                let body = Body::from(status.to_string().into_bytes());
                Ok(Response::builder().status(409).body(body)?)
            }
        });
        let client = Client::new(service, "web");
        let publisher = Publisher::new(client, Clock::system(), "trustplane.dev/test", "a".into());
        publisher.happened(&message("shop", "renewed")).await.unwrap();
        assert_eq!(world.writes(), ["POST"], "nobody was told");
    }

    #[tokio::test]
    async fn what_could_not_be_said_about_objects_long_gone_is_forgotten_too() {
        let refuses = service_fn(|_: Request<Body>| async {
            let status =
                json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"});
            let body = Body::from(status.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(403).body(body).unwrap())
        });
        let minutes = Arc::new(AtomicI64::new(0));
        let now = minutes.clone();
        let noon = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let clock = Clock::from_fn(move || noon + TimeDelta::minutes(now.load(Ordering::SeqCst)));
        let client = Client::new(refuses, "web");
        let publisher = Publisher::new(client, clock, "trustplane.dev/test", "a".into());
        for number in 0..1_000 {
            let problem = message(&format!("preview-{number}"), "no key");
            publisher.stands(&problem, Said::NotYet).await.unwrap_err();
        }
        minutes.store(60 * 24, Ordering::SeqCst);
        publisher.tidy();
        assert_eq!(publisher.unsaid().len(), 0, "a day later they are all remembered");
    }

    /// Review: docs/inject.md: "A restart repeats nothing that was said within the hour."
    #[tokio::test]
    async fn a_replica_whose_clock_is_a_little_behind_repeats_nothing() {
        let world = World::default();
        world.minutes.store(1, Ordering::SeqCst);
        world.publisher().stands(&message("shop", "it is wrong"), Said::NotYet).await.unwrap();
        let before = world.writes.lock().unwrap().len();
        // The next leader's clock is behind; here by a minute, a millisecond does it too.
        world.minutes.store(0, Ordering::SeqCst);
        world.publisher().stands(&message("shop", "it is wrong"), Said::InStatus).await.unwrap();
        assert_eq!(world.writes.lock().unwrap().len(), before, "said a moment ago");
    }
}
