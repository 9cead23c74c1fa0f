//! The authority on the API server in this process: its CA, its endpoint, and federations with a partner
//! whose endpoint listens on the loopback.

mod agent_stage;
mod bad_answers;
mod blocked;
mod ca;
mod federation;
mod join;
mod join_client;
mod join_server;
mod join_token;
mod peer;
mod real;
mod stage;
mod validation;
mod workload_api;
