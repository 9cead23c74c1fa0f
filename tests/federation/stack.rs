//! The router of the end-to-end suite, and its other parts.
#![allow(dead_code, unused_imports)]

#[path = "../../e2e/suite/authority.rs"]
pub mod authority;
#[path = "../../e2e/stack/backend.rs"]
pub mod backend;
#[path = "../../e2e/stack/journal.rs"]
pub mod journal;
#[path = "../../e2e/stack/parts.rs"]
pub mod parts;
#[path = "../../e2e/stack/router/mod.rs"]
pub mod router;
