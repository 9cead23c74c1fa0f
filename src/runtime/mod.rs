//! What every job runs in: listeners, the lease, logs, the clock. Knows no job.

pub mod clock;
pub mod connection_limit;
pub mod controller;
pub mod failpoints;
pub mod flags;
pub mod health;
pub mod http_listener;
pub mod lease;
pub mod lock;
pub mod log;
pub mod printable;
pub mod redact;
pub mod server_verifier;
pub mod shutdown;
pub mod terminal;
pub mod tls_listener;
pub mod token_auth;
