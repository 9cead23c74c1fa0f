//! What the authority reads and writes. `apply.rs` alone writes to the API.

pub mod apply;
pub mod fetch;
pub mod signer;
