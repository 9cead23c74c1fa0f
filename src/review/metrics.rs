//! Metrics of job review. Labels name configured clusters and fixed words, never callers or users.

use std::{
    fmt,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};

use super::{
    act::renew::RenewalCounters,
    decide::{request::Answer, status::Failure},
    reviewer::{RefusedReason, Reviewed},
};
use crate::runtime::lock::lock;

type OfCluster = [(&'static str, String); 1];
type OfResult = [(&'static str, String); 2];
type Word = [(&'static str, &'static str); 1];

/// How it stands with one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterFigures {
    pub cluster: Arc<str>,
    pub is_reachable: bool,
    /// Since its keys were last fetched; none if they never were.
    pub keys_age: Option<Duration>,
    pub keys: usize,
    /// Its keys that another cluster publishes, too.
    pub contested: usize,
    /// When our credential for it ends; the local one's is the Pod's.
    pub credential_expires: Option<i64>,
}

/// Where the figures of clusters are read from.
pub trait Clusters: Send + Sync {
    fn figures(&self) -> Vec<ClusterFigures>;
}

pub struct Metrics {
    reviews: Family<OfResult, Counter>,
    duration: Family<OfCluster, Histogram>,
    refused: Family<Word, Counter>,
    callers: Family<Word, Counter>,
    mismatches: Family<OfCluster, Counter>,
    extra_dropped: Family<OfCluster, Counter>,
    renewals: RenewalCounters,
    audit_failures: Counter,
    config_valid: Gauge,
    clusters: Arc<Source>,
}

fn histogram() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self {
            reviews: Family::default(),
            duration: Family::new_with_constructor(histogram),
            refused: Family::default(),
            callers: Family::default(),
            mismatches: Family::default(),
            extra_dropped: Family::default(),
            renewals: RenewalCounters::default(),
            audit_failures: Counter::default(),
            config_valid: Gauge::default(),
            clusters: Arc::default(),
        };
        metrics.config_valid.set(1);
        let mut add = Registration { registry };
        add.metric("reviews", "Reviews by cluster and result", &metrics.reviews);
        add.metric("duration_seconds", "Time of reviews that were answered", &metrics.duration);
        add.metric("refused", "Refused tokens by reason", &metrics.refused);
        add.metric("callers", "Requests of callers that were not admitted", &metrics.callers);
        add.metric(
            "mismatches",
            "Answers of clusters that contradict the token",
            &metrics.mismatches,
        );
        add.metric(
            "extra_dropped",
            "Extras of clusters that were left out",
            &metrics.extra_dropped,
        );
        add.metric("renewals", "Renewals of our credentials by result", &metrics.renewals.0);
        add.metric("audit_failures", "Audit lines that were not written", &metrics.audit_failures);
        add.metric(
            "config_valid",
            "Whether the configuration in the file is the one that counts",
            &metrics.config_valid,
        );
        registry.register_collector(Box::new(Figures(metrics.clusters.clone())));
        Arc::new(metrics)
    }

    pub(super) fn reviewed(&self, outcome: Result<&Reviewed, &Failure>, took: Duration) {
        let cluster = outcome.ok().and_then(|it| it.cluster.as_deref()).unwrap_or_default();
        let labels = [("cluster", cluster.to_owned()), ("result", result(outcome).to_owned())];
        self.reviews.get_or_create(&labels).inc();
        let Ok(reviewed) = outcome else { return };
        let of_cluster = [("cluster", cluster.to_owned())];
        self.duration.get_or_create(&of_cluster).observe(took.as_secs_f64());
        if let Some(reason) = &reviewed.refused {
            self.refused.get_or_create(&[("reason", reason.category())]).inc();
            if matches!(reason, RefusedReason::Mismatch(_)) {
                self.mismatches.get_or_create(&of_cluster).inc();
            }
        }
        if let Answer::Authenticated(accepted) = &reviewed.answer
            && accepted.dropped > 0
        {
            self.extra_dropped.get_or_create(&of_cluster).inc_by(accepted.dropped as u64);
        }
    }

    pub(super) fn caller_refused(&self, failure: &Failure) {
        let result = match failure.code {
            401 => "unauthenticated",
            403 => "forbidden",
            429 => "busy",
            _ => "unavailable",
        };
        self.callers.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn renewals(&self) -> RenewalCounters {
        self.renewals.clone()
    }

    pub(super) fn audit_failed(&self) {
        self.audit_failures.inc();
    }

    pub(super) fn set_config_valid(&self, is_valid: bool) {
        self.config_valid.set(is_valid.into());
    }

    pub(super) fn show_clusters(&self, clusters: Weak<dyn Clusters>) {
        *lock(&self.clusters.0) = Some(clusters);
    }
}

fn result(outcome: Result<&Reviewed, &Failure>) -> &'static str {
    match outcome {
        Ok(Reviewed { answer: Answer::Authenticated(_), .. }) => "accepted",
        Ok(Reviewed { refused: Some(RefusedReason::Mismatch(_)), .. }) => "mismatch",
        Ok(_) => "refused",
        Err(Failure { code: 429, .. }) => "busy",
        Err(_) => "unavailable",
    }
}

struct Registration<'a> {
    registry: &'a mut Registry,
}

impl Registration<'_> {
    fn metric<M: prometheus_client::registry::Metric + Clone>(
        &mut self,
        name: &str,
        help: &str,
        metric: &M,
    ) {
        self.registry.register(format!("trustplane_review_{name}"), help, metric.clone());
    }
}

#[derive(Default)]
struct Source(Mutex<Option<Weak<dyn Clusters>>>);

struct Figures(Arc<Source>);

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

type Figure<'a> = &'a dyn Fn(&ClusterFigures) -> Option<f64>;

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let source = lock(&self.0.0).as_ref().and_then(Weak::upgrade);
        let clusters = source.map(|it| it.figures()).unwrap_or_default();
        let reachable = |it: &ClusterFigures| Some(f64::from(u8::from(it.is_reachable)));
        let keys = |it: &ClusterFigures| Some(it.keys as f64);
        let age = |it: &ClusterFigures| it.keys_age.map(|age| age.as_secs_f64());
        let contested = |it: &ClusterFigures| Some(it.contested as f64);
        let expires = |it: &ClusterFigures| it.credential_expires.map(|at| at as f64);
        let figures: [(&str, &str, Figure<'_>); 5] = [
            ("cluster_reachable", "Whether the cluster answers", &reachable),
            ("keys", "Keys of the cluster that sign tokens", &keys),
            ("keys_age_seconds", "Time since the cluster's keys were fetched", &age),
            ("keys_contested", "Keys of the cluster that another publishes, too", &contested),
            (
                "credential_expires_timestamp_seconds",
                "When our credential for the cluster ends",
                &expires,
            ),
        ];
        for (name, help, figure) in figures {
            let name = format!("trustplane_review_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for cluster in &clusters {
                if let Some(value) = figure(cluster) {
                    let labels = [("cluster", &*cluster.cluster)];
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct Two;

    impl Clusters for Two {
        fn figures(&self) -> Vec<ClusterFigures> {
            let cluster = |name: &str, is_reachable| ClusterFigures {
                cluster: name.into(),
                is_reachable,
                keys_age: is_reachable.then_some(Duration::from_secs(7)),
                keys: 2,
                contested: 0,
                credential_expires: Some(1_900_000_000),
            };
            vec![cluster("a", true), cluster("b", false)]
        }
    }

    #[test]
    fn figures_of_clusters_have_the_prefix_and_the_name_of_the_cluster() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let clusters: Arc<dyn Clusters> = Arc::new(Two);
        metrics.show_clusters(Arc::downgrade(&clusters));
        metrics.reviewed(Err(&Failure::too_many_requests("x")), Duration::ZERO);
        let renewed = [("cluster", "b".to_owned()), ("result", "forbidden".to_owned())];
        metrics.renewals().0.get_or_create(&renewed).inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"trustplane_review_cluster_reachable{cluster="a"} 1"#,
            r#"trustplane_review_cluster_reachable{cluster="b"} 0"#,
            r#"trustplane_review_keys_age_seconds{cluster="a"} 7"#,
            r#"trustplane_review_credential_expires_timestamp_seconds{cluster="b"} 1900000000"#,
            r#"trustplane_review_reviews_total{cluster="",result="busy"} 1"#,
            r#"trustplane_review_renewals_total{cluster="b",result="forbidden"} 1"#,
            "trustplane_review_config_valid 1",
        ] {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
    }

    /// Not a part of the program, so that the image is made without it.
    fn repository_file(path: &str) -> String {
        std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn the_manual_lists_every_metric_and_no_alert_asks_for_another() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        // A family without a member is not shown.
        let of_cluster = [("cluster", "a".to_owned())];
        let of_result = [("cluster", "a".to_owned()), ("result", "x".to_owned())];
        metrics.reviews.get_or_create(&of_result).inc();
        metrics.renewals.0.get_or_create(&of_result).inc();
        metrics.duration.get_or_create(&of_cluster).observe(1.0);
        metrics.mismatches.get_or_create(&of_cluster).inc();
        metrics.extra_dropped.get_or_create(&of_cluster).inc();
        metrics.refused.get_or_create(&[("reason", "x")]).inc();
        metrics.callers.get_or_create(&[("result", "x")]).inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let served: BTreeSet<String> = types
            .map(|(name, kind)| match kind {
                "counter" => format!("{name}_total"),
                _ => name.to_owned(),
            })
            .collect();
        assert!(served.len() > 10, "{served:?}");

        let manual = repository_file("docs/review.md");
        let rows = manual.lines();
        let rows = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        let listed = rows.filter(|name| name.starts_with("trustplane_review_"));
        assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), served);
        let alerts = repository_file("deploy/review/monitoring/alerts.yaml");
        let words = alerts.split(|it: char| !it.is_ascii_lowercase() && it != '_');
        let asked = words.filter(|word| word.starts_with("trustplane_review_"));
        let unknown: Vec<_> = asked.filter(|name| !served.contains(*name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
