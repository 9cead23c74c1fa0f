//! Promises that only a real API server can judge. `testkit` starts one; the tests share it.

mod scene;

mod changes;
mod crash;
mod deployment;
mod fault_proxy;
mod gitops;
mod harness;
mod no_leaks;
mod no_orphans;
mod operator;
mod origin;
mod policy;
mod refused;
mod replicas;
mod route_crd;
mod router;
mod state_machine;
mod tenants;
mod thousand;
mod transitions;
mod traps;
mod versions;
