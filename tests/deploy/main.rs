//! What is installed: overlays, chart, alerts, dashboard, image. Judged by the tools that a user
//! would use: kubectl, helm, promtool, BuildKit, and a real API server.

#[path = "../cluster/support/mod.rs"]
mod support;

mod objects;
mod tools;

mod alerts;
mod chart;
mod containerfile;
mod federate;
mod flow_control;
mod overlays;
mod release;
