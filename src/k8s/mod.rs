//! What every controller needs of the Kubernetes API: the client with its gate, lists and watches, the
//! work queue, Events, errors. Knows no job.

pub mod api_error;
pub(crate) mod backoff;
pub mod client;
pub(crate) mod decode;
pub(crate) mod events;
pub mod gate;
mod http2;
pub(crate) mod object_ref;
pub(crate) mod pages;
pub(crate) mod queue;
pub(crate) mod retry_after;
pub(crate) mod revert_backoff;
pub(crate) mod sandbox;
pub(crate) mod watch;
pub(crate) mod watch_throttle;
