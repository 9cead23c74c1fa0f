//! Metrics of job authority. The only label that grows names federated trust domains.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use chrono::TimeDelta;
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

use crate::{
    authority::decide::{
        ca::AuthorityState,
        summary::Summary,
        sync::{self, SYNCED, TRUSTED},
    },
    bundle::serve::RequestCounter,
    runtime::{clock::Clock, lock::lock},
};

/// Peers are not asked more often than this, even if they want to be.
const USUAL: sync::Policy = sync::Policy { shortest_interval: TimeDelta::minutes(1) };

type Labels = [(&'static str, &'static str); 1];

/// Where the federations are read from.
pub trait Federations: Send + Sync {
    fn federations(&self) -> Vec<Arc<Summary>>;
}

#[derive(Debug, Default)]
pub struct Metrics {
    syncs: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    requests: RequestCounter,
    joins: Family<Labels, Counter>,
    join_streams: Gauge,
    join_followers: Gauge,
    own: Mutex<Option<AuthorityState>>,
    failing: Gauge,
    under_way: AtomicUsize,
}

impl Metrics {
    pub fn register(registry: &mut Registry, source: Arc<Source>) -> Arc<Self> {
        let metrics = Arc::new(Self::default());
        registry.register("spiffe_syncs", "Syncs of federations by result", metrics.syncs.clone());
        registry.register(
            "spiffe_api_failures",
            "Failed calls to the API server by kind",
            metrics.failures.clone(),
        );
        registry.register(
            "spiffe_bundle_requests",
            "Answers of our bundle endpoints by HTTP status",
            metrics.requests.clone(),
        );
        registry.register(
            "spiffe_authority_failing",
            "Whether our CAs can't be looked after: something can't be read, written or recorded",
            metrics.failing.clone(),
        );
        metrics.register_joins(registry);
        registry.register_collector(Box::new(Figures { metrics: metrics.clone(), source }));
        metrics
    }

    fn register_joins(&self, registry: &mut Registry) {
        registry.register(
            "spiffe_joins",
            "Joins by result: ok, the failed check, or why they were not judged",
            self.joins.clone(),
        );
        registry.register(
            "spiffe_join_streams",
            "Open streams of the join service, followers included",
            self.join_streams.clone(),
        );
        registry.register(
            "spiffe_join_followers",
            "Clients that joined and hear of bundles",
            self.join_followers.clone(),
        );
    }

    pub(super) fn joined(&self, result: &'static str) {
        self.joins.get_or_create(&[("result", result)]).inc();
    }

    pub(super) fn join_streams(&self) -> &Gauge {
        &self.join_streams
    }

    pub(super) fn join_followers(&self) -> &Gauge {
        &self.join_followers
    }

    pub(super) fn synced(&self, result: &'static str) {
        self.syncs.get_or_create(&[("result", result)]).inc();
    }

    pub(super) fn api_failed(&self, category: &'static str) {
        self.failures.get_or_create(&[("error", category)]).inc();
    }

    pub(super) fn set_failing(&self, is_failing: bool) {
        self.failing.set(is_failing.into());
    }

    pub(super) fn set_own(&self, state: &AuthorityState) {
        *lock(&self.own) = Some(state.clone());
    }

    pub(super) fn requests(&self) -> RequestCounter {
        self.requests.clone()
    }

    pub(super) fn began(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }
}

/// Set once the controller exists, which is made after its metrics.
pub struct Source {
    federations: OnceLock<Weak<dyn Federations>>,
    clock: Clock,
}

impl Source {
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { federations: OnceLock::new(), clock })
    }

    /// Only the first call counts.
    pub fn set(&self, federations: Weak<dyn Federations>) {
        let _ = self.federations.set(federations);
    }

    fn federations(&self) -> Vec<Arc<Summary>> {
        let federations = self.federations.get().and_then(Weak::upgrade);
        federations.map(|it| it.federations()).unwrap_or_default()
    }
}

struct Figures {
    metrics: Arc<Metrics>,
    source: Arc<Source>,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

type Figure<'a> = &'a dyn Fn(&Summary) -> Option<f64>;

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.source.clock.now();
        let is_true = |it: &Summary, about: &str| {
            it.outline.condition(about).map(|it| f64::from(u8::from(it.status == "True")))
        };
        let up = |it: &Summary| is_true(it, SYNCED);
        let trusted = |it: &Summary| is_true(it, TRUSTED);
        let refused = |it: &Summary| {
            let synced = it.outline.condition(SYNCED)?;
            Some(f64::from(u8::from(synced.reason == "SequenceRefused")))
        };
        let age = |Summary { outline, .. }: &Summary| {
            // A static bundle does not grow old.
            let at = outline
                .status
                .current_bundle_synced_at
                .filter(|_| outline.spec.bundle_source.fixed.is_none())?;
            // Also from a clock that is ahead: it is not young then.
            Some((now - at).as_seconds_f64().abs())
        };
        let hint = |it: &Summary| {
            let hint =
                it.outline.status.current_bundle_refresh_hint.and_then(TimeDelta::try_seconds);
            Some(sync::interval(hint, &USUAL).num_seconds() as f64)
        };
        let expiry = |it: &Summary| it.expires_at.map(|at| at.timestamp() as f64);
        let figures: [(&str, &str, Figure<'_>); 6] = [
            ("up", "Whether the last sync of the trust domain's bundle succeeded", &up),
            ("trusted", "Whether SVIDs of the trust domain are trusted", &trusted),
            ("sequence_refused", "Whether a bundle with a lower sequence is refused", &refused),
            ("bundle_age_seconds", "Time since the bundle was last synced", &age),
            ("refresh_hint_seconds", "How often the trust domain asks to be asked", &hint),
            ("bundle_expiry_timestamp_seconds", "When the last CA in the bundle expires", &expiry),
        ];
        let federations = self.source.federations();
        // Of several for one trust domain the one that counts: Prometheus keeps one series of two alike.
        let mut shown: BTreeMap<_, &Summary> = BTreeMap::new();
        for federation in &federations {
            let trust_domain = federation.outline.trust_domain().to_ascii_lowercase();
            if sync::counts(&federation.outline) || !shown.contains_key(&trust_domain) {
                shown.insert(trust_domain, federation);
            }
        }
        for (name, help, figure) in figures {
            let name = format!("spiffe_federation_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (trust_domain, federation) in &shown {
                if let Some(value) = figure(federation) {
                    let labels = [("trust_domain", trust_domain.clone())];
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        self.encode_own(&mut encoder)
    }
}

impl Figures {
    fn encode_own(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(state) = lock(&self.metrics.own).clone() else { return Ok(()) };
        let mut single = |name: &str, help: &str, value: f64| {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        single("spiffe_authority_sequence", "Sequence of our bundle", state.sequence as f64)?;
        if let Some(due) = state.rotation_due() {
            single(
                "spiffe_authority_rotation_due_timestamp_seconds",
                "When the next CA should be active at the latest",
                due.timestamp() as f64,
            )?;
        }
        let name = "spiffe_authority_ca_expiry_timestamp_seconds";
        let mut family = encoder.encode_descriptor(
            name,
            "When our CAs expire, by phase",
            None,
            MetricType::Gauge,
        )?;
        for ca in &state.cas {
            let labels = [("phase", ca.phase.name()), ("ca", &*ca.id)];
            let encoder = family.encode_family(&labels)?;
            ConstGauge::new(ca.not_after.timestamp() as f64).encode(encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::authority::decide::{
        problem::Problem,
        sync::{Policy, conclude},
        testing::{federation, fixed, noon, received},
    };

    struct Two(Vec<Arc<Summary>>);

    impl Federations for Two {
        fn federations(&self) -> Vec<Arc<Summary>> {
            self.0.clone()
        }
    }

    #[test]
    fn two_federations_for_one_trust_domain_are_no_series_twice() {
        let policy = Policy { shortest_interval: TimeDelta::minutes(1) };
        let mut counts = federation("b.test", 1, fixed("{}"));
        let mut refused = federation("aaa", 2, fixed("{}"));
        refused.spec.trust_domain = Some("b.test".to_owned());
        let bundle = r#"{"keys":[],"spiffe_sequence":1}"#;
        counts.status = conclude(&counts, Ok(received(bundle)), &policy, 0.0, noon()).status;
        let problem = Problem::Duplicate { of: "b.test".to_owned() };
        refused.status = conclude(&refused, Err(problem), &policy, 0.0, noon()).status;
        let both: Arc<dyn Federations> =
            Arc::new(Two([&refused, &counts].map(|it| Arc::new(Summary::of(it))).to_vec()));
        let source = Source::new(Clock::system());
        source.set(Arc::downgrade(&both));
        let mut registry = Registry::default();
        let _metrics = Metrics::register(&mut registry, source);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|it| !it.starts_with('#')) {
            let series = line.rsplit_once(' ').unwrap().0;
            assert!(seen.insert(series), "{series} is there twice, Prometheus keeps one:\n{text}");
        }
    }
}
