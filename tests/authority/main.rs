//! The authority on the API server in this process: its CA, its endpoint, and federations with a partner
//! whose endpoint listens on the loopback.

mod bad_answers;
mod blocked;
mod ca;
mod federation;
mod peer;
mod real;
mod stage;
