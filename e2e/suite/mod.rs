//! The cases: what a user does, and what a TLS client is served afterwards.

use std::process::ExitCode;

/// Runs the suite on a stack of its own.
pub async fn on_a_stack() -> ExitCode {
    ExitCode::FAILURE
}

/// Runs what any cluster can show against the one that KUBECONFIG names.
pub async fn on_a_cluster() -> ExitCode {
    ExitCode::FAILURE
}
