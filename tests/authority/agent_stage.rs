//! An agent and its surroundings, for tests of the Workload API.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use testkit::suite::{self, KeyOf};
use tokio::{net::UnixStream, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status, Streaming,
    client::Grpc,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use trustplane::authority::agent::{
    messages::{
        Empty, FETCH_X509_SVID, VALIDATE_JWT_SVID, ValidateJwtSvidRequest, ValidateJwtSvidResponse,
        X509SvidResponse,
    },
    metrics::Metrics,
    run::{Agent, Options},
};

use crate::join_server::{Foreign, JoinServer, PARTNER, PATIENCE, document};

/// A server, an agent that joins it, and the socket where that serves.
pub struct Stage {
    pub server: Arc<JoinServer>,
    pub foreign: Foreign,
    pub agent: Arc<Agent>,
    registry: Registry,
    pub socket: PathBuf,
    pub stop: CancellationToken,
    pub task: JoinHandle<anyhow::Result<()>>,
}

impl Stage {
    pub async fn start() -> Self {
        let stage = Self::start_with(|_, _| {}).await;
        stage.ready().await;
        stage
    }

    /// After a change to the server's behaviour or the agent's options.
    pub async fn start_with(change: impl FnOnce(&JoinServer, &mut Options)) -> Self {
        let (server, foreign) = (JoinServer::start().await, Foreign::new());
        server.publish(|it| {
            it.insert(PARTNER.to_owned(), document(&[foreign.ca.jwk()]).into_bytes());
        });
        let socket = foreign.folder.path().join("agent.sock");
        let mut options = Options {
            client: server.client(foreign.source()),
            trust: server.trust(),
            socket: socket.clone(),
            allowed: BTreeSet::new(),
        };
        change(&server, &mut options);
        let mut registry = Registry::default();
        let agent = Agent::new(options, Metrics::register(&mut registry));
        let stop = CancellationToken::new();
        let task = tokio::spawn(agent.clone().run(stop.clone()));
        eventually("the socket is there", || socket.exists()).await;
        Self { server, foreign, agent, registry, socket, stop, task }
    }

    pub async fn ready(&self) {
        eventually("the agent has joined", || self.agent.waiting_for().is_empty()).await;
    }

    pub async fn workload(&self) -> Workload {
        Workload::connect(&self.socket).await
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    pub fn metric(&self, name: &str) -> String {
        let text = self.metrics();
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        found.unwrap_or_else(|| panic!("no {name} in:\n{text}")).to_owned()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {PATIENCE:?}: {what}");
}

/// A program beside the agent.
pub struct Workload {
    pub grpc: Grpc<Channel>,
    pub header: Option<&'static str>,
}

impl Workload {
    pub async fn connect(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.unwrap();
        Self { grpc: Grpc::new(channel), header: Some("true") }
    }

    pub fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(header) = self.header {
            let value = MetadataValue::from_static(header);
            request.metadata_mut().insert("workload.spiffe.io", value);
        }
        request
    }

    pub async fn subscribe<M>(&mut self, method: &'static str) -> Result<Streaming<M>, Status>
    where
        M: prost::Message + Default + 'static,
    {
        self.grpc.ready().await.unwrap();
        let (request, method) = (self.request(Empty {}), PathAndQuery::from_static(method));
        let codec = ProstCodec::<Empty, M>::default();
        Ok(self.grpc.server_streaming(request, method, codec).await?.into_inner())
    }

    pub async fn first<M>(&mut self, method: &'static str) -> Result<M, Status>
    where
        M: prost::Message + Default + 'static,
    {
        next(&mut self.subscribe(method).await?).await
    }

    pub async fn svid(&mut self) -> Result<X509SvidResponse, Status> {
        let answer: X509SvidResponse = self.first(FETCH_X509_SVID).await?;
        for svid in &answer.svids {
            suite::register_der_key(KeyOf::Workload, &svid.x509_svid_key);
        }
        Ok(answer)
    }

    pub async fn validate(
        &mut self,
        audience: &str,
        svid: &str,
    ) -> Result<ValidateJwtSvidResponse, Status> {
        self.grpc.ready().await.unwrap();
        let message =
            ValidateJwtSvidRequest { audience: audience.to_owned(), svid: svid.to_owned() };
        let request = self.request(message);
        let method = PathAndQuery::from_static(VALIDATE_JWT_SVID);
        let codec = ProstCodec::<ValidateJwtSvidRequest, ValidateJwtSvidResponse>::default();
        Ok(self.grpc.unary(request, method, codec).await?.into_inner())
    }

    /// The code of a call with an empty message to any method.
    pub async fn code(&mut self, method: &'static str) -> Code {
        match self.first::<Empty>(method).await {
            Ok(_) => Code::Ok,
            Err(status) => status.code(),
        }
    }
}

/// The next message of a stream, which must come.
pub async fn next<M>(stream: &mut Streaming<M>) -> Result<M, Status> {
    let message = timeout(PATIENCE, stream.message()).await.expect("a message in time");
    message.map(|it| it.expect("the stream goes on"))
}

pub fn names(bundles: &BTreeMap<String, Vec<u8>>) -> Vec<&str> {
    bundles.keys().map(String::as_str).collect()
}
