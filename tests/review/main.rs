//! `trustplane review`: in the process, and in the module `real` with real API servers.

mod commands;
mod real;
