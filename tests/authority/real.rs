//! With real parts: SPIRE, go-spiffe, and the program itself on a real API server.

mod by_hand;
mod empty;
mod join;
mod machine;
mod program;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod spire;
mod walk;
mod workload;
