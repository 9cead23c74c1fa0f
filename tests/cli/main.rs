//! The commands of an administrator, and metrics behind authentication, on a real API server.

mod authority;
mod check;
mod check_policy;
mod check_routes;
mod federate;
mod metrics;
mod program;
mod review;
mod sandbox;
mod uninstall;
