//! The map of the rooms. An arrow means "may use"; everybody may use what is further down.
//!
//! ```text
//!                cli            flags to options, options to exit code
//!                 |
//!     check   uninstall   demo  commands
//!                 |
//!  inject federate authority review  jobs: decide/ (pure)  act/  cache/  run.rs
//!                 |
//!        bundle   |             fetches and serves SPIFFE bundles
//!                 |
//!        k8s <-> runtime        the Kubernetes API; what every job runs in
//!                 |
//!     api  tls  spiffe  jose names Kubernetes types; judgement of certificates, SPIFFE documents, tokens
//! ```
//!
//! - `decide/` folders, `tls`, `spiffe` and `jose` are pure: no client, no clock, no lock, no log, no tokio. Of
//!   `runtime` they use `redact` and `printable`, which are pure, too.
//! - A job does not use another job. They meet in `tls`, `spiffe`, `jose`, `bundle`, `runtime`
//!   and `k8s`.
//! - No room below the jobs uses a job or a command.
//! - No modules use each other in a circle, but for a module and its own children.
//!
//! `tests/architecture` fails on a `use` that breaks one of these; docs/architecture.md has the whole
//! picture.
#![forbid(unsafe_code)]

pub mod api;
pub mod authority;
pub mod bundle;
pub(crate) mod check;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
pub mod federate;
pub mod inject;
pub mod jose;
pub mod k8s;
pub mod names;
pub mod review;
pub mod runtime;
pub mod spiffe;
pub mod tls;
pub(crate) mod uninstall;
