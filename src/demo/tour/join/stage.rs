//! The stage of the authority's tour, with joins switched on, and those who join: a pipeline and an agent,
//! each with an SVID from a stand-in for SPIRE's agent, and a workload beside ours.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use kube::Api;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::workload::Workload;
use crate::{
    api::{join_token::JoinToken, spiffe_federation::API_VERSION},
    authority::{
        agent::{
            metrics::Metrics,
            run::{Agent, Options},
        },
        join::{
            client::{Client, ServerTrust},
            messages::Role,
            own_svid::SvidSource,
        },
    },
    demo::{
        private_folder::{FolderError, PrivateFolder},
        spire::agent::{SpireAgent, SpireAgentError},
        tour::{
            authority::stage::{self, Joins, PARTNER, TRUST_DOMAIN},
            parts::Parts,
            steps::send,
        },
    },
    k8s::api_error::{self, ApiError},
    runtime::lock::lock,
    spiffe::{
        bundle::Bundle,
        id::{IdError, TrustDomain},
    },
};

/// The JoinToken.
pub const TOKEN: &str = "partner";
/// How many may join with it.
pub const MAX_USES: u32 = 2;
/// Paths of the partner's SPIFFE IDs.
const PIPELINE: &str = "/ci/deploy";
const NODE: &str = "/node/worker-1";
/// Of the agent's SVIDs: seconds, so that visitors see one end. The agent renews at half of it.
pub const AGENT_TTL: Duration = Duration::from_secs(4);

pub struct Stage {
    pub base: stage::Stage,
    /// Where the partner's pipeline and node get their SVIDs.
    pipeline: SpireAgent,
    node: SpireAgent,
    pub workload: Arc<Workload>,
    /// Starts the agent, with how it knows the server.
    begin: Mutex<Option<oneshot::Sender<ServerTrust>>>,
    server: String,
    /// Has the sockets.
    _folder: PrivateFolder,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Base(#[from] stage::StartError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    SpireAgent(#[from] SpireAgentError),
    #[error("not the name of a trust domain")]
    Name(#[from] IdError),
    #[error("not an address to join at: {0}")]
    Address(String),
}

impl Stage {
    pub async fn start(patience: Duration) -> Result<(Self, Parts), StartError> {
        let (base, mut parts) = stage::Stage::start(patience, Joins::Served).await?;
        let address = base.join_address.ok_or(stage::StartError::Port)?;
        let folder = PrivateFolder::new()?;
        let socket = |name: &str| folder.path().join(name);
        let spire_agent =
            |path, name: &str| SpireAgent::start(base.partner.clone(), path, socket(name));
        let (pipeline, serving) = spire_agent(PIPELINE, "pipeline.sock").await?;
        parts.spawn("the pipeline's stand-in for SPIRE's agent", serving);
        let (node, serving) = spire_agent(NODE, "node.sock").await?;
        parts.spawn("the node's stand-in for SPIRE's agent", serving);

        let workload = Arc::new(Workload::new(socket("agent.sock"), base.clock.clone()));
        let (begin, begun) = oneshot::channel();
        let (begin, server) = (Mutex::new(Some(begin)), address.to_string());
        let stage = Self { base, pipeline, node, workload, begin, server, _folder: folder };
        let client = Client { ttl: Some(AGENT_TTL), ..stage.client(Role::Agent, &stage.node)? };
        parts.spawn("trustplane agent", agent(client, stage.socket().to_owned(), begun));
        parts.spawn("the workload", stage.workload.clone().run());
        Ok((stage, parts))
    }

    /// `trustplane join` of the pipeline.
    pub fn pipeline(&self) -> Result<Client, StartError> {
        self.client(Role::Bot, &self.pipeline)
    }

    fn client(&self, role: Role, svid: &SpireAgent) -> Result<Client, StartError> {
        Ok(Client {
            server: self.server.parse().map_err(StartError::Address)?,
            trust_domain: TrustDomain::parse(TRUST_DOMAIN)?,
            token: TOKEN.to_owned(),
            role,
            node_name: "sandbox".to_owned(),
            ttl: None,
            source: SvidSource::WorkloadApi(svid.socket().to_owned()),
            clock: self.base.clock.clone(),
        })
    }

    /// How clients know our server: by the bundle that we publish. None while there is none.
    pub async fn trust(&self) -> Result<Option<ServerTrust>, ApiError> {
        let published = self.base.published().await?;
        let bundle = published.and_then(|it| Bundle::parse(it.as_bytes()).ok());
        let id = self.base.endpoint_id.clone();
        Ok(bundle.map(|bundle| ServerTrust::Spiffe { id, bundle: Arc::new(bundle) }))
    }

    /// Of the join service.
    pub fn address(&self) -> &str {
        &self.server
    }

    /// Of our agent.
    pub fn socket(&self) -> &Path {
        self.workload.socket()
    }

    pub fn start_agent(&self, trust: ServerTrust) {
        if let Some(begin) = lock(&self.begin).take() {
            // If the agent has ended, its part has failed and ends the tour.
            let _ = begin.send(trust);
        }
    }

    pub fn has_agent(&self) -> bool {
        lock(&self.begin).is_none()
    }

    /// The partner's workloads get SVIDs of the authority that signs now.
    pub fn renew_partner(&self) -> Result<(), SpireAgentError> {
        self.pipeline.renew()?;
        self.node.renew()
    }

    pub async fn create_token(&self) -> Result<(), ApiError> {
        let allow =
            ["ci", "node"].map(|it| json!({ "spiffeID": format!("spiffe://{PARTNER}/{it}/*") }));
        let object = json!({
            "apiVersion": API_VERSION,
            "kind": "JoinToken",
            "metadata": { "name": TOKEN },
            "spec": {
                "roles": ["Bot", "Agent"],
                "botName": "deploy",
                "joinMethod": "spiffe",
                "spiffe": { "allow": allow },
                "maxUses": MAX_USES,
            },
        });
        send(&self.base.client, Method::POST, format!("/apis/{API_VERSION}/jointokens"), object)
            .await
    }

    pub async fn token(&self) -> Result<Option<JoinToken>, ApiError> {
        let api: Api<JoinToken> = Api::all(self.base.client.clone());
        api_error::with_timeout(api.get_opt(TOKEN)).await
    }
}

/// Runs as soon as it is told how to know the server.
async fn agent(client: Client, socket: PathBuf, begun: oneshot::Receiver<ServerTrust>) {
    let Ok(trust) = begun.await else { return };
    let options = Options { client, trust, socket, allowed: BTreeSet::new() };
    let agent = Agent::new(options, Metrics::register(&mut Registry::default()));
    if let Err(error) = agent.run(CancellationToken::new()).await {
        tracing::error!(error = format!("{error:#}"), "trustplane agent failed");
    }
}
