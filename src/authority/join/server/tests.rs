//! Streams without a network, and with a clock that stands still while somebody works.

mod interrupted;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

use apiserver::api::ApiServer;
use chrono::{DateTime, TimeDelta, Utc};
use futures::{FutureExt as _, StreamExt as _, channel::mpsc as messages_channel};
use http::Method;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;
use tower::ServiceExt as _;

use super::*;
use crate::{
    authority::{
        act::signer::{LocalSigner, make_ca},
        decide::{
            ca::{self, Policy},
            challenge::{self, Signed},
        },
        join::{
            messages::{
                Certs, ChallengeSolution, InitialRequest, JoinRequest, RequestPayload,
                ResponsePayload, Role,
            },
            view::{Issuer, LONGEST_SILENCE, Watched},
        },
        metrics::Source,
    },
    demo::api_server,
    spiffe::testing::{Ca, document, noon, svid_params},
};

const TOKENS: &str = "/apis/trustplane.dev/v1/jointokens";
const SECOND: Duration = Duration::from_secs(1);
const PEER: Peer = Peer { address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST) };

/// Time goes on from noon as tokio's does.
fn clock() -> Clock {
    let start = Instant::now();
    Clock::from_fn(move || noon() + TimeDelta::from_std(start.elapsed()).unwrap())
}

fn name(text: &str) -> TrustDomain {
    TrustDomain::parse(text).unwrap()
}

struct World {
    server: ApiServer,
    partner: Ca,
    issuer: Issuer,
    lines: Lines,
}

#[derive(Clone, Default)]
struct Lines {
    text: Arc<Mutex<Vec<u8>>>,
    is_full: bool,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => lock(&self.text).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl World {
    fn new() -> Self {
        let server = api_server::server(api_server::store(1000, 7), clock());
        let hours = TimeDelta::hours;
        let policy = Policy { refresh_hint: hours(1), ca_ttl: hours(24), svid_ttl: hours(1) };
        let made = make_ca("ours.test", policy.ca_ttl, noon()).unwrap();
        let state = ca::first("ours.test", made.ca, ca::Before::default(), &policy, noon());
        let signer = LocalSigner::new("ours.test", &state.cas[0], &made.key).unwrap();
        let issuer = Issuer { signer: Arc::new(signer), ttl: hours(1), read_at: Instant::now() };
        Self { server, partner: Ca::new("partner.test"), issuer, lines: Lines::default() }
    }

    fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        self.server.request(method, path, &body).1
    }

    fn create_token(&self, max_uses: Option<u32>) {
        let mut token = json!({
            "apiVersion": "trustplane.dev/v1", "kind": "JoinToken", "metadata": { "name": "ci" },
            "spec": {
                "roles": ["Bot"], "botName": "deployer", "joinMethod": "spiffe",
                "spiffe": { "allow": [{ "spiffeID": "spiffe://partner.test/ci/*" }] },
            },
        });
        if let Some(most) = max_uses {
            token["spec"]["maxUses"] = json!(most);
        }
        let created = self.ask(Method::POST, TOKENS, token);
        assert_eq!(created["kind"], "JoinToken", "{created}");
    }

    fn token(&self) -> Value {
        self.ask(Method::GET, &format!("{TOKENS}/ci"), Value::Null)
    }

    fn used_by(&self) -> Vec<String> {
        let used_by = self.token()["status"]["usedBy"].as_array().cloned().unwrap_or_default();
        used_by.iter().map(|it| it["spiffeID"].as_str().unwrap().to_owned()).collect()
    }

    /// As the controller fills it.
    fn view(&self) -> Arc<View> {
        let view = Arc::new(View::default());
        self.refresh(&view);
        if let Ok(token) = serde_json::from_value(self.token()) {
            view.learn_token(token);
        }
        let documents = [("partner.test", &self.partner)]
            .map(|(of, ca)| (name(of), Arc::<str>::from(document(&[ca]).to_string())));
        view.set_trusted(documents.into());
        view
    }

    /// Everything was heard of just now.
    fn refresh(&self, view: &View) {
        let now = Instant::now();
        view.heard_of(Watched::Tokens, now);
        view.heard_of(Watched::Federations, now);
        view.set_issuer(Some(Issuer { read_at: now, ..self.issuer.clone() }));
    }

    fn service(&self, view: Arc<View>) -> Arc<JoinService> {
        self.service_over(self.server.client(), view)
    }

    fn service_over(&self, client: Client, view: Arc<View>) -> Arc<JoinService> {
        let options =
            JoinOptions { listen: None, client, certificate: None, peers: PeerAddress::Connection };
        let registry = &mut prometheus_client::registry::Registry::default();
        let clock = clock();
        let parts = Parts {
            trust_domain: name("ours.test"),
            namespace: "trustplane".to_owned(),
            instance: "test".to_owned(),
            view,
            audit: Arc::new(AuditLog::to(Box::new(self.lines.clone()))),
            metrics: Metrics::register(registry, Source::new(clock.clone())),
            clock,
            stop: CancellationToken::new(),
        };
        JoinService::new(&options, parts)
    }

    fn audited(&self) -> Vec<Value> {
        let text = String::from_utf8(lock(&self.lines.text).clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn applicant(&self, path: &str) -> Applicant {
        let params = svid_params(&[&format!("spiffe://partner.test/ci/{path}")]);
        let key = KeyPair::generate().unwrap();
        let svid = params.signed_by(&key, &self.partner.0).unwrap().der().to_vec();
        let csr = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
        Applicant { key, svid, csr }
    }
}

/// A client with an SVID of the partner.
struct Applicant {
    key: KeyPair,
    svid: Vec<u8>,
    csr: Vec<u8>,
}

impl Applicant {
    fn init(&self, follow: bool) -> Request {
        let join_request = JoinRequest {
            token: "ci".to_owned(),
            role: Role::Bot.into(),
            csr: self.csr.clone(),
            follow,
            ..JoinRequest::default()
        };
        let init =
            InitialRequest { join_request: Some(join_request), x509_svid: self.svid.clone() };
        Request { payload: Some(RequestPayload::Init(init)) }
    }

    fn solution(&self, nonce: &[u8]) -> Request {
        let signed = Signed {
            chain: &self.svid,
            csr: &self.csr,
            token: "ci",
            role: Role::Bot.into(),
            expires: 0,
        };
        let message = challenge::message("ours.test", nonce, &signed);
        let signed_nonce = rcgen::SigningKey::sign(&self.key, &message).unwrap();
        let solution = ChallengeSolution { signed_nonce };
        Request { payload: Some(RequestPayload::ChallengeSolution(solution)) }
    }

    /// Joins; answers the stream too, which goes on if `follow`.
    async fn join(
        &self,
        service: &Arc<JoinService>,
        follow: bool,
    ) -> Result<(Certs, Talk), Status> {
        let mut talk = Talk::open(service);
        talk.send(self.init(follow));
        let nonce = match talk.next().await? {
            Some(ResponsePayload::Challenge(challenge)) => challenge.nonce,
            other => panic!("{other:?} in place of a challenge"),
        };
        assert_eq!(nonce.len(), challenge::NONCE_LENGTH);
        talk.send(self.solution(&nonce));
        match talk.next().await? {
            Some(ResponsePayload::Certs(certs)) => Ok((certs, talk)),
            other => panic!("{other:?} in place of certificates"),
        }
    }
}

struct Talk {
    requests: messages_channel::UnboundedSender<Result<Request, Status>>,
    answers: Answers,
}

impl Talk {
    fn open(service: &Arc<JoinService>) -> Self {
        let (requests, receiver) = messages_channel::unbounded();
        let answers = service.answer(PEER.address, receiver).unwrap();
        Self { requests, answers }
    }

    fn send(&self, request: Request) {
        self.requests.unbounded_send(Ok(request)).unwrap();
    }

    async fn next(&mut self) -> Result<Option<ResponsePayload>, Status> {
        Ok(self.answers.next().await.transpose()?.and_then(|it| it.payload))
    }

    async fn bundles(&mut self) -> Vec<String> {
        match self.next().await.unwrap() {
            Some(ResponsePayload::TrustBundles(message)) => message.bundles.into_keys().collect(),
            other => panic!("{other:?} in place of bundles"),
        }
    }
}

async fn code(talk: &mut Talk) -> Code {
    talk.next().await.unwrap_err().code()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_silent_for_ten_seconds_is_sent_away() {
    let world = World::new();
    let service = world.service(world.view());
    let (start, mut silent) = (Instant::now(), Talk::open(&service));
    assert_eq!(code(&mut silent).await, Code::DeadlineExceeded);
    assert_eq!(start.elapsed().as_secs(), 10);

    let (start, mut half) = (Instant::now(), Talk::open(&service));
    half.send(world.applicant("a").init(false));
    assert!(matches!(half.next().await, Ok(Some(ResponsePayload::Challenge(_)))));
    assert_eq!(code(&mut half).await, Code::DeadlineExceeded);
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn nobody_joins_while_a_watch_is_dead_for_a_minute() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service(view.clone());
    let applicant = world.applicant("a");
    let (_, mut follower) = applicant.join(&service, true).await.unwrap();
    assert_eq!(follower.bundles().await, ["partner.test"]);

    tokio::time::sleep(LONGEST_SILENCE - SECOND).await;
    assert!(applicant.join(&service, false).await.is_ok());
    tokio::time::sleep(2 * SECOND).await;
    let refused = applicant.join(&service, false).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(code(&mut follower).await, Code::Unavailable, "it is sent to another replica");
    world.refresh(&view);
    assert!(applicant.join(&service, false).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_dies_between_challenge_and_solution_ends_the_join() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service(view);
    tokio::time::sleep(LONGEST_SILENCE - SECOND).await;
    let (applicant, mut talk) = (world.applicant("a"), Talk::open(&service));
    talk.send(applicant.init(false));
    let Ok(Some(ResponsePayload::Challenge(challenge))) = talk.next().await else { panic!() };
    tokio::time::sleep(5 * SECOND).await;
    talk.send(applicant.solution(&challenge.nonce));
    assert_eq!(code(&mut talk).await, Code::Unavailable);
    assert_eq!(world.used_by(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_hears_of_bundles_until_its_certificate_ends() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service(view.clone());
    let (certs, mut follower) = world.applicant("a").join(&service, true).await.unwrap();
    assert_eq!(follower.bundles().await, ["partner.test"]);
    let keep_alive = async {
        loop {
            world.refresh(&view);
            tokio::time::sleep(10 * SECOND).await;
        }
    };
    let ended = async { follower.next().await };
    let ended = tokio::select! { _ = keep_alive => unreachable!(), ended = ended => ended };
    assert!(matches!(ended, Ok(None)), "{ended:?}");
    let now: DateTime<Utc> = service.clock.now();
    assert!((now.timestamp() - certs.expires).abs() <= 1, "{now}, {}", certs.expires);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_newest_bundles_and_no_queue() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service(view.clone());
    let (_, mut follower) = world.applicant("a").join(&service, true).await.unwrap();
    assert_eq!(follower.bundles().await, ["partner.test"]);
    let document = Arc::<str>::from(document(&[&world.partner]).to_string());
    for number in 0..100 {
        let of = format!("td{number}.test");
        view.set_trusted(BTreeMap::from([(name(&of), document.clone())]));
        tokio::time::sleep(SECOND / 10).await;
    }
    assert_eq!(follower.bundles().await, ["td99.test"]);
    assert!(follower.next().now_or_never().is_none(), "nothing else waits");
}

#[tokio::test(start_paused = true)]
async fn silent_strangers_keep_nobody_out_however_many_they_are() {
    let world = World::new();
    world.create_token(None);
    let service = world.service(world.view());
    let mut strangers: Vec<_> = (0..2000).map(|_| Talk::open(&service)).collect();
    assert!(world.applicant("a").join(&service, false).await.is_ok());
    assert_eq!(code(&mut strangers[0]).await, Code::ResourceExhausted, "it has made room");
    assert!(strangers[1999].next().now_or_never().is_none(), "one of the newest may still join");
    let streams = service.metrics.join_streams().get();
    assert!(streams <= 512, "{streams} are held");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_nothing_for_long() {
    let world = World::new();
    let service = world.service(world.view());
    let talk = Talk::open(&service);
    talk.send(world.applicant("a").init(false));
    talk.send(world.applicant("b").solution(&[7; 32]));
    tokio::time::sleep(SECOND).await;
    assert_eq!(service.metrics.join_streams().get(), 1);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(service.metrics.join_streams().get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_does_not_read_holds_its_place_no_longer_than_its_certificate_lives() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service(view.clone());
    // One reads a first message, one not even that.
    let (_, mut one) = world.applicant("a").join(&service, true).await.unwrap();
    assert_eq!(one.bundles().await, ["partner.test"]);
    let _other = world.applicant("b").join(&service, true).await.unwrap();
    let gauges = [service.metrics.join_followers(), service.metrics.join_streams()];
    tokio::time::sleep(3590 * SECOND).await;
    assert_eq!(gauges.map(|it| it.get()), [2, 2]);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(gauges.map(|it| it.get()), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn one_stream_is_one_try() {
    let world = World::new();
    world.create_token(None);
    let service = world.service(world.view());
    let applicant = world.applicant("a");

    let mut early = Talk::open(&service);
    early.send(applicant.solution(&[7; 32]));
    assert_eq!(code(&mut early).await, Code::InvalidArgument);

    let mut twice = Talk::open(&service);
    twice.send(applicant.init(false));
    assert!(twice.next().await.is_ok());
    twice.send(applicant.init(false));
    assert_eq!(code(&mut twice).await, Code::InvalidArgument);

    let (_, mut late) = applicant.join(&service, true).await.unwrap();
    late.send(applicant.solution(&[7; 32]));
    assert_eq!(code(&mut late).await, Code::InvalidArgument);

    let (_, mut done) = applicant.join(&service, false).await.unwrap();
    assert!(matches!(done.next().await, Ok(None)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_sends_followers_elsewhere() {
    let world = World::new();
    world.create_token(None);
    let service = world.service(world.view());
    let (_, mut follower) = world.applicant("a").join(&service, true).await.unwrap();
    assert_eq!(follower.bundles().await, ["partner.test"]);
    assert_eq!(service.metrics.join_followers().get(), 1);
    service.stop.cancel();
    assert_eq!(code(&mut follower).await, Code::Unavailable);
    drop(follower);
    let gauges = [service.metrics.join_followers(), service.metrics.join_streams()];
    assert_eq!(gauges.map(|it| it.get()), [0, 0], "nothing is held for it any more");
}

#[tokio::test(start_paused = true)]
async fn without_a_record_there_is_no_certificate() {
    let mut world = World::new();
    world.create_token(None);
    world.lines.is_full = true;
    let service = world.service(world.view());
    let refused = world.applicant("a").join(&service, false).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_takes_the_same_time_whether_or_not_the_token_exists() {
    let world = World::new();
    let mut times = Vec::new();
    for path in ["a", "x/y"] {
        let service = world.service(world.view());
        let start = Instant::now();
        let refused = world.applicant(path).join(&service, false).await.err().unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied);
        times.push(start.elapsed());
        if path == "a" {
            world.create_token(None);
        }
    }
    assert_eq!(times[0], times[1]);
    let checks: Vec<_> = world.audited().iter().map(|it| it["check"].clone()).collect();
    assert_eq!(checks, ["token", "rules"]);
}

/// How a replica is lost at one of its calls.
#[derive(Clone, Copy, Debug)]
enum Loss {
    BeforeTheCall,
    AfterTheCall,
}

/// A client that is cut off at call `last`.
fn cut_off(server: &ApiServer, last: usize, loss: Loss) -> Client {
    let (server, calls) = (server.clone(), Arc::new(AtomicUsize::new(0)));
    let transport = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, call) = (server.clone(), calls.fetch_add(1, Ordering::Relaxed));
        async move {
            let is_lost = call >= last;
            if is_lost && (matches!(loss, Loss::BeforeTheCall) || call > last) {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset));
            }
            let answer = server.oneshot(request).await.map_err(io::Error::other);
            if is_lost { Err(io::ErrorKind::ConnectionReset.into()) } else { answer }
        }
    });
    Client::new(transport, "default")
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_lost_at_any_call_never_lets_two_use_what_one_may() {
    for loss in [Loss::BeforeTheCall, Loss::AfterTheCall] {
        for last in 0..5 {
            let world = World::new();
            world.create_token(Some(1));
            let stale = world.view();
            // The watch has not brought this change yet, so the first write conflicts.
            let patch = json!({ "metadata": { "labels": { "a": "b" } } });
            world.ask(Method::PATCH, &format!("{TOKENS}/ci"), patch);
            let dying = world.service_over(cut_off(&world.server, last, loss), stale);
            let first = world.applicant("first");
            let mut joined = Vec::from_iter(first.join(&dying, false).await.map(|_| "first"));

            let restarted = world.service(world.view());
            for other in ["second", "first", "third"] {
                let applicant = world.applicant(other);
                joined.extend(applicant.join(&restarted, false).await.map(|_| other));
            }
            joined.dedup();
            assert_eq!(joined.len(), 1, "{loss:?} at call {last}: {joined:?}");
            let used_by = world.used_by();
            assert_eq!(used_by, [format!("spiffe://partner.test/ci/{}", joined[0])]);
        }
    }
}
