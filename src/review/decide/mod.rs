//! Whose a token is, and whether an answer about it counts. Pure: no client, no clock, no log.
//!
//! A token is read ([`token`]), its cluster found by the key that signed it ([`detect`], with the keys of
//! [`directory`]), and what that cluster answers is compared with the claims ([`cluster_answer`]).

pub mod callers;
pub mod cluster_answer;
pub mod config;
pub mod credential;
pub mod detect;
pub mod directory;
pub mod explain;
pub mod identity;
pub mod inspect;
pub mod notes;
pub mod register;
pub mod renewal;
pub mod request;
pub mod state;
pub mod status;
pub mod status_report;
#[cfg(test)]
pub(crate) mod testing;
pub mod token;
