//! Signed tokens (JWS) and the public keys that sign them (JWK). Pure, and total: every input has an answer.

pub mod json;
pub mod jwk;
pub mod jws;
