//! Several clusters for `trustplane review`: kube-apiservers on one etcd with tokens of their own, each behind a
//! proxy that notes every byte.
//!
//! - [`Member`]: a cluster, its objects and its tokens.
//! - [`SigningKey`]: signs tokens, those that no cluster would sign, too.
//! - [`RecordingProxy`]: what a cluster was sent. [`Switch`]: leads to one server after another.
//! - [`Disturbed`]: a cluster that lies or hangs.
//! - [`leaks`]: finds a token wherever it should not be.
//! - [`Caller`]: client-go, as services use it.
//! - [`Product`]: `trustplane review` as a process.

mod api_server;
mod caller;
mod disturbed;
pub mod leaks;
mod member;
mod product;
mod recording_proxy;
mod signing_key;
mod switch;
mod tokens;

pub use api_server::{ApiServer, Etcd};
pub use caller::{Caller, Encoding};
pub use disturbed::Disturbed;
pub use member::{Member, Profile, RawAnswer, ask};
pub use product::{Address, KeptCaller, Options, Product};
pub use recording_proxy::{RecordingProxy, Traffic};
pub use signing_key::{KeyKind, SigningKey};
pub use switch::Switch;
pub use tokens::{Account, Bound, TokenOrder};
