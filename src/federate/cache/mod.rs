//! State that outlives a process.

pub mod bundle_cache;
