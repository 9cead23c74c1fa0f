//! With real parts: SPIRE, go-spiffe, and the program itself on a real API server.

mod program;
mod spire;
