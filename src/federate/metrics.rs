//! Figures of job federate. The only labels that grow name peers, of which there are 50 at most.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

use super::{
    conditions::Outcome,
    peers::{Known, Peers},
};
use crate::kit::clock::Clock;

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// What is counted as it happens.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    objects: Family<Labels<1>, Counter>,
    failures: Family<Labels<1>, Counter>,
    watch_restarts: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Registers everything, the figures of the peers included.
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

    /// An object was gone through.
    pub fn put(&self, outcome: &Outcome) {
        let label = match outcome {
            Outcome::Created => "created",
            Outcome::Updated(_) => "updated",
            Outcome::InPlace(_) => "in-place",
            Outcome::OutOfStep(..) => "out-of-step",
            Outcome::Taken(_) => "taken",
            Outcome::NoNamespace(_) => "no-namespace",
            Outcome::Failed(_, error) => {
                self.failed(error.category());
                "failed"
            }
        };
        self.objects.get_or_create(&[("outcome", label)]).inc();
    }

    /// A call failed.
    pub fn failed(&self, category: &'static str) {
        self.failures.get_or_create(&[("category", category)]).inc();
    }

    /// A watch failed.
    pub fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&[("kind", kind)]).inc();
    }
}

/// Read off the peers when somebody asks.
struct PeerFigures {
    peers: Arc<Peers>,
    clock: Clock,
}

impl fmt::Debug for PeerFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerFigures")
    }
}

type Figure<'a> = &'a dyn Fn(&Known) -> Option<f64>;

impl Collector for PeerFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.clock.now();
        let age = |known: &Known| {
            let seconds = (now - known.last_success?).num_milliseconds().max(0);
            #[allow(clippy::cast_precision_loss)]
            Some(seconds as f64 / 1_000.0)
        };
        #[allow(clippy::cast_precision_loss)]
        let expiry = |known: &Known| {
            known.bundle.as_ref()?.earliest_expiry().map(|at| at.timestamp() as f64)
        };
        #[allow(clippy::cast_precision_loss)]
        let last_expiry = |known: &Known| {
            let ends = known.bundle.as_ref()?.x509.iter().map(|it| it.not_after).max();
            ends.map(|at| at.timestamp() as f64)
        };
        #[allow(clippy::cast_precision_loss)]
        let sequence =
            |known: &Known| known.bundle.as_ref()?.sequence.map(|sequence| sequence as f64);
        let up = |known: &Known| {
            let asked = known.last_success.is_some() || known.last_error.is_some();
            asked.then(|| f64::from(u8::from(known.last_error.is_none())))
        };
        let hint = |known: &Known| Some(known.hint().as_secs_f64());
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
        for (name, help, figure) in figures {
            let name = format!("federation_peer_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (trust_domain, known) in self.peers.known() {
                if let Some(value) = figure(&known) {
                    let labels = [("trust_domain", trust_domain)];
                    let encoder = family.encode_family(&labels)?;
                    ConstGauge::new(value).encode(encoder)?;
                }
            }
        }
        Ok(())
    }
}
