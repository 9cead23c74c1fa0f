//! The map of the rooms. Each says at its top what it is for and what may not enter.
#![forbid(unsafe_code)]

pub mod api;
pub mod bundle;
pub mod check;
pub mod cli;
pub mod demo;
pub mod federate;
pub mod inject;
pub mod k8s;
pub mod names;
pub mod runtime;
pub mod spiffe;
pub mod tls;
pub mod uninstall;
