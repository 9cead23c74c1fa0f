//! What every job runs in: listeners, the lease, logs, the clock. Knows no job.

pub mod audit_log;
pub mod clock;
pub(crate) mod connection_limit;
pub(crate) mod controller;
pub mod failpoints;
pub(crate) mod flags;
pub(crate) mod health;
pub mod http_listener;
pub(crate) mod idle_first;
pub mod lease;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod printable;
pub(crate) mod proxy_protocol;
pub mod redact;
pub(crate) mod reloader;
pub(crate) mod server_verifier;
pub(crate) mod shutdown;
pub(crate) mod terminal;
pub mod tls_listener;
pub(crate) mod token_auth;
