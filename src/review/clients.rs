//! Makes the clients that clusters are asked with.

use std::{collections::BTreeMap, sync::Arc};

use http::Uri;
use kube::{Client, Config as ClientConfig};

use super::{
    config_file::{Loaded, Roots},
    credentials::Credentials,
    decide::config::Remote,
};
use crate::k8s::client::{self, Bearer};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cluster {cluster}: {api_server} is no address")]
    Address { cluster: Arc<str>, api_server: String },
    /// Names no more than certificates and addresses.
    #[error("cluster {cluster} can't be reached as it is configured: {cause}")]
    Unusable { cluster: Arc<str>, cause: kube::Error },
}

pub struct Clients {
    /// For keys and reviews, with the credential in use. The local cluster is asked as everything of this process
    /// is asked.
    pub all: BTreeMap<Arc<str>, Client>,
    /// For renewals of the credentials of remote clusters.
    pub renewals: BTreeMap<Arc<str>, Client>,
}

impl Clients {
    pub fn of(
        loaded: &Loaded,
        local: &ClientConfig,
        credentials: &Arc<Credentials>,
    ) -> Result<Self, ClientError> {
        let (mut all, mut renewals) = (BTreeMap::new(), BTreeMap::new());
        for (name, cluster) in &loaded.config.clusters {
            let name: Arc<str> = name.as_str().into();
            let Some(remote) = &cluster.remote else {
                all.insert(name.clone(), connected(&name, local.clone(), None)?);
                continue;
            };
            let config = remote_config(&name, remote, loaded.roots.get(&*name))?;
            let client = connected(&name, config.clone(), Some(credentials.bearer(&name)))?;
            all.insert(name.clone(), client);
            let bearer = credentials.renewal_bearer(&name);
            renewals.insert(name.clone(), connected(&name, config, Some(bearer))?);
        }
        Ok(Self { all, renewals })
    }
}

pub(super) fn remote_config(
    cluster: &Arc<str>,
    remote: &Remote,
    roots: Option<&Roots>,
) -> Result<ClientConfig, ClientError> {
    let address: Uri = remote.api_server.parse().map_err(|_| ClientError::Address {
        cluster: cluster.clone(),
        api_server: remote.api_server.clone(),
    })?;
    let mut config = ClientConfig::new(address);
    config.root_cert = roots.cloned();
    Ok(config)
}

pub(super) fn connected(
    cluster: &Arc<str>,
    config: ClientConfig,
    bearer: Option<Arc<dyn Bearer>>,
) -> Result<Client, ClientError> {
    let unusable = |cause| ClientError::Unusable { cluster: cluster.clone(), cause };
    client::connect_http2(config, bearer).map_err(unusable)
}
