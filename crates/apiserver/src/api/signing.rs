//! How a server issues tokens, for the program that it is part of, and the documents about it.

use std::sync::{MutexGuard, PoisonError};

use http::{HeaderMap, HeaderValue, Method, header::ACCEPT, request::Parts};
use serde_json::Value;

use super::{ApiServer, answer::Answer};
use crate::{
    api_error::ApiError,
    tokens::{KeyError, Publication, TokenOptions, Tokens},
};

impl ApiServer {
    /// Sets how tokens are issued from now on.
    pub fn set_token_options(&self, options: TokenOptions) {
        self.tokens().options = options;
    }

    /// Signs with another key from now on, and returns its id: with the one that was prepared, or with
    /// a new one that is published now. Tokens of the keys before stay good.
    pub fn rotate_signing_key(&self) -> Result<String, KeyError> {
        self.tokens().keys().rotate()
    }

    /// Makes the key with which [`Self::rotate_signing_key`] will sign, and returns its id.
    pub fn prepare_signing_key(&self, publication: Publication) -> Result<String, KeyError> {
        self.tokens().keys().prepare(publication)
    }

    /// Publishes every key that is not published yet.
    pub fn publish_signing_keys(&self) {
        self.tokens().keys().publish_all();
    }

    /// Forgets the keys that signed before the present one: their tokens end.
    pub fn retire_signing_keys(&self) {
        self.tokens().keys().retire();
    }

    /// Publishes keys of others beside our own, as a hostile cluster can: `keys` of a JWKS.
    pub fn publish_copied_keys(&self, keys: Vec<Value>) {
        self.tokens().keys().publish_copies(keys);
    }

    pub(super) fn tokens(&self) -> MutexGuard<'_, Tokens> {
        // Nothing panics that holds it.
        self.inner.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn configuration(server: &ApiServer, parts: &Parts) -> Result<Answer, ApiError> {
    let configuration = server.tokens().configuration();
    document(parts, configuration, "application/json")
}

pub(super) fn jwks(server: &ApiServer, parts: &Parts) -> Result<Answer, ApiError> {
    let keys = server.tokens().keys().jwks();
    let keys = keys.map_err(|error| ApiError::internal(&error.to_string()))?;
    document(parts, keys, "application/jwk-set+json")
}

fn document(
    parts: &Parts,
    document: Value,
    content_type: &'static str,
) -> Result<Answer, ApiError> {
    if parts.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    if !accepts(&parts.headers, content_type) {
        return Err(ApiError::only_available_as(content_type));
    }
    Ok(Answer::typed(document, content_type).cached())
}

fn accepts(headers: &HeaderMap, content_type: &str) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    let ranges = |value: &HeaderValue| -> Vec<String> {
        let ranges = value.to_str().unwrap_or_default().split(',');
        ranges.map(|range| range.split(';').next().unwrap_or_default().trim().to_owned()).collect()
    };
    accepted.peek().is_none()
        || accepted.flat_map(ranges).any(|range| range == "*/*" || range == content_type)
}
