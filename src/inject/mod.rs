//! Job inject: the certificate of a TLS Secret into the Routes that ask for it.
//!
//! `facts` reads a Route, `secret_reads` a Secret, `plan` decides, `words` says it, `apply` writes, `index`
//! remembers, `reconcile` brings one Route into its state, `run` ties watches to the queue. Only `apply` may
//! change a Route, and only `plan` may decide to.

pub mod apply;
pub mod capability;
pub mod condition;
pub mod contest;
pub mod facts;
pub mod index;
pub mod metrics;
pub mod note;
pub mod plan;
pub mod reconcile;
pub mod refusals;
pub mod run;
pub mod secret_reads;
pub mod source;
pub mod survey;
pub mod watches;
pub mod words;
