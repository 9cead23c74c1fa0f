//! With real parts: kube-apiservers, client-go, kubectl, kube-controller-manager, and the program itself.
//!
//! All tests share the servers of [`stage`] and one `trustplane review`. A test that needs another configuration,
//! or a cluster that misbehaves, starts a `trustplane review` of its own beside the same servers.

mod answers;
mod cached;
mod controller_manager;
mod copied_key;
mod credentials;
mod kubectl;
mod leaks;
mod liar;
mod outage;
mod revoked;
mod rotation;
mod services;
mod stage;
mod taken;
mod webhook;
