//! Command uninstall: removes what we keep in Routes, as the administrator chooses.
//!
//! `plan` decides from a Route alone and is pure, `execute` does it, `running` knows whether a
//! controller is still at work, `federate` what is left alone, `printer` shows it all. The writes themselves are `inject::apply`'s,
//! the only writer of Routes.

pub mod execute;
pub mod federate;
pub mod plan;
pub mod printer;
pub mod running;
