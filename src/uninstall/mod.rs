//! Command uninstall: removes what we keep in Routes, as the administrator chooses.
//!
//! `plan` decides from a Route alone and is pure, `carry` does it, `running` knows whether a
//! controller is still at work, `federate` what is left alone, `paper` shows it all. The writes themselves are `inject::apply`'s,
//! the only writer of Routes.

pub mod carry;
pub mod federate;
pub mod paper;
pub mod plan;
pub mod running;
