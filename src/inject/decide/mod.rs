//! Decisions about a Route. Pure: no client, no clock, no lock, no log.
//!
//! Modules use only those below them: plan, messages, write, facts, then the rest.

pub mod apply_error;
pub mod condition;
pub mod facts;
pub mod marker;
pub mod messages;
pub mod plan;
pub mod secret_state;
pub mod source;
pub mod state;
pub mod write;
