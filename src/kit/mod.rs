//! What every controller needs, and nothing that knows what a Route is.

pub mod redact;
