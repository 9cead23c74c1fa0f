//! The whole product on one machine, without a cluster.

pub mod authority;
pub mod edge;
pub mod kubeconfig;
pub mod loopback;
pub mod serve;
pub mod shown;
