//! Workloads of the peers, who join with their SVIDs: what each presents, and what it is answered.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use chrono::TimeDelta;
use futures::{StreamExt as _, channel::mpsc};
use rcgen::{CertificateParams, KeyPair, SigningKey as _};
use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};
use trustplane::{
    authority::{
        act::signer::Signer as _,
        decide::challenge::{self, Signed},
        join::{
            messages::{
                Certs, ChallengeSolution, InitialRequest, JoinRequest, Request, RequestPayload,
                Response, ResponsePayload, Role,
            },
            server::Answers,
        },
    },
    spiffe::{id::SpiffeId, key::PublicKey},
};

use super::{
    ops::token_name,
    peers::{CAS, LONG, PEERS, PeerCa, ca, trust_domain},
    world::{OWN, REPLICAS, World},
};
use crate::cluster::noon;

/// Of each peer.
pub const WORKLOADS: usize = 8;
/// A client gives up on a server that is silent for longer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Tries of a client that got no answer, or that the server had none for.
const TRIES: usize = 4;
const BETWEEN_TRIES: Duration = Duration::from_secs(2);

/// What a client presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Good,
    /// An SVID of a CA that left the peer's bundle, or was never in it.
    OldCa,
    /// An SVID for an ID of this peer, signed by a CA of another.
    ForeignCa,
    Expired,
    /// Somebody else's SVID, without its key.
    Stolen,
    /// A signature for another server.
    Relayed,
}

impl Proof {
    pub const ALL: [Self; 6] =
        [Self::Good, Self::OldCa, Self::ForeignCa, Self::Expired, Self::Stolen, Self::Relayed];

    /// Whether it proves its ID where the CA counts.
    pub fn holds(self) -> bool {
        matches!(self, Self::Good | Self::OldCa | Self::ForeignCa)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    pub peer: usize,
    pub workload: usize,
    pub token: usize,
    /// Asked first.
    pub replica: usize,
    pub proof: Proof,
}

impl Join {
    pub fn new(workload: usize, token: usize, replica: usize) -> Self {
        Self { peer: 0, workload, token, replica, proof: Proof::Good }
    }

    pub fn with(self, proof: Proof) -> Self {
        Self { proof, ..self }
    }

    pub fn of(self, peer: usize) -> Self {
        Self { peer, ..self }
    }

    pub fn id(&self) -> String {
        id(self.peer, self.workload)
    }

    pub fn address(&self) -> IpAddr {
        let last = self.peer * WORKLOADS + self.workload;
        Ipv4Addr::new(192, 0, 2, u8::try_from(last).expect("a few workloads")).into()
    }

    pub fn role(&self) -> Role {
        if self.workload.is_multiple_of(2) { Role::Bot } else { Role::Agent }
    }

    pub fn workload(&self) -> &'static Workload {
        &workloads()[self.peer * WORKLOADS + self.workload]
    }
}

fn id(peer: usize, workload: usize) -> String {
    format!("spiffe://{}/ci/{workload}", trust_domain(peer))
}

/// Keys and SVIDs of a workload, made once.
pub struct Workload {
    key: KeyPair,
    csr: Vec<u8>,
    /// Of the certificate that it asks for.
    pub new_key: PublicKey,
    /// By each CA of its peer.
    svids: Vec<Vec<u8>>,
    foreign: Vec<u8>,
    expired: Vec<u8>,
}

impl Workload {
    fn new(peer: usize, workload: usize) -> Self {
        let (key, new) = (KeyPair::generate(), KeyPair::generate());
        let (key, new) = (key.expect("a key"), new.expect("a key"));
        let csr = |key: &KeyPair| {
            let made = CertificateParams::default().serialize_request(key);
            made.expect("a request").der().to_vec()
        };
        let id = SpiffeId::parse(&id(peer, workload)).expect("a SPIFFE ID");
        let of = |der: &[u8]| PublicKey::of_request(der).expect("a request");
        let own = of(&csr(&key));
        let svid = |ca: &PeerCa, ttl, now| {
            let svid = ca.signer.sign_for(&own, &id, ttl, now).expect("it can be signed");
            svid.chain[0].to_vec()
        };
        let csr = csr(&new);
        Self {
            svids: (0..CAS).map(|number| svid(ca(peer, number), LONG, noon())).collect(),
            foreign: svid(ca((peer + 1) % PEERS, 0), LONG, noon()),
            expired: svid(ca(peer, 0), TimeDelta::hours(1), noon() - TimeDelta::days(1)),
            new_key: of(&csr),
            key,
            csr,
        }
    }
}

fn workloads() -> &'static [Workload] {
    static ALL: OnceLock<Vec<Workload>> = OnceLock::new();
    let of = |peer| (0..WORKLOADS).map(move |workload| Workload::new(peer, workload));
    ALL.get_or_init(|| (0..PEERS).flat_map(of).collect())
}

/// Makes what all simulations share, so that none of them has another history for it.
pub fn prepare() {
    workloads();
}

/// One try to join.
pub struct Attempt {
    pub join: Join,
    /// The one that was asked, and its process.
    pub replica: usize,
    pub life: u32,
    pub began: Instant,
    pub ended: Instant,
    /// The CA of the SVID.
    pub authority: CertificateDer<'static>,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    /// With our documents that the replica served before and after it signed.
    Joined(Certs, [Option<Arc<str>>; 2]),
    /// With the reference to the audit log.
    Refused(String),
    Unavailable,
    /// The replica died, or was silent.
    Lost,
    Failed(Code),
}

impl World {
    /// As an agent does: where there is no answer, it tries the other replica.
    pub async fn join(self: Arc<Self>, join: Join) {
        for replica in (0..REPLICAS).cycle().skip(join.replica).take(TRIES) {
            let attempt = self.attempt(join, replica).await;
            let is_over = !matches!(attempt.outcome, Outcome::Lost | Outcome::Unavailable);
            self.attempts().push(attempt);
            if is_over {
                return;
            }
            sleep(BETWEEN_TRIES).await;
        }
    }

    pub async fn attempt(&self, join: Join, replica: usize) -> Attempt {
        let life = self.life(replica);
        let (began, workload) = (Instant::now(), join.workload());
        let (svid, authority) = self.svid(&join);
        let talk = Talk { world: self, join, replica, life, workload, svid };
        let outcome = talk.join().await;
        let (life, ended) = (life.unwrap_or_default(), Instant::now());
        Attempt { join, replica, life, began, ended, authority, outcome }
    }

    /// The SVID that a client presents now, and the CA that it is of.
    fn svid(&self, join: &Join) -> (&'static [u8], CertificateDer<'static>) {
        let workload = join.workload();
        let active = self.peers()[join.peer].active_ca().unwrap_or_default();
        let (svid, ca) = match join.proof {
            Proof::Good | Proof::Stolen | Proof::Relayed => {
                (&workload.svids[active % CAS], ca(join.peer, active))
            }
            Proof::OldCa => {
                let old = (active + CAS - 1) % CAS;
                (&workload.svids[old], ca(join.peer, old))
            }
            Proof::ForeignCa => (&workload.foreign, ca((join.peer + 1) % PEERS, 0)),
            Proof::Expired => (&workload.expired, ca(join.peer, 0)),
        };
        (svid, ca.certificate.clone())
    }
}

struct Talk<'a> {
    world: &'a World,
    join: Join,
    replica: usize,
    life: Option<u32>,
    workload: &'static Workload,
    svid: &'static [u8],
}

impl Talk<'_> {
    async fn join(&self) -> Outcome {
        self.travel().await;
        let Some(service) = self.life.and_then(|_| self.world.join_service(self.replica)) else {
            return Outcome::Lost;
        };
        let (requests, receiver) = mpsc::unbounded();
        let mut answers = match service.answer(self.join.address(), receiver) {
            Ok(answers) => answers,
            Err(status) => return outcome(&status),
        };
        // Nothing is lost where the server has ended the stream: its answer follows.
        let _ = requests.unbounded_send(Ok(self.init()));
        let nonce = match self.next(&mut answers).await {
            Ok(ResponsePayload::Challenge(challenge)) => challenge.nonce,
            Ok(_) => return Outcome::Failed(Code::Unknown),
            Err(outcome) => return outcome,
        };
        self.travel().await;
        let before = self.world.document(self.replica);
        let _ = requests.unbounded_send(Ok(self.solution(&nonce)));
        match self.next(&mut answers).await {
            Ok(ResponsePayload::Certs(certs)) => {
                Outcome::Joined(certs, [before, self.world.document(self.replica)])
            }
            Ok(_) => Outcome::Failed(Code::Unknown),
            Err(outcome) => outcome,
        }
    }

    async fn travel(&self) {
        sleep(Duration::from_millis(1 + self.world.roll(20) as u64)).await;
    }

    async fn next(&self, answers: &mut Answers) -> Result<ResponsePayload, Outcome> {
        let answer = timeout(PATIENCE, answers.next()).await;
        // What a dead process says reaches nobody.
        let is_alive = self.life.is_some_and(|life| self.world.is_alive(self.replica, life));
        match answer {
            Ok(Some(Ok(Response { payload: Some(payload) }))) if is_alive => Ok(payload),
            Ok(Some(Err(status))) if is_alive => Err(outcome(&status)),
            _ => Err(Outcome::Lost),
        }
    }

    fn init(&self) -> Request {
        let request = JoinRequest {
            token: token_name(self.join.token),
            role: self.join.role().into(),
            csr: self.workload.csr.clone(),
            ..JoinRequest::default()
        };
        let init = InitialRequest { join_request: Some(request), x509_svid: self.svid.to_vec() };
        Request { payload: Some(RequestPayload::Init(init)) }
    }

    fn solution(&self, nonce: &[u8]) -> Request {
        let token = token_name(self.join.token);
        let signed = Signed {
            chain: self.svid,
            csr: &self.workload.csr,
            token: &token,
            role: self.join.role().into(),
            expires: 0,
        };
        let server = if self.join.proof == Proof::Relayed { "other.test" } else { OWN };
        let message = challenge::message(server, nonce, &signed);
        let other = Join { workload: (self.join.workload + 1) % WORKLOADS, ..self.join };
        let key = match self.join.proof {
            Proof::Stolen => &other.workload().key,
            _ => &self.workload.key,
        };
        let signed_nonce = key.sign(&message).expect("it can be signed");
        let solution = ChallengeSolution { signed_nonce };
        Request { payload: Some(RequestPayload::ChallengeSolution(solution)) }
    }
}

fn outcome(status: &Status) -> Outcome {
    match status.code() {
        Code::PermissionDenied => {
            let reference = status.message().split_whitespace().last().unwrap_or_default();
            Outcome::Refused(reference.to_owned())
        }
        Code::Unavailable => Outcome::Unavailable,
        code => Outcome::Failed(code),
    }
}
