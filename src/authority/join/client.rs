//! Joins: proves to a server that we hold the key of our SVID, and gets an SVID of its trust domain.

mod dial;

use std::time::Duration;

use chrono::TimeDelta;
use http::uri::PathAndQuery;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::CertificateDer;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    messages::{
        Certs, Challenge, ChallengeSolution, InitialRequest, JoinRequest, METHOD, Request,
        RequestPayload, Response, ResponsePayload, Role,
    },
    own_svid::{OwnSvid, OwnSvidError, SvidSource},
};
use crate::{
    authority::{
        decide::{
            agent::{BundlesError, IssuedSvid, TrustedBundles},
            challenge::{self, Signed},
        },
        grpc,
    },
    runtime::{clock::Clock, printable::printable, redact::Pkcs8Key},
    spiffe::{
        id::{SpiffeId, TrustDomain},
        svid::{PresentedSvid, SvidError},
    },
};

pub use dial::{ServerAddress, ServerTrust};

/// For the whole exchange, up to the first bundles.
const PATIENCE: Duration = Duration::from_secs(30);
/// In bytes. Bundles of hundreds of trust domains come in one message.
const LONGEST_MESSAGE: usize = 64 * 1024 * 1024;
/// Of a server's text, in characters.
const LONGEST_TEXT: usize = 300;

/// Never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Own(#[from] OwnSvidError),
    #[error(
        "cannot connect to {server}: {why}. Does --server name the address where trustplane authority listens for joins?"
    )]
    Connect { server: String, why: String },
    #[error(
        "{server} did not prove that it is the server that is meant: {}. Do --server-ca or --server-bundle, and --trust-domain, belong to it? A bundle from before the server's CAs were replaced proves nothing: get the newest",
        .why.trim_end_matches('?')
    )]
    Handshake { server: String, why: String },
    #[error(
        "the server refused: {0}. Ask its administrators, who see in its audit log whether it is the token, its rules, our SVID, or the federation with our trust domain"
    )]
    Refused(String),
    #[error("the server can't let anybody join now: {0}. Try again later")]
    Unavailable(String),
    #[error("the server broke the join off: {0}")]
    Failed(String),
    #[error("the server did not finish the join within {PATIENCE:?}")]
    TooSlow,
    #[error(
        "the server does not keep to the protocol: {0}. Does trustplane authority listen there?"
    )]
    Protocol(&'static str),
    #[error("the SVID that the server issued: {0}")]
    Issued(#[from] SvidError),
    #[error(transparent)]
    Bundles(#[from] BundlesError),
    #[error("no key could be made: {0}")]
    Key(#[from] rcgen::Error),
}

impl JoinError {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Own(_) => "own_svid",
            Self::Connect { .. } => "connect",
            Self::Handshake { .. } => "server_identity",
            Self::Refused(_) => "refused",
            Self::Unavailable(_) | Self::TooSlow => "unavailable",
            Self::Failed(_) | Self::Protocol(_) => "protocol",
            Self::Issued(_) | Self::Bundles(_) => "answer",
            Self::Key(_) => "key",
        }
    }

    fn of(status: &Status) -> Self {
        let text: String = status.message().chars().take(LONGEST_TEXT).collect();
        let text = printable(&text).into_owned();
        match status.code() {
            Code::PermissionDenied => Self::Refused(text),
            Code::Unavailable | Code::ResourceExhausted => Self::Unavailable(text),
            code => Self::Failed(format!("{text} ({code:?})")),
        }
    }
}

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Client {
    pub server: ServerAddress,
    /// The server's, by our own configuration: whoever relays us elsewhere gets a signature that is worth
    /// nothing there.
    pub trust_domain: TrustDomain,
    pub token: String,
    pub role: Role,
    /// For the server's audit log.
    pub node_name: String,
    /// The server's choice if it is shorter.
    pub ttl: Option<Duration>,
    pub source: SvidSource,
    pub clock: Clock,
}

pub struct Joined {
    pub svid: IssuedSvid,
    pub bundles: TrustedBundles,
    pub following: Following,
}

/// The open stream of a join.
pub struct Following {
    trust_domain: TrustDomain,
    responses: Streaming<Response>,
    /// The server may take the end of our half for the end of our interest.
    _requests: mpsc::Sender<Request>,
}

/// Why a stream brings no more bundles.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("the server ended the stream")]
    Ended,
    #[error("the stream broke: {0}")]
    Broken(String),
    /// The stream goes on.
    #[error(transparent)]
    Bundles(#[from] BundlesError),
}

impl Client {
    pub async fn join(&self, trust: &ServerTrust) -> Result<Joined, JoinError> {
        let svid = self.source.read(self.clock.now()).await?;
        let grpc = self.connect(trust).await?;
        match timeout(PATIENCE, self.exchange(grpc, &svid)).await {
            Ok(joined) => joined,
            Err(_) => Err(JoinError::TooSlow),
        }
    }

    /// A connection to the server that is meant.
    pub(crate) async fn connect(&self, trust: &ServerTrust) -> Result<Grpc<Channel>, JoinError> {
        let stream = dial::dial(&self.server, trust, self.clock.clone()).await?;
        let channel = grpc::channel(stream, self.server.origin()).await;
        let channel = channel.map_err(|_| JoinError::Protocol("it does not speak HTTP/2"))?;
        Ok(Grpc::new(channel).max_decoding_message_size(LONGEST_MESSAGE))
    }

    async fn exchange(&self, grpc: Grpc<Channel>, svid: &OwnSvid) -> Result<Joined, JoinError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let init = self.init(svid, &key)?;
        let mut attempt = Try::begin(grpc, init.clone()).await?;
        let signed_nonce = svid.sign(&self.message(&attempt.nonce, &init))?;
        let certs = attempt.solve(signed_nonce).await?;
        let Try { requests, mut responses, .. } = attempt;
        let ResponsePayload::TrustBundles(bundles) = next(&mut responses).await? else {
            return Err(JoinError::Protocol("it sends no bundles"));
        };
        let bundles = TrustedBundles::read(&self.trust_domain, &bundles.bundles)?;
        let svid = self.check(certs, &key, &bundles)?;
        let trust_domain = self.trust_domain.clone();
        let following = Following { trust_domain, responses, _requests: requests };
        Ok(Joined { svid, bundles, following })
    }

    pub(crate) fn init(&self, svid: &OwnSvid, key: &KeyPair) -> Result<InitialRequest, JoinError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(key)?.der().to_vec();
        // One that no time can hold shortens nothing.
        let ttl = self.ttl.and_then(|ttl| TimeDelta::from_std(ttl).ok());
        let end = ttl.and_then(|ttl| self.clock.now().checked_add_signed(ttl));
        let join_request = JoinRequest {
            token: self.token.clone(),
            role: self.role.into(),
            csr,
            node_name: self.node_name.clone(),
            expires: end.map_or(0, |end| end.timestamp()),
            follow: true,
        };
        Ok(InitialRequest { join_request: Some(join_request), x509_svid: svid.chain() })
    }

    /// What is signed.
    pub(crate) fn message(&self, nonce: &[u8], init: &InitialRequest) -> Vec<u8> {
        let request = init.join_request.clone().unwrap_or_default();
        let signed = Signed {
            chain: &init.x509_svid,
            csr: &request.csr,
            token: &request.token,
            role: request.role,
            expires: request.expires,
        };
        challenge::message(self.trust_domain.as_str(), nonce, &signed)
    }

    /// The answer is for our key, in the right trust domain, and others will accept it.
    fn check(
        &self,
        certs: Certs,
        key: &KeyPair,
        bundles: &TrustedBundles,
    ) -> Result<IssuedSvid, JoinError> {
        let chain: Vec<_> = certs.x509_svid.into_iter().map(CertificateDer::from).collect();
        let svid = PresentedSvid::read(&chain)?;
        let id = svid.id()?.clone();
        if !is_meant(&id, &self.trust_domain, self.role) {
            return Err(JoinError::Protocol("its certificate is for a SPIFFE ID of another kind"));
        }
        let is_ours = svid.key().is_ok_and(|it| it.bytes() == key.public_key_raw());
        if !is_ours {
            return Err(JoinError::Protocol("its certificate is for another key"));
        }
        let (trust_domain, bundle) = bundles.own();
        let bundle = bundle.ok_or_else(|| SvidError::NoAuthority(trust_domain.clone()))?;
        svid.verify(bundle, self.clock.now())?;
        let (_, not_after) = svid.validity().ok_or(SvidError::Unreadable)?;
        let key = Pkcs8Key::new(key.serialize_der());
        Ok(IssuedSvid { id, chain, key, not_after })
    }
}

/// One stream, whose challenge has come.
pub(crate) struct Try {
    pub(crate) nonce: Vec<u8>,
    requests: mpsc::Sender<Request>,
    responses: Streaming<Response>,
}

impl Try {
    pub(crate) async fn begin(
        mut grpc: Grpc<Channel>,
        init: InitialRequest,
    ) -> Result<Self, JoinError> {
        let (requests, outgoing) = mpsc::channel(1);
        let closed = |_| JoinError::Failed("the connection was closed".to_owned());
        requests.send(payload(RequestPayload::Init(init))).await.map_err(closed)?;
        grpc.ready().await.map_err(|error| JoinError::Failed(error.to_string()))?;
        let response = grpc
            .streaming(
                tonic::Request::new(ReceiverStream::new(outgoing)),
                PathAndQuery::from_static(METHOD),
                ProstCodec::<Request, Response>::default(),
            )
            .await;
        let mut responses = response.map_err(|status| JoinError::of(&status))?.into_inner();
        let ResponsePayload::Challenge(Challenge { nonce }) = next(&mut responses).await? else {
            return Err(JoinError::Protocol("its first answer is no challenge"));
        };
        if nonce.len() < challenge::NONCE_LENGTH {
            return Err(JoinError::Protocol("its nonce is too short"));
        }
        Ok(Self { nonce, requests, responses })
    }

    pub(crate) async fn solve(&mut self, signed_nonce: Vec<u8>) -> Result<Certs, JoinError> {
        let solution = RequestPayload::ChallengeSolution(ChallengeSolution { signed_nonce });
        // If the server has closed the stream already, the next answer says why.
        let _ = self.requests.send(payload(solution)).await;
        match next(&mut self.responses).await? {
            ResponsePayload::Certs(certs) => Ok(certs),
            _ => Err(JoinError::Protocol("its answer to the solution is no certificate")),
        }
    }
}

fn is_meant(id: &SpiffeId, trust_domain: &TrustDomain, role: Role) -> bool {
    let start = match role {
        Role::Bot => "/bot/",
        Role::Agent => "/agent/",
        Role::Unspecified => return false,
    };
    id.trust_domain() == trust_domain && id.path().starts_with(start)
}

fn payload(payload: RequestPayload) -> Request {
    Request { payload: Some(payload) }
}

async fn next(responses: &mut Streaming<Response>) -> Result<ResponsePayload, JoinError> {
    let message = responses.message().await.map_err(|status| JoinError::of(&status))?;
    let payload = message.ok_or(JoinError::Protocol("it ended the stream early"))?.payload;
    payload.ok_or(JoinError::Protocol("its answer is empty"))
}

impl Following {
    /// Waits for a change.
    pub async fn next(&mut self) -> Result<TrustedBundles, FollowError> {
        let message = self.responses.message().await.map_err(|status| {
            let text: String = status.message().chars().take(LONGEST_TEXT).collect();
            FollowError::Broken(format!("{} ({:?})", printable(&text), status.code()))
        })?;
        match message.ok_or(FollowError::Ended)?.payload {
            Some(ResponsePayload::TrustBundles(bundles)) => {
                Ok(TrustedBundles::read(&self.trust_domain, &bundles.bundles)?)
            }
            _ => Err(FollowError::Broken("the server sent something else than bundles".to_owned())),
        }
    }
}
