//! Command check: is a cluster ready for trustplane, and is what is installed in order?
//!
//! `gather` asks the API server, `lines` judges what it found, `paper` shows it. Only `gather` has
//! a client, and it changes nothing. `rights` and `policy` know what deploy/ asks for: they read
//! the manifests themselves, so that the two can't differ.

pub mod facts;
pub mod gather;
pub mod lines;
pub mod paper;
pub mod policy;
pub mod rights;
