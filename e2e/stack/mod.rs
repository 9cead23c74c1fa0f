//! The real parts: etcd, kube-apiserver, kube-controller-manager, cert-manager, HAProxy, trustplane.

use std::process::ExitCode;

/// A running stack.
pub struct Stack;

/// Starts the stack for a person, and stays until Ctrl-C.
pub async fn stay() -> ExitCode {
    ExitCode::FAILURE
}
