//! Command check: is a cluster ready for trustplane, and is what is installed in order?
//!
//! `gather` asks the API server, `checks` evaluates the answers, `printer` shows them. Only `gather`,
//! `controller`, `questions`, `federate`, `authority`, `join_port`, `review`, `routes` and `probe` have a client,
//! and only `probe` changes anything: the command asks first.
//! `rights` and `policy` know what deploy/ asks for: they read the manifests themselves, so that the
//! two can't differ.

pub mod authority;
pub mod checks;
pub mod controller;
pub mod crd;
pub mod facts;
pub mod federate;
pub mod found;
pub mod gather;
pub mod join_port;
pub mod policy;
pub mod printer;
pub mod probe;
mod questions;
pub mod review;
pub mod rights;
pub mod routes;
