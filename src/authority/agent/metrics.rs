//! Metrics of an agent.

use std::sync::{Arc, Mutex, atomic::AtomicI64};

use chrono::{DateTime, Utc};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

use crate::runtime::lock::lock;

type Labels = [(&'static str, &'static str); 1];

#[derive(Debug, Default)]
pub struct Metrics {
    joins: Family<Labels, Counter>,
    pub(super) following: Gauge<i64, AtomicI64>,
    /// None until the first join: an agent that starts is not one whose SVID has ended.
    svid_expiry: Mutex<Option<DateTime<Utc>>>,
    pub(super) bundles: Gauge<i64, AtomicI64>,
    pub(super) subscriptions: Gauge<i64, AtomicI64>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Arc::new(Self::default());
        let joins = metrics.joins.clone();
        registry.register("spiffe_agent_joins", "Joins and renewals by result", joins);
        let gauges = [
            ("following", "Whether the server sends us bundles", &metrics.following),
            ("bundles", "Bundles that workloads are served", &metrics.bundles),
            ("subscriptions", "Open streams of workloads", &metrics.subscriptions),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("spiffe_agent_{name}"), help, gauge.clone());
        }
        registry.register_collector(Box::new(SvidExpiry(metrics.clone())));
        metrics
    }

    pub(super) fn set_svid_expiry(&self, at: DateTime<Utc>) {
        *lock(&self.svid_expiry) = Some(at);
    }

    pub(super) fn joined(&self, result: &'static str) {
        self.joins.get_or_create(&[("result", result)]).inc();
    }
}

#[derive(Debug)]
struct SvidExpiry(Arc<Metrics>);

impl Collector for SvidExpiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(at) = *lock(&self.0.svid_expiry) else { return Ok(()) };
        let name = "spiffe_agent_svid_expiry_timestamp_seconds";
        let help = "When our SVID ends; workloads are served until then";
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(at.timestamp() as f64).encode(encoder)
    }
}
