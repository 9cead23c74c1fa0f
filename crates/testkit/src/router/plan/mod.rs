//! Decides how Routes are served. Pure: no client, no clock, no log, no files.
//!
//! - [`offer`]: how a single Route is served, or why it is refused.
//! - [`Table`]: which Route gets which host.
//! - [`render`]: the files that HAProxy reads.
//! - [`status`]: the `.status.ingress` of each Route.
//!
//! It judges certificates with OpenSSL and not with `src/tls`, which the tests compare it with.
//!
//! Paths, weights and plain HTTP are ignored: one Route has a host, and it is served over TLS.

mod offer;
mod pem;
mod render;
mod route;
pub mod status;
mod table;

pub use offer::{Offer, Termination, offer};
pub use render::{CONFIGURATION, Files, Layout, render};
pub use route::Route;
pub use table::{Admission, At, Entry, Table};
