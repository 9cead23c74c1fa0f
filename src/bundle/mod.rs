//! SPIFFE bundle endpoints: the client that fetches from them, and a server that is one. What is read
//! is judged in `spiffe/`; what becomes of it is for others to decide.

pub mod fetch;
pub mod serve;
