//! SPIRE federation: on real API servers, with real SPIRE servers, controller managers and an ACME
//! server.
//!
//! - [`validation`]: what the CRD accepts and refuses, [`roundtrip`]: and keeps;
//! - [`alerts`]: when people are told about a peer;
//! - [`life`]: from a SpireServer to its objects;
//! - [`confused_deputy`]: who may have a Secret's key, or a host, put into its Route;
//! - [`edit_rights`]: what the right to edit a SpireServer is worth, field by field;
//! - [`hostile_database`]: a database that asks for the server's keys;
//! - [`generated`]: whatever is accepted, the real SPIRE server accepts and starts with;
//! - [`crash`]: the controller is killed at every one of its calls;
//! - [`rendered`]: what we render, read by the real SPIRE server and controller manager;
//! - [`pod`]: the Pod that we render, run as a kubelet runs it;
//! - [`mounted_secrets`]: the same with Secrets in it;
//! - [`upkeep`]: credentials and old labels that must not be on its objects;
//! - [`many_peers`]: as many peers as there may be, some slow or dead;
//! - [`kept`]: what counts while a SpireServer is invalid, and what SPIRE trusts beside it;
//! - [`readiness`]: what Ready and PeersReachable wait for;
//! - [`mixed`]: peers of both profiles, and mistakes about them;
//! - [`peer_outage`]: a peer that goes dark beside others that do not;
//! - [`refused_parts`]: what only the API server refuses, and a SpireServer that a finalizer holds;
//! - [`removal`]: the controller is removed, and the SPIRE server goes on;
//! - [`replicas`]: two controllers, of which one writes;
//! - [`together`]: clusters that federate by https_spiffe, with real parts only;
//! - [`web`]: the same by https_web;
//! - [`workload`]: what a workload gets of it;
//! - [`walk`]: docs/federate.md, command by command, up to mTLS between workloads of two clusters;
//! - [`real_spire`]: SPIRE servers with configurations written by hand: what the others stand on.

mod administrator;
mod figures;
mod issuing;
mod only;
mod side;
mod workload;

mod alerts;
mod confused_deputy;
mod crash;
mod edit_rights;
mod generated;
mod hostile_database;
mod kept;
mod life;
mod many_peers;
mod mixed;
mod mounted_secrets;
mod peer_outage;
mod pod;
mod readiness;
mod real_spire;
mod refused_parts;
mod removal;
mod rendered;
mod replicas;
mod roundtrip;
mod together;
mod upkeep;
mod validation;
mod walk;
mod web;
