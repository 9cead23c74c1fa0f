//! Publishes Events (events.k8s.io/v1) once, renews them at most once an hour, and repeats none
//! after a restart.
//!
//! An Event's name is a digest of its object and message, so the cluster itself remembers what was
//! published: a new process looks for the Event by its name before it writes one. kube's own
//! `Recorder` names Events by the clock and forgets at every restart.

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
/// The API server's limit for `reportingInstance`, in bytes.
const LONGEST_INSTANCE: usize = 128;
/// Entries of each of the two maps of a `Publisher`.
const MOST_REMEMBERED: usize = 20_000;
/// The Event of an ongoing problem is renewed after this long.
const RENEWAL: TimeDelta = TimeDelta::hours(1);

#[derive(Clone, Debug)]
pub struct Message {
    pub regarding: ObjectReference,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    pub reason: &'static str,
    /// The operation that the Event is about.
    pub action: &'static str,
    /// Cut to the length that the API accepts.
    pub note: String,
    /// Deduplication key, if the text of the note varies while the problem stays the same.
    pub topic: Option<String>,
}

/// Whether the object's status reports the problem already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It does, so an Event was published when the status was written.
    InStatus,
    NotYet,
}

/// The state of an ongoing problem's Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub renew_in: Duration,
    /// Whether this call wrote anything.
    pub written: bool,
}

/// Writes Events and remembers when.
pub struct Publisher {
    client: Client,
    clock: Clock,
    controller: &'static str,
    instance: String,
    /// When the Events of ongoing problems were last published, by name. Single Events are not in
    /// it: ten thousand renewals would each be remembered for hours.
    published_at: Mutex<HashMap<String, DateTime<Utc>>>,
    /// When publishing last failed. The object's status may report the problem by now, but no
    /// Event does.
    failed_at: Mutex<HashMap<String, DateTime<Utc>>>,
}

impl Publisher {
    pub fn new(client: Client, clock: Clock, controller: &'static str, instance: String) -> Self {
        Self {
            client,
            clock,
            controller,
            instance,
            published_at: Mutex::default(),
            failed_at: Mutex::default(),
        }
    }

    pub async fn publish(&self, message: &Message) -> Result<(), ApiError> {
        match self.create(message).await {
            // The same Event was published before and has not expired: count it.
            Err(ApiError::AlreadyExists) => match self.find(message).await? {
                Some(event) => self.renew(message, &event).await,
                // It expired just now.
                None => self.create(message).await,
            },
            written => written,
        }
    }

    /// Publishes an ongoing problem, unless that was done within the hour.
    pub async fn publish_ongoing(
        &self,
        message: &Message,
        reported: Reported,
    ) -> Result<Published, ApiError> {
        let name = event_name(message);
        let failed_before = lock(&self.failed_at).contains_key(&name);
        let reported = if failed_before { Reported::NotYet } else { reported };
        let published = self.publish_if_due(&name, message, reported).await;
        match &published {
            Ok(_) => lock(&self.failed_at).remove(&name),
            Err(_) => {
                insert_bounded(&mut lock(&self.failed_at), name, self.clock.now());
                None
            }
        };
        published
    }

    /// Counts as a failed attempt: the next one publishes, whatever the status says by then.
    pub fn postpone(&self, message: &Message) {
        insert_bounded(&mut lock(&self.failed_at), event_name(message), self.clock.now());
    }

    async fn publish_if_due(
        &self,
        name: &str,
        message: &Message,
        reported: Reported,
    ) -> Result<Published, ApiError> {
        let now = self.clock.now();
        let remembered = lock(&self.published_at).get(name).copied();
        if remembered.is_some() && failpoints::has(Bug::NeverRenewsEvents) {
            return Ok(Published { renew_in: Duration::from_secs(31_536_000), written: false });
        }
        if let Some(last) = remembered.filter(|last| is_recent(*last, now)) {
            return Ok(Published { renew_in: renewal_due(last, now), written: false });
        }
        let (last, written) = match (self.find(message).await?, reported) {
            (Some(event), _) if is_recent(last_published(&event), now) => {
                (last_published(&event), false)
            }
            (Some(event), _) => {
                self.renew(message, &event).await?;
                (now, true)
            }
            (None, Reported::InStatus) if remembered.is_none() => (now, false),
            (None, _) => match self.create(message).await {
                // Another replica published it, or an earlier attempt whose answer was lost.
                Ok(()) | Err(ApiError::AlreadyExists) => (now, true),
                Err(error) => return Err(error),
            },
        };
        insert_bounded(&mut lock(&self.published_at), name.to_owned(), last);
        Ok(Published { renew_in: renewal_due(last, now), written })
    }

    /// Frees the memory of Events that are due for renewal anyway.
    pub fn forget_old(&self) {
        let now = self.clock.now();
        for map in [&self.published_at, &self.failed_at] {
            lock(map).retain(|_, last| now - *last < RENEWAL * 2);
        }
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
            reporting_instance: Some(
                printable::shortened(&self.instance, LONGEST_INSTANCE).to_owned(),
            ),
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

/// The clocks of two replicas differ by less.
const SKEW: TimeDelta = TimeDelta::minutes(5);

/// Whether this was within the hour. A time further in the future comes from a clock that was
/// ahead, and would suppress the Event until it is reached.
fn is_recent(last: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (-SKEW..RENEWAL).contains(&(now - last))
}

fn renewal_due(last: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (last + RENEWAL - now).to_std().unwrap_or_default()
}

/// Objects whose problems change all the time must not fill the memory. Forgotten entries are read
/// from the API server again, as after a restart.
fn insert_bounded(map: &mut HashMap<String, DateTime<Utc>>, name: String, at: DateTime<Utc>) {
    if map.len() >= MOST_REMEMBERED {
        map.clear();
    }
    map.insert(name, at);
}

fn last_published(event: &Event) -> DateTime<Utc> {
    let last = event.series.as_ref().map(|series| &series.last_observed_time);
    last.or(event.event_time.as_ref())
        .and_then(|time| DateTime::from_timestamp_micros(time.0.as_microsecond()))
        .unwrap_or(DateTime::<Utc>::MIN_UTC)
}

fn micro_time(time: DateTime<Utc>) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.timestamp_micros()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The object's name, and a digest of its uid and the message.
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
    // Messages escape what they quote of tenants; this catches one that forgot.
    let note = printable::lines(note);
    if note.len() <= LONGEST_NOTE {
        return note.into_owned();
    }
    format!("{}{ELLIPSIS}", printable::shortened(&note, LONGEST_NOTE - ELLIPSIS.len()))
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

        let again = publisher.publish_ongoing(&problem, Reported::NotYet).await.unwrap();
        assert_eq!((world.writes(), again.renew_in.as_secs()), (vec!["POST".to_owned()], 3600));
        for _ in 0..59 {
            world.pass(1);
            publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
        }
        assert!(world.writes().is_empty(), "not within the hour");
        world.pass(1);
        publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["PATCH"]);
        let events = world.events.lock().unwrap();
        assert_eq!(events.values().next().unwrap()["series"]["count"], 2);
    }

    #[tokio::test]
    async fn a_restart_repeats_nothing_even_where_no_status_is_kept() {
        let world = World::default();
        let problem = message("shop", "no key");
        world.publisher().publish_ongoing(&problem, Reported::NotYet).await.unwrap();
        world.writes();
        world.pass(20);

        let again = world.publisher().publish_ongoing(&problem, Reported::NotYet).await.unwrap();

        assert!(world.writes().is_empty());
        assert_eq!(
            again.renew_in.as_secs(),
            40 * 60,
            "the hour counts from the Event that was written"
        );
    }

    #[tokio::test]
    async fn what_the_status_says_is_not_said_again_by_a_restart_after_the_event_has_expired() {
        let world = World::default();
        let problem = message("shop", "no key");
        let publisher = world.publisher();

        publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
        assert!(world.writes().is_empty());
        world.pass(60);
        publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["POST"], "but it stays visible");
    }

    #[tokio::test]
    async fn what_was_postponed_is_published_although_the_status_says_it_by_then() {
        let world = World::default();
        let (publisher, problem) = (world.publisher(), message("shop", "no key"));
        publisher.postpone(&problem);
        publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
        assert_eq!(world.writes(), ["POST"]);
    }

    #[tokio::test]
    async fn a_time_in_the_future_counts_as_not_said() {
        let world = World::default();
        let problem = message("shop", "no key");
        world.pass(24 * 60);
        let publisher = world.publisher();
        publisher.publish_ongoing(&problem, Reported::NotYet).await.unwrap();
        world.writes();
        world.pass(-24 * 60 + 1);

        for publisher in [publisher, world.publisher()] {
            let again = publisher.publish_ongoing(&problem, Reported::NotYet).await.unwrap();
            assert!(again.renew_in.as_secs() <= 3600, "{again:?}");
        }
        assert_eq!(world.writes(), ["PATCH"], "said once, by the clock as it is now");
    }

    #[tokio::test]
    async fn an_event_that_the_api_server_let_expire_is_written_again_when_due() {
        let world = World::default();
        let publisher = world.publisher();
        let problem = message("shop", "no key");
        publisher.publish_ongoing(&problem, Reported::NotYet).await.unwrap();
        world.expire_events();
        world.pass(61);
        publisher.publish_ongoing(&problem, Reported::InStatus).await.unwrap();
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
        publisher.publish(&message("shop", "renewed")).await.unwrap();
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
            publisher.publish_ongoing(&problem, Reported::NotYet).await.unwrap_err();
        }
        minutes.store(60 * 24, Ordering::SeqCst);
        publisher.forget_old();
        assert_eq!(lock(&publisher.failed_at).len(), 0, "a day later they are all remembered");
    }

    /// Review: docs/inject.md: "A restart repeats nothing that was said within the hour."
    #[tokio::test]
    async fn a_replica_whose_clock_is_a_little_behind_repeats_nothing() {
        let world = World::default();
        world.minutes.store(1, Ordering::SeqCst);
        world
            .publisher()
            .publish_ongoing(&message("shop", "it is wrong"), Reported::NotYet)
            .await
            .unwrap();
        let before = world.writes.lock().unwrap().len();
        // The next leader's clock is behind; here by a minute, a millisecond does it too.
        world.minutes.store(0, Ordering::SeqCst);
        world
            .publisher()
            .publish_ongoing(&message("shop", "it is wrong"), Reported::InStatus)
            .await
            .unwrap();
        assert_eq!(world.writes.lock().unwrap().len(), before, "said a moment ago");
    }
}
