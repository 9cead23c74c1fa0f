//! A cluster that lies, hangs or is away: its own API server, with a proxy in between that changes requests and
//! answers.

use super::{member::Member, recording_proxy::RecordingProxy};
use crate::proxy::{Fault, Proxy, SeenRequest};

/// Ends with this.
pub struct Disturbed {
    /// What the cluster was sent. In front, so that nothing is changed before it is noted.
    pub recording: RecordingProxy,
    pub proxy: Proxy,
}

impl Member {
    /// Another way to the same API server, on the runtime of the calling test. By it, HTTP/1.1 is spoken.
    pub async fn disturbed(
        &self,
        script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
    ) -> Disturbed {
        let proxy = Proxy::before(self.admin(), script).await;
        let recording =
            RecordingProxy::start_before_plain(self.name(), self.ca(), proxy.address()).await;
        Disturbed { recording: recording.expect("a proxy can listen"), proxy }
    }
}
