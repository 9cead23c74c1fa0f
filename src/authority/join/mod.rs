//! Joining with an SVID of a federated trust domain: a client proves that it holds its key, and gets an SVID
//! of ours.

pub mod client;
pub mod messages;
pub mod output_dir;
pub mod own_svid;
pub mod request;
pub mod server;
pub mod view;
