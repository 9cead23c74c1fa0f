//! What federation remembers of its peers.

pub mod bundle_cache;
