//! What every controller needs, and nothing that knows what a Route is.

pub mod access;
pub mod backoff;
pub mod call;
pub mod client;
pub mod clock;
pub mod crowd;
pub mod decode;
pub mod events;
pub mod health;
pub mod lease;
pub mod log;
pub mod pace;
pub mod pages;
pub mod paper;
pub mod pause;
pub mod printable;
pub mod queue;
pub mod redact;
pub mod secure;
pub mod seeded;
pub mod shutdown;
pub mod watch;
