//! Keeps our credentials for remote clusters valid, and says how it stands with each cluster.
//!
//! The leader renews ([`renew`]) and writes what it got into our Secret ([`apply`]); all replicas read the Secret
//! and use what it holds ([`follow`]). [`status`] is for people.

pub mod apply;
mod failure;
mod follow;
pub mod renew;
mod status;
mod token_request;

#[cfg(test)]
mod testing;
