//! The sandbox answers like a real kube-apiserver: random sequences of calls go to both, and their
//! answers are compared without uids, resourceVersions, times and generated names.
//!
//! - [`generate`] makes random calls, [`sequence`] sends them to both sides and compares;
//! - [`cases`], [`spire`], [`lifecycle`] and [`tokens`] are handwritten sequences;
//! - [`kubectl`] compares the output of the real kubectl;
//! - [`differences`] lists the known differences, and why they are acceptable;
//! - [`harness`] shows that other differences would be found, with [`defects`].
//!
//! `TRUSTPLANE_SEED` repeats a run; `TRUSTPLANE_LONG` makes it ten times as long.

mod batch;
mod call;
mod cases;
mod compare;
mod defects;
mod differences;
mod generate;
mod harness;
mod kubectl;
mod lifecycle;
mod normalise;
mod placeholders;
mod real;
mod sandbox;
mod sequence;
mod side;
mod spire;
mod tokens;
