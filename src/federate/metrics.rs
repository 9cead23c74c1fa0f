//! Metrics of job federate. The only labels that grow name peers, of which there are 50 at most.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

use crate::{
    api::spire_server::PeerStatus,
    federate::{
        act::peers::{self, Peers},
        decide::conditions::ApplyResult,
    },
    runtime::clock::Clock,
};

type Labels<const N: usize> = [(&'static str, &'static str); N];

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    objects: Family<Labels<1>, Counter>,
    failures: Family<Labels<1>, Counter>,
    watch_restarts: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Includes the metrics of the peers.
    pub fn register(registry: &mut Registry, peers: Arc<Peers>, clock: Clock) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("trustplane");
        registry.register(
            "federation_objects",
            "Objects of the SpireServer that were gone through, by what became of them",
            metrics.objects.clone(),
        );
        registry.register(
            "federation_failures",
            "Calls to the API server that failed, by category",
            metrics.failures.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that failed and were opened again, by kind",
            metrics.watch_restarts.clone(),
        );
        registry.register_collector(Box::new(PeerFigures { peers, clock }));
        metrics
    }

    pub fn put(&self, outcome: &ApplyResult) {
        let label = match outcome {
            ApplyResult::Created => "created",
            ApplyResult::Updated(..) => "updated",
            ApplyResult::InPlace(_) => "in-place",
            ApplyResult::OutOfStep(..) => "out-of-step",
            ApplyResult::Taken(_) => "taken",
            ApplyResult::NoNamespace(_) => "no-namespace",
            ApplyResult::Failed(_, error) => {
                self.failed(error.category());
                "failed"
            }
        };
        self.objects.get_or_create(&[("outcome", label)]).inc();
    }

    pub fn failed(&self, category: &'static str) {
        self.failures.get_or_create(&[("category", category)]).inc();
    }

    pub fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&[("kind", kind)]).inc();
    }
}

/// Computed from the peers' state on each scrape.
struct PeerFigures {
    peers: Arc<Peers>,
    clock: Clock,
}

impl fmt::Debug for PeerFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerFigures")
    }
}

type Figure<'a> = &'a dyn Fn(&PeerStatus) -> Option<f64>;

impl Collector for PeerFigures {
    #[allow(clippy::cast_precision_loss)]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.clock.now();
        let age = |peer: &PeerStatus| {
            let milliseconds = (now - peer.last_success_time?).num_milliseconds().max(0);
            Some(milliseconds as f64 / 1_000.0)
        };
        let at = |time: Option<DateTime<Utc>>| time.map(|at| at.timestamp() as f64);
        let expiry = |peer: &PeerStatus| at(peer.earliest_expiry);
        let last_expiry = |peer: &PeerStatus| at(peer.latest_expiry);
        let sequence = |peer: &PeerStatus| peer.sequence.map(|sequence| sequence as f64);
        let up = |peer: &PeerStatus| {
            let asked = peer.reachable || peer.last_error.is_some();
            asked.then(|| f64::from(u8::from(peer.last_error.is_none())))
        };
        let hint = |peer: &PeerStatus| {
            let published = peer.refresh_hint.map(Duration::from_secs);
            Some(peers::hint(published).as_secs_f64())
        };
        let figures: [(&str, &str, Figure<'_>); 6] = [
            ("up", "Whether the peer's bundle was fetched and verified the last time", &up),
            ("bundle_age_seconds", "Time since the peer's bundle was last fetched", &age),
            ("refresh_hint_seconds", "How often the peer asks to be asked", &hint),
            ("bundle_sequence", "Sequence number of the peer's bundle", &sequence),
            ("ca_expiry_timestamp_seconds", "When the first CA in the bundle runs out", &expiry),
            (
                "bundle_expiry_timestamp_seconds",
                "When the last CA in the bundle runs out",
                &last_expiry,
            ),
        ];
        let peers = self.peers.figures();
        for (name, help, figure) in figures {
            let name = format!("federation_peer_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for peer in &peers {
                if let Some(value) = figure(peer) {
                    let labels = [("trust_domain", peer.trust_domain.clone())];
                    let encoder = family.encode_family(&labels)?;
                    ConstGauge::new(value).encode(encoder)?;
                }
            }
        }
        Ok(())
    }
}
