//! The client of SPIFFE bundle endpoints. What it reads is judged in `spiffe/`; what becomes of it
//! is for others to decide.

pub mod fetch;
