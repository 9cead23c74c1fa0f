//! The commands of an administrator, and metrics behind authentication, on a real API server.

mod check;
mod metrics;
mod program;
#[path = "../cluster/support/mod.rs"]
mod support;
mod uninstall;
