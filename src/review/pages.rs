//! The page `/clusters`: how it stands with each cluster, as this replica sees it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{decide::config::Config, generation::Generation, metrics::ClusterFigures};

pub const CLUSTERS: &str = "/clusters";

pub fn clusters(
    generation: &Generation,
    config_error: Option<String>,
    now: DateTime<Utc>,
) -> Value {
    let renew_before = generation.config.renewal.renew_before;
    let figures = generation.figures();
    let shown = figures.iter().map(|it| {
        let error = generation.keys.state(&it.cluster).and_then(|state| state.error);
        cluster(&generation.config, it, error, renew_before, now)
    });
    json!({ "clusters": shown.collect::<Vec<_>>(), "configError": config_error })
}

fn cluster(
    config: &Config,
    figures: &ClusterFigures,
    keys_error: Option<String>,
    renew_before: Duration,
    now: DateTime<Utc>,
) -> Value {
    let cluster = config.clusters.get(&*figures.cluster);
    let remote = cluster.and_then(|it| it.remote.as_ref());
    let expires = figures.credential_expires.and_then(|at| DateTime::from_timestamp(at, 0));
    json!({
        "name": &*figures.cluster,
        "issuers": cluster.map(|it| &it.issuers),
        "apiServer": remote.map(|it| &it.api_server),
        "reachable": figures.is_reachable,
        "keys": figures.keys,
        "keysAgeSeconds": figures.keys_age.map(|it| it.as_secs()),
        "keysError": keys_error,
        "keysContested": figures.contested,
        "tokenStatus": remote.map(|_| token_status(expires, renew_before, now)),
        "tokenExpires": expires,
    })
}

/// In the words that this page has elsewhere.
fn token_status(
    expires: Option<DateTime<Utc>>,
    renew_before: Duration,
    now: DateTime<Utc>,
) -> &'static str {
    match expires {
        None => "unknown",
        Some(end) if end <= now => "expired",
        // Half of it: a renewal is due before, and may take some tries.
        Some(end) if end <= now + renew_before / 2 => "expiring_soon",
        Some(_) => "valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::decide::{config, testing::noon};

    #[test]
    fn a_cluster_is_shown_with_its_reach_keys_and_token() {
        let remote = "api_server: 'https://b.test', token_path: /secret/b";
        let text = format!("clusters:\n  a: {{issuer: i}}\n  b: {{issuer: j, {remote}}}\n");
        let config = config::read(&text).unwrap();
        let hour = Duration::from_secs(3600);
        let figures = |name: &str, left: Option<i64>| ClusterFigures {
            cluster: name.into(),
            is_reachable: true,
            keys_age: Some(hour),
            keys: 2,
            contested: 0,
            credential_expires: left.map(|it| noon().timestamp() + it),
        };
        let status =
            |left| cluster(&config, &figures("b", left), None, hour, noon())["tokenStatus"].clone();
        assert_eq!(status(None), "unknown");
        assert_eq!(status(Some(0)), "expired");
        assert_eq!(status(Some(1800)), "expiring_soon");
        assert_eq!(status(Some(1801)), "valid");
        let shown = cluster(&config, &figures("a", None), None, hour, noon());
        assert_eq!(shown["tokenStatus"], Value::Null, "the local one is asked as the Pod");
        assert_eq!((&shown["keysAgeSeconds"], &shown["issuers"]), (&json!(3600), &json!(["i"])));
        assert!(!shown.to_string().contains("/secret"));
    }
}
