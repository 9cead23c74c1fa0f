//! The installation: overlays, chart, alerts, dashboard, image. Judged by the tools that a user
//! would use: kubectl, helm, promtool, BuildKit, and a real API server.

mod crate_cache;
mod objects;

mod agent;
mod alerts;
mod authority;
mod chart;
mod containerfile;
mod federate;
mod flow_control;
mod job_alerts;
mod overlays;
mod release;
mod review;
