use super::*;

/// As the seed has it, with what is new.
const WHOLE: &str = "\
clusters:
  local:
    issuer: \"https://kubernetes.default.svc.cluster.local\"
  cluster-b:
    issuer: \"https://kubernetes.default.svc.cluster.local\"
    api_server: \"https://cluster-b.example.com:6443\"
    ca_cert: \"/etc/kube-fed/clusters/cluster-b/ca.crt\"
    token_path: \"/etc/kube-fed/clusters/cluster-b/token\"
    additional_issuers: [\"https://old.example.com\"]
    legacy_tokens: true
    kids: [k1]
    username_prefix: \"b:\"
    groups_prefix: \"b:\"
renewal:
  interval: 1h
  token_duration: 168h
  renew_before: 48h
cache:
  ttl: 10s
authorized_clients:
  - \"local/monitoring/*\"
";

const TOKEN_PATH: &str = "    token_path: \"/etc/kube-fed/clusters/cluster-b/token\"\n";

fn faults(text: &str) -> Vec<String> {
    read(text).unwrap_err().iter().map(ToString::to_string).collect()
}

/// The faults of the whole configuration with one text replaced.
fn changed(from: &str, to: &str) -> Vec<String> {
    assert!(WHOLE.contains(from), "{from}");
    faults(&WHOLE.replacen(from, to, 1))
}

#[test]
fn the_configuration_of_the_reference_is_read_to_the_letter() {
    let config = read(WHOLE).unwrap();
    assert_eq!(config.local(), Some("local"));
    assert_eq!(config.renewal, Renewal::default());
    assert_eq!(config.cache_ttl, Some(Duration::from_secs(10)));
    let remote = &config.clusters["cluster-b"];
    assert_eq!(remote.issuers.len(), 3);
    let reached = remote.remote.as_ref().unwrap();
    assert_eq!(reached.api_server, "https://cluster-b.example.com:6443");
    assert_eq!(reached.token_path, PathBuf::from("/etc/kube-fed/clusters/cluster-b/token"));
    assert_eq!(config.authorized_clients.unwrap().len(), 1);
}

#[test]
fn defaults_are_those_of_the_reference_but_nothing_is_cached() {
    let config = read("clusters: {a: {issuer: i}}").unwrap();
    assert_eq!(config.renewal, Renewal::default());
    assert_eq!((config.cache_ttl, config.authorized_clients), (None, None));
    assert!(config.clusters["a"].prefixes.is_none());
}

#[test]
fn every_fault_is_told_with_its_line_and_column() {
    let two = changed("api_server: \"https:", "api_server: \"http:");
    assert_eq!(
        two,
        [
            "line 6, column 17: api_server must be https://HOST:PORT, without a path: tokens are sent to it"
        ]
    );
    let both = WHOLE.replace("https://cluster-b", "ftp://cluster-b").replace("168h", "5m");
    let all = faults(&both);
    assert_eq!(all.len(), 3, "{all:?}");
    for line in ["line 6,", "line 16,", "line 17,"] {
        assert!(all.iter().any(|it| it.starts_with(line)), "{line}: {all:?}");
    }
}

#[test]
fn what_would_be_wrong_in_silence_is_refused() {
    for (from, to, line, words) in [
        ("  ttl: 10s", "  ttl: 10s\n  negative_ttl: 30s", 20, "negative_ttl"),
        ("    kids: [k1]", "    qps: 5", 11, "qps"),
        (TOKEN_PATH, "", 6, "remove api_server"),
        ("renew_before: 48h", "renew_before: 168h", 17, "shorter than token_duration"),
        ("renew_before: 48h", "renew_before: soon", 17, "168h"),
        ("token_duration: 168h", "token_duration: 1h", 17, "shorter than token_duration"),
        ("interval: 1h", "interval: 0s", 15, "at least 1s"),
        ("ttl: 10s", "ttl: 1h", 19, "5m at most"),
        ("username_prefix: \"b:\"", "username_prefix: \"system:\"", 12, "system:"),
        ("    groups_prefix: \"b:\"\n", "", 12, "go together"),
        ("local/monitoring/*", "local/monitoring", 21, "CLUSTER/NAMESPACE"),
        ("local/monitoring/*", "other/monitoring/*", 21, "no such cluster"),
        ("https://old.example.com", "kubernetes/serviceaccount", 9, "legacy_tokens"),
        ("https://old.example.com", "https://kubernetes.default.svc.cluster.local", 9, "twice"),
        ("  cluster-b:", "  Cluster_B:", 4, "lower-case"),
        (":6443", ":6443/path", 6, "without a path"),
        ("https://cluster-b.", "https://user:secret@cluster-b.", 6, "without a path"),
        ("    api_server: \"https://cluster-b.example.com:6443\"\n", "", 4, "neither has"),
    ] {
        let all = changed(from, to);
        let begins = format!("line {line},");
        let found = all.iter().any(|it| it.starts_with(&begins) && it.contains(words));
        assert!(found, "{to}: {begins} {words}: {all:?}");
    }
    assert!(faults("clusters: {}")[0].contains("0 entries"));
    assert!(faults("a: [")[0].starts_with("line 1,"));
    assert!(faults("")[0].starts_with("line 1,"));
}

#[test]
fn every_configuration_that_the_manual_shows_is_read() {
    // Not a part of the program, so that the image is made without it.
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/review.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let manual = manual.split("```");
    let shown = manual.filter_map(|block| block.strip_prefix("yaml\n"));
    let shown: Vec<_> =
        shown.filter(|it| it.contains("clusters:\n") && it.contains("issuer:")).collect();
    assert!(shown.len() >= 3, "{shown:?}");
    for text in shown {
        assert!(read(text).is_ok(), "{text}: {:?}", faults(text));
    }
}
