//! How the suite reaches a cluster, its own or a foreign one.

use std::path::PathBuf;
use std::sync::Arc;

use crate::stack::Stack;

/// Where a suite runs.
#[derive(Clone)]
pub struct Reach {
    /// Its user runs the suite.
    pub kubeconfig: PathBuf,
    /// `host:port` where TLS is served; the server name of a handshake picks the Route. None where a
    /// Route has to tell.
    pub router: Option<String>,
    /// None on a foreign cluster.
    pub stack: Option<Arc<Stack>>,
}
