//! Command uninstall: removes what we keep in Routes, as the administrator chooses.
//!
//! `plan` decides from a Route alone and is pure, `execute` does it, `running` finds controllers that
//! still run, `others` what is left alone, `printer` shows it all. Only `inject::act::apply` writes.

pub mod authority;
pub mod execute;
pub mod federate;
pub mod others;
pub mod plan;
pub mod printer;
pub mod review;
pub mod running;
