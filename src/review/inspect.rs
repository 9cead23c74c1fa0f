//! Asks the configured clusters, as trustplane review asks them, and tells what they answer.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use futures::{StreamExt as _, stream};
use http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;

use super::{
    act::apply::Writer,
    clients,
    config_file::{self, Roots},
    credentials::Credentials,
    decide::{
        config::{ClusterConfig, Config, Remote},
        credential::{Account, Credential},
        directory::{Cluster, Directory, PublishedKey, SharedKey, Thumbprint, published},
        explain::Keys,
        inspect::{
            Answer, Answers, ClusterFacts, FileError, InUse, KeysError, KeysFound, Right,
            has_signed,
        },
        renewal::Source,
        state::State,
    },
    keys::{self, FetchError},
};
use crate::{
    k8s::{
        api_error::{self, ApiError},
        client,
        gate::Gate,
    },
    names::REVIEW_SECRET,
    runtime::clock::Clock,
};

/// Clusters that are asked at once.
const AT_ONCE: usize = 16;
const DISCOVERY: &str = "/.well-known/openid-configuration";

struct Member {
    name: Arc<str>,
    config: ClusterConfig,
    address: String,
    client: Result<Client, FileError>,
    /// None for the cluster that we run in.
    credential: Option<Result<(Credential, InUse), FileError>>,
}

/// Access to all clusters of a configuration.
pub struct Access {
    members: Vec<Member>,
    /// Whose each key was first.
    pub noted: BTreeMap<Thumbprint, Arc<str>>,
    /// Why what our Secret holds is not known.
    pub problem: Option<String>,
}

/// The cluster that kubectl uses, or why there is none.
pub type Here = Result<kube::Config, String>;

impl Access {
    pub async fn open(config: &Config, here: Here, namespace: &str, clock: Clock) -> Self {
        let local = here.and_then(|it| {
            let address = it.cluster_url.to_string();
            let client = client::connect(it, Gate::open(), api_error::TIMEOUT);
            client.map(|client| (client, address)).map_err(|it| ApiError::from(it).to_string())
        });
        let (state, problem) = match &local {
            Ok((client, _)) => state(client, namespace).await,
            Err(why) => (State::default(), Some(why.clone())),
        };
        let remote = config.clusters.iter().filter_map(|(name, it)| {
            it.remote.as_ref().map(|remote| (name.as_str().into(), remote.token_path.clone()))
        });
        let credentials = Credentials::new(remote, clock);
        credentials.read_files();
        credentials.take(&state);
        let member = |(name, config): (&String, &ClusterConfig)| {
            let name: Arc<str> = name.as_str().into();
            let config = config.clone();
            match &config.remote {
                Some(remote) => {
                    let client = remote_client(remote, &credentials, &name);
                    let address = remote.api_server.clone();
                    let credential = Some(credential(remote, &credentials, &name));
                    Member { name, address, client, credential, config }
                }
                None => {
                    let (client, address) = match local.clone() {
                        Ok((client, address)) => (Ok(client), address),
                        Err(why) => (Err(FileError::NoConnection(why)), "here".to_owned()),
                    };
                    Member { name, address, client, credential: None, config }
                }
            }
        };
        let members = config.clusters.iter().map(member).collect();
        let noted = state.notes.map(|it| it.owners()).unwrap_or_default();
        Self { members, noted, problem }
    }

    /// What each cluster answers, and which keys several publish.
    pub async fn facts(&self) -> (BTreeMap<Arc<str>, ClusterFacts>, Vec<SharedKey>) {
        let asked = stream::iter(&self.members).map(async |it| (it.name.clone(), facts(it).await));
        let all: BTreeMap<_, _> = asked.buffer_unordered(AT_ONCE).collect().await;
        let clusters: Vec<_> = self.members.iter().map(|it| cluster(it, &all[&it.name])).collect();
        let shared = Directory::new(&clusters, &self.noted).shared;
        (all, shared)
    }

    /// The keys of all clusters. Nothing else is asked for.
    pub async fn keys(&self) -> Keys {
        let asked = stream::iter(&self.members).map(async |it| {
            let keys = match &it.client {
                Ok(client) => keys::fetch(client).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            (it.name.clone(), keys.map(|(keys, _)| keys))
        });
        asked.buffer_unordered(AT_ONCE).collect().await
    }
}

async fn state(client: &Client, namespace: &str) -> (State, Option<String>) {
    match Writer::new(client.clone(), namespace.to_owned()).load().await {
        Ok(stored) => (stored.map(|it| it.state).unwrap_or_default(), None),
        Err(error) => {
            let why = format!("Secret {namespace}/{REVIEW_SECRET} could not be read: {error}");
            (State::default(), Some(why))
        }
    }
}

/// Each from `NAME.json` in this folder, as `kubectl get --raw /openid/v1/jwks` writes it.
pub fn keys_in(folder: &Path, config: &Config) -> Keys {
    let keys = |name: &String| -> Result<Vec<PublishedKey>, String> {
        let path = folder.join(format!("{name}.json"));
        let text = fs::read(&path)
            .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        let found = published(&text);
        found.map(|(keys, _)| keys).map_err(|error| format!("{}: {error}", path.display()))
    };
    config.clusters.keys().map(|name| (name.as_str().into(), keys(name))).collect()
}

fn remote_client(
    remote: &Remote,
    credentials: &Arc<Credentials>,
    name: &Arc<str>,
) -> Result<Client, FileError> {
    let roots = match &remote.ca_cert {
        Some(path) => Some(roots(path)?),
        None => None,
    };
    let config = clients::remote_config(name, remote, roots.as_ref());
    let client = config.and_then(|it| clients::connected(name, it, Some(credentials.bearer(name))));
    client.map_err(|error| FileError::NoConnection(error.to_string()))
}

fn roots(path: &Path) -> Result<Roots, FileError> {
    let text = fs::read(path);
    let text = text.map_err(|error| FileError::Unreadable(path.to_owned(), error.to_string()))?;
    config_file::certificates(&text).ok_or_else(|| FileError::NoCertificate(path.to_owned()))
}

fn credential(
    remote: &Remote,
    credentials: &Credentials,
    name: &Arc<str>,
) -> Result<(Credential, InUse), FileError> {
    let source = credentials.source(name);
    let held = credentials.held(name).zip(source);
    let used = held.and_then(|(held, source)| Some((held.of(source)?.clone(), source)));
    let Some((credential, source)) = used else {
        let why = credentials.file_problem(name).unwrap_or_else(|| "it is missing".to_owned());
        return Err(FileError::NoToken(remote.token_path.clone(), why));
    };
    let (source, is_renewed) = match source {
        Source::File => (remote.token_path.display().to_string(), false),
        Source::Secret => (format!("Secret {REVIEW_SECRET}"), true),
    };
    let account = credential.account.to_string();
    let in_use = InUse { account, life: credential.life, source, is_renewed };
    Ok((credential, in_use))
}

async fn facts(member: &Member) -> ClusterFacts {
    let credential = member.credential.as_ref();
    let ours = match credential {
        Some(Ok((credential, _))) => Some(credential),
        Some(Err(_)) | None => None,
    };
    let answers = match (&member.client, credential) {
        (Err(error), _) | (Ok(_), Some(Err(error))) => Err(error.clone()),
        (Ok(client), _) => Ok(answers(client, ours).await),
    };
    let credential = credential.map(|it| it.as_ref().map(|(_, it)| it.clone()));
    let credential = credential.map(|it| it.map_err(Clone::clone));
    ClusterFacts { address: member.address.clone(), credential, answers }
}

async fn answers(client: &Client, ours: Option<&Credential>) -> Answers {
    let account = ours.map(|it| &it.account);
    let (reach, rights, issuer, keys) = tokio::join!(
        reach(client),
        missing_rights(client, account),
        issuer(client, ours),
        keys::fetch(client),
    );
    let keys = keys.map_err(keys_error).map(|(keys, skipped)| {
        let signed_ours = ours.map(|it| has_signed(&keys, it.token.expose()));
        KeysFound { keys, skipped, signed_ours }
    });
    Answers { reach, rights, issuer, keys }
}

async fn reach(client: &Client) -> Answer<()> {
    match get(client, "/version").await {
        // Somebody was there to refuse it.
        Ok(_) | Err(ApiError::Unauthorized | ApiError::Forbidden | ApiError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn get(client: &Client, path: &str) -> Answer<Value> {
    let request = Request::get(path).body(Vec::new()).map_err(|_| ApiError::Undecodable)?;
    api_error::with_timeout(client.request(request)).await
}

/// As our own token names it, or else as the cluster says.
async fn issuer(client: &Client, ours: Option<&Credential>) -> Option<String> {
    if let Some(ours) = ours {
        return Some(ours.issuer.clone());
    }
    let document = get(client, DISCOVERY).await.ok()?;
    document["issuer"].as_str().map(str::to_owned)
}

async fn missing_rights(client: &Client, account: Option<&Account>) -> Answer<Vec<Right>> {
    let text = |text: &str| Some(text.to_owned());
    let review = ResourceAttributes {
        group: text("authentication.k8s.io"),
        resource: text("tokenreviews"),
        verb: text("create"),
        ..ResourceAttributes::default()
    };
    let mut wanted = vec![(Right::Review, review)];
    if let Some(account) = account {
        let renew = ResourceAttributes {
            resource: text("serviceaccounts"),
            subresource: text("token"),
            verb: text("create"),
            namespace: text(&account.namespace),
            name: text(&account.name),
            ..ResourceAttributes::default()
        };
        wanted.push((Right::Renew, renew));
    }
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for (right, attributes) in wanted {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = api_error::with_timeout(api.create(&PostParams::default(), &question)).await?;
        if !answer.status.is_some_and(|it| it.allowed) {
            missing.push(right);
        }
    }
    Ok(missing)
}

fn keys_error(error: FetchError) -> KeysError {
    match error {
        FetchError::Call(error) => KeysError::Call(error),
        FetchError::Status(401) => KeysError::Call(ApiError::Unauthorized),
        FetchError::Status(403) => KeysError::Call(ApiError::Forbidden),
        FetchError::Status(code) if code >= 500 => KeysError::Call(ApiError::Server { code }),
        error => KeysError::Content(error.to_string()),
    }
}

fn cluster(member: &Member, facts: &ClusterFacts) -> Cluster {
    let keys = match &facts.answers {
        Ok(Answers { keys: Ok(found), .. }) => found.keys.clone(),
        Ok(_) | Err(_) => Vec::new(),
    };
    Cluster {
        name: member.name.clone(),
        issuers: member.config.issuers.clone(),
        claimed: member.config.kids.clone(),
        keys,
    }
}
