//! The format that a client accepts.

use http::{HeaderMap, header::ACCEPT};

use crate::api_error::ApiError;

/// A supported format: always JSON, with different content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The objects themselves.
    Plain,
    /// Rows and columns for people.
    Table,
    /// Only the metadata of an object.
    Metadata,
    /// Only the metadata of the objects in a list.
    MetadataList,
    /// Discovery of all groups at once.
    Discovery,
}

impl Format {
    /// The first supported format that the client accepts.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let accepted: Vec<&str> =
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if accepted.is_empty() {
            return Ok(Self::Plain);
        }
        let ranges = accepted.iter().flat_map(|value| value.split(','));
        ranges.into_iter().find_map(Self::read).ok_or_else(ApiError::not_acceptable)
    }

    fn read(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "*/*" | "application/*" | "") {
            return None;
        }
        let parameter = |name: &str| {
            let mut parts = range.split(';').skip(1).map(str::trim);
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        match (parameter("as"), parameter("g"), parameter("v")) {
            (None, ..) => Some(Self::Plain),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Self::Table),
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1")) => {
                Some(Self::Metadata)
            }
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                Some(Self::MetadataList)
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
                Some(Self::Discovery)
            }
            _ => None,
        }
    }
}
