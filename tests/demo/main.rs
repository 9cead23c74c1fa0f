//! The sandbox: its edge, its commands, its tour.

mod authority_tour;
mod broken_tour;
mod edge;
mod edge_behind;
mod edge_status;
mod federation_tour;
mod in_process;
mod join_tour;
mod program;
mod review_tour;
mod stage;
mod tours;
