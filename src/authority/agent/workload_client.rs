//! Asks a Workload API for the SVID that we have in another trust domain.

use std::{path::Path, time::Duration};

use http::{Uri, uri::PathAndQuery};
use tokio::{net::UnixStream, time::timeout};
use tonic::{
    Code, Request, Status, Streaming, client::Grpc, metadata::MetadataValue, transport::Channel,
};
use tonic_prost::ProstCodec;

use super::messages::{Empty, FETCH_X509_SVID, HEADER, X509SvidResponse};
use crate::{
    authority::grpc,
    runtime::{printable::printable, redact::Pkcs8Key},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Bundles of hundreds of trust domains come with the SVID.
const LONGEST_MESSAGE: usize = 64 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadApiError {
    #[error("the Workload API at {path} can't be reached: {why}. Does its agent run?")]
    Unreachable { path: String, why: String },
    #[error(
        "the Workload API at {0} has no SVID for us. Register this workload in its trust domain first"
    )]
    NotEntitled(String),
    #[error("the Workload API at {path} failed: {why}")]
    Failed { path: String, why: String },
    #[error("the Workload API at {path} did not answer within {PATIENCE:?}")]
    TooSlow { path: String },
}

/// The default SVID, which is the first one: its chain in DER, and its key.
pub async fn fetch_svid(socket: &Path) -> Result<(Vec<u8>, Pkcs8Key), WorkloadApiError> {
    let path = socket.display().to_string();
    match timeout(PATIENCE, fetch(socket)).await {
        Ok(fetched) => fetched,
        Err(_) => Err(WorkloadApiError::TooSlow { path }),
    }
}

async fn fetch(socket: &Path) -> Result<(Vec<u8>, Pkcs8Key), WorkloadApiError> {
    let first = subscribe(socket).await?.message().await.map_err(|it| failed(socket, &it))?;
    let svid = first.and_then(|it| it.svids.into_iter().next());
    let svid = svid.ok_or_else(|| WorkloadApiError::NotEntitled(socket.display().to_string()))?;
    Ok((svid.x509_svid, Pkcs8Key::new(svid.x509_svid_key)))
}

/// The stream of a workload's SVIDs and bundles.
pub async fn subscribe(socket: &Path) -> Result<Streaming<X509SvidResponse>, WorkloadApiError> {
    let mut grpc = Grpc::new(connect(socket).await?).max_decoding_message_size(LONGEST_MESSAGE);
    grpc.ready().await.map_err(|error| failed(socket, &Status::from_error(error.into())))?;
    let mut request = Request::new(Empty {});
    request.metadata_mut().insert(HEADER, MetadataValue::from_static("true"));
    let method = PathAndQuery::from_static(FETCH_X509_SVID);
    let codec = ProstCodec::<Empty, X509SvidResponse>::default();
    let response = grpc.server_streaming(request, method, codec).await;
    Ok(response.map_err(|status| failed(socket, &status))?.into_inner())
}

/// What a failed call means.
pub fn failed(socket: &Path, status: &Status) -> WorkloadApiError {
    let path = socket.display().to_string();
    match status.code() {
        Code::PermissionDenied => WorkloadApiError::NotEntitled(path),
        code => {
            let why = format!("{} ({code:?})", printable(status.message()));
            WorkloadApiError::Failed { path, why }
        }
    }
}

async fn connect(socket: &Path) -> Result<Channel, WorkloadApiError> {
    let unreachable = |why: String| {
        let path = socket.display().to_string();
        WorkloadApiError::Unreachable { path, why }
    };
    let stream = UnixStream::connect(socket).await.map_err(|it| unreachable(it.to_string()))?;
    // The name of a host means nothing on a UNIX socket.
    let channel = grpc::channel(stream, Uri::from_static("http://localhost")).await;
    channel.map_err(|error| unreachable(error.to_string()))
}
