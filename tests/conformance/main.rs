//! The sandbox answers as a real kube-apiserver does: random sequences of calls go to both, and what
//! they say is compared after uids, resourceVersions, times and generated names were taken out.
//!
//! - [`generate`] makes the calls up, [`sequence`] sends them to both sides and compares;
//! - [`cases`], [`spire`] and [`lifecycle`] are sequences that chance would not find;
//! - [`kubectl`] does the same with the real kubectl and what it prints;
//! - [`differences`] lists what is known to differ, and why it may;
//! - [`harness`] shows that a difference would be found.
//!
//! `TRUSTPLANE_SEED` repeats a run; `TRUSTPLANE_LONG` makes it ten times as long.

mod call;
mod cases;
mod compare;
mod compared;
mod differences;
mod generate;
mod harness;
mod kubectl;
mod liar;
mod lifecycle;
mod memory;
mod normal;
mod real;
mod sandbox;
mod sequence;
mod side;
mod spire;
