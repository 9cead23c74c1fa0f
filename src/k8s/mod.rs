//! What every controller needs of the Kubernetes API: the client with its gate, lists and watches, the
//! work queue, Events, errors. Knows no job.

pub mod api_error;
pub mod backoff;
pub mod client;
pub mod decode;
pub mod events;
pub mod gate;
pub mod object_ref;
pub mod pages;
pub mod queue;
pub mod retry_after;
pub mod revert_backoff;
pub mod sandbox;
pub mod watch;
pub mod watch_throttle;
