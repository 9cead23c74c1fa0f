//! Figures of job inject. Every label has a bound; the only ones that grow name managed Routes.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;

use crate::{
    inject::{cache::index::Index, decide::state::State},
    k8s::{gate::Gate, object_ref::ObjectRef, queue::Queue},
    runtime::{clock::Clock, lock::lock},
};

type Labels<const N: usize> = [(&'static str, &'static str); N];

#[derive(Clone, Debug)]
pub struct Metrics {
    writes: Family<Labels<2>, Counter>,
    watch_restarts: Family<Labels<1>, Counter>,
    undecodable: Family<Labels<1>, Counter>,
    failures: Family<Labels<1>, Counter>,
    reconcile: Histogram,
    secret_to_route: Histogram,
}

impl Metrics {
    /// Registers everything, the figures that are read off the caches included.
    pub fn register(registry: &mut Registry, caches: Caches) -> Self {
        let metrics = Self {
            writes: Family::default(),
            watch_restarts: Family::default(),
            undecodable: Family::default(),
            failures: Family::default(),
            reconcile: Histogram::new(exponential_buckets(0.0001, 4.0, 10)),
            secret_to_route: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
        };
        let registry = registry.sub_registry_with_prefix("trustplane");
        registry.register(
            "writes",
            "Writes to the API server by kind (pair, status, event) and outcome",
            metrics.writes.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that failed and were opened again, by kind",
            metrics.watch_restarts.clone(),
        );
        registry.register(
            "undecodable_objects",
            "Objects that could not be decoded and were skipped, by kind",
            metrics.undecodable.clone(),
        );
        registry.register(
            "reconcile_failures",
            "Decisions that could not be carried out, by category",
            metrics.failures.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Time to decide about one Route and to carry it out",
            metrics.reconcile.clone(),
        );
        registry.register(
            "secret_to_route_seconds",
            "Time from the watch's word of a changed Secret to the patched Route",
            metrics.secret_to_route.clone(),
        );
        registry.register_collector(Box::new(caches));
        metrics
    }

    pub fn wrote(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&[("kind", kind), ("outcome", outcome)]).inc();
    }

    pub fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&[("kind", kind)]).inc();
    }

    pub fn skipped_undecodable(&self, kind: &'static str) {
        self.undecodable.get_or_create(&[("kind", kind)]).inc();
    }

    pub fn failed(&self, category: &'static str) {
        self.failures.get_or_create(&[("category", category)]).inc();
    }

    pub fn reconciled(&self, took: Duration) {
        self.reconcile.observe(took.as_secs_f64());
    }

    pub fn reached_route(&self, changed: Instant) {
        self.secret_to_route.observe(changed.elapsed().as_secs_f64());
    }
}

/// Read off the caches at every scrape.
pub struct Caches {
    pub index: Arc<Mutex<Index>>,
    pub queue: Arc<Queue<ObjectRef>>,
    /// Whether this replica writes.
    pub gate: Gate,
    /// Certificates expire while nothing else changes.
    pub clock: Clock,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caches")
    }
}

impl Collector for Caches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leader = i64::from(self.gate.is_open());
        // A standby's queue waits for the lease, and the states are the leader's to report.
        let depth = if self.gate.is_open() { self.queue.depth() } else { 0 };
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        let mut gauge = |name, help, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("leader", "Whether this replica is the one that writes", leader)?;
        gauge("queue_depth", "Routes that are due or being decided", depth)?;

        if !self.gate.is_open() {
            return Ok(());
        }
        let index = lock(&self.index);
        let mut routes = encoder.encode_descriptor(
            "routes",
            "Routes by what certificate they hold and why",
            None,
            MetricType::Gauge,
        )?;
        for ((state, reason), count) in index.states() {
            let labels =
                [("state", state.map_or("None", State::as_str)), ("reason", reason.as_str())];
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(routes.encode_family(&labels)?)?;
        }
        let mut warnings = encoder.encode_descriptor(
            "certificate_warnings",
            "Managed Routes whose certificate clients object to, by the reason of the Warning",
            None,
            MetricType::Gauge,
        )?;
        for (reason, count) in index.warnings(self.clock.now()) {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count)
                .encode(warnings.encode_family(&[("reason", reason.as_str())])?)?;
        }
        let mut not_after = encoder.encode_descriptor(
            "certificate_not_after_seconds",
            "When the certificate of a managed Route ends, in seconds since 1970",
            None,
            MetricType::Gauge,
        )?;
        for (route, ends) in index.managed() {
            let labels = [("namespace", &*route.namespace), ("route", &*route.name)];
            ConstGauge::new(ends.timestamp()).encode(not_after.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
