//! Reads the configuration, and finds what is wrong in it before anything is done by it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use http::Uri;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_saphyr::Spanned;

use super::{callers::Pattern, directory::LEGACY_ISSUER};

pub mod edit;

/// The shortest life that a TokenRequest can ask for.
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// Longer, a revoked token would stay good for too long.
const LONGEST_TTL: Duration = Duration::from_secs(300);
const MOST_CLUSTERS: usize = 10_000;

/// A fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Fault {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub clusters: BTreeMap<String, ClusterConfig>,
    pub renewal: Renewal,
    /// None: every review asks the token's cluster.
    pub cache_ttl: Option<Duration>,
    /// None: whoever may create TokenReviews in the local cluster.
    pub authorized_clients: Option<Vec<Pattern>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// All that its tokens may name.
    pub issuers: BTreeSet<String>,
    /// Kids of keys that are this cluster's although another publishes them, too.
    pub kids: BTreeSet<String>,
    pub prefixes: Option<Prefixes>,
    /// None for the local cluster.
    pub remote: Option<Remote>,
}

/// How to reach a cluster, and to prove who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub api_server: String,
    /// The CAs of this machine if there is none.
    pub ca_cert: Option<PathBuf>,
    pub token_path: PathBuf,
}

/// In front of the names of a cluster's users and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes {
    pub username: String,
    pub groups: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub interval: Duration,
    pub token_duration: Duration,
    pub renew_before: Duration,
}

impl Default for Renewal {
    fn default() -> Self {
        const HOUR: u64 = 60 * 60;
        Self {
            interval: Duration::from_secs(HOUR),
            token_duration: Duration::from_secs(168 * HOUR),
            renew_before: Duration::from_secs(48 * HOUR),
        }
    }
}

impl Config {
    /// The cluster that we run in, if tokens of it are reviewed.
    pub fn local(&self) -> Option<&str> {
        let mut all = self.clusters.iter();
        all.find(|(_, it)| it.remote.is_none()).map(|(name, _)| name.as_str())
    }

    /// Where our tokens for remote clusters lie.
    pub fn token_paths(&self) -> BTreeMap<Arc<str>, PathBuf> {
        let all = self.clusters.iter();
        let remotes = all.filter_map(|(name, it)| Some((&**name, it.remote.as_ref()?)));
        remotes.map(|(name, remote)| (name.into(), remote.token_path.clone())).collect()
    }

    /// Of the clusters that have any.
    pub fn prefixes(&self) -> BTreeMap<Arc<str>, Prefixes> {
        let all = self.clusters.iter();
        let with_prefix = all.filter_map(|(name, it)| Some((&**name, it.prefixes.clone()?)));
        with_prefix.map(|(name, prefixes)| (name.into(), prefixes)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    clusters: Spanned<Entries>,
    #[serde(default)]
    renewal: Option<RenewalEntry>,
    #[serde(default)]
    cache: Option<CacheEntry>,
    #[serde(default)]
    authorized_clients: Option<Vec<Spanned<String>>>,
}

/// A map whose keys have a place, too.
struct Entries(Vec<(Spanned<String>, Spanned<Entry>)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("clusters by their names")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Entries(all))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    issuer: Spanned<String>,
    #[serde(default)]
    additional_issuers: Vec<Spanned<String>>,
    #[serde(default)]
    legacy_tokens: bool,
    #[serde(default)]
    kids: Vec<Spanned<String>>,
    #[serde(default)]
    api_server: Option<Spanned<String>>,
    #[serde(default)]
    ca_cert: Option<Spanned<PathBuf>>,
    #[serde(default)]
    token_path: Option<Spanned<PathBuf>>,
    #[serde(default)]
    username_prefix: Option<Spanned<String>>,
    #[serde(default)]
    groups_prefix: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalEntry {
    #[serde(default)]
    interval: Option<Spanned<String>>,
    #[serde(default)]
    token_duration: Option<Spanned<String>>,
    #[serde(default)]
    renew_before: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheEntry {
    ttl: Spanned<String>,
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add<T>(&mut self, at: &Spanned<T>, what: impl Into<String>) {
        let place = |number: u64| usize::try_from(number).unwrap_or(1);
        let (line, column) = (at.referenced.line(), at.referenced.column());
        self.0.push(Fault { line: place(line), column: place(column), what: what.into() });
    }
}

/// The configuration, or all of its faults.
pub fn read(text: &str) -> Result<Config, Vec<Fault>> {
    let document: Document =
        serde_saphyr::from_str(text).map_err(|error| vec![unreadable(&error)])?;
    let mut faults = Faults::default();
    let clusters = clusters(&document.clusters, &mut faults);
    let renewal = document.renewal.map_or_else(Renewal::default, |it| renewal(&it, &mut faults));
    let cache_ttl = document.cache.and_then(|it| cache_ttl(&it.ttl, &mut faults));
    let clients = document.authorized_clients.map(|all| patterns(&all, &clusters, &mut faults));
    match faults.0.is_empty() {
        true => Ok(Config { clusters, renewal, cache_ttl, authorized_clients: clients }),
        false => Err(faults.0),
    }
}

fn unreadable(error: &serde_saphyr::Error) -> Fault {
    let place = error.location().map(|it| (it.line(), it.column()));
    let (line, column) = place.unwrap_or((1, 1));
    let number = |number: u64| usize::try_from(number).unwrap_or(1);
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default().to_owned();
    Fault { line: number(line), column: number(column), what }
}

fn clusters(all: &Spanned<Entries>, faults: &mut Faults) -> BTreeMap<String, ClusterConfig> {
    let count = all.value.0.len();
    if count == 0 || count > MOST_CLUSTERS {
        let what = format!("clusters has {count} entries: 1 to {MOST_CLUSTERS} can be");
        faults.add(all, what);
    }
    let mut read = BTreeMap::new();
    let mut local: Option<&str> = None;
    for (name, entry) in &all.value.0 {
        if !is_name(&name.value) {
            faults.add(name, "a cluster's name has lower-case letters, digits, dots and dashes");
        }
        let cluster = cluster(entry, faults);
        if entry.value.api_server.is_none() {
            if let Some(first) = local {
                let what = format!(
                    "{} has no api_server, and neither has {first}: only the cluster that trustplane \
                     review runs in can be without",
                    name.value
                );
                faults.add(name, what);
            }
            local = Some(&name.value);
        }
        read.insert(name.value.clone(), cluster);
    }
    read
}

fn cluster(entry: &Spanned<Entry>, faults: &mut Faults) -> ClusterConfig {
    let it = &entry.value;
    let mut issuers = BTreeSet::new();
    for issuer in std::iter::once(&it.issuer).chain(&it.additional_issuers) {
        if issuer.value.trim().is_empty() || issuer.value == LEGACY_ISSUER {
            let what = "an issuer is what tokens say in \"iss\"; for tokens that lie in Secrets, write \
                        legacy_tokens: true";
            faults.add(issuer, what);
        }
        if !issuers.insert(issuer.value.clone()) {
            faults.add(issuer, format!("issuer {} is there twice", issuer.value));
        }
    }
    if it.legacy_tokens {
        issuers.insert(LEGACY_ISSUER.to_owned());
    }
    let kids = it.kids.iter().map(|kid| kid.value.clone()).collect();
    ClusterConfig { issuers, kids, prefixes: prefixes(it, faults), remote: remote(it, faults) }
}

fn remote(entry: &Entry, faults: &mut Faults) -> Option<Remote> {
    let Some(api_server) = &entry.api_server else {
        let what =
            "is for a cluster with api_server; the local one is asked with the Pod's own account";
        for path in [&entry.ca_cert, &entry.token_path].into_iter().flatten() {
            faults.add(path, format!("this {what}"));
        }
        return None;
    };
    if !is_api_server(&api_server.value) {
        let what = "api_server must be https://HOST:PORT, without a path: tokens are sent to it";
        faults.add(api_server, what);
    }
    let Some(token_path) = &entry.token_path else {
        let what = "api_server without token_path: name the file of a token of that cluster, or remove \
                    api_server if it is the cluster that trustplane review runs in";
        faults.add(api_server, what);
        return None;
    };
    Some(Remote {
        api_server: api_server.value.trim_end_matches('/').to_owned(),
        ca_cert: entry.ca_cert.as_ref().map(|it| it.value.clone()),
        token_path: token_path.value.clone(),
    })
}

/// An address that tokens may be sent to.
pub fn is_api_server(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|it| {
        let has_user = it.authority().is_some_and(|authority| authority.as_str().contains('@'));
        it.scheme_str() == Some("https")
            && it.host().is_some_and(|host| !host.is_empty())
            && matches!(it.path_and_query().map(|it| it.as_str()), None | Some("/"))
            && !has_user
    })
}

fn prefixes(entry: &Entry, faults: &mut Faults) -> Option<Prefixes> {
    let both = [&entry.username_prefix, &entry.groups_prefix];
    for prefix in both.into_iter().flatten() {
        if prefix.value.is_empty() || prefix.value.starts_with("system:") {
            let what = "a prefix must not be empty, and must not begin with system:, which is for Kubernetes";
            faults.add(prefix, what);
        }
    }
    match both {
        [Some(username), Some(groups)] => {
            Some(Prefixes { username: username.value.clone(), groups: groups.value.clone() })
        }
        [None, None] => None,
        [Some(only), None] | [None, Some(only)] => {
            faults.add(only, "username_prefix and groups_prefix go together");
            None
        }
    }
}

fn duration(text: &Option<Spanned<String>>, faults: &mut Faults) -> Option<Duration> {
    let text = text.as_ref()?;
    let read = humantime::parse_duration(&text.value).ok();
    if read.is_none() {
        faults.add(text, "write it like 30s, 5m or 168h");
    }
    read
}

fn renewal(entry: &RenewalEntry, faults: &mut Faults) -> Renewal {
    let default = Renewal::default();
    let token_duration = duration(&entry.token_duration, faults).unwrap_or(default.token_duration);
    let renew_before = duration(&entry.renew_before, faults).unwrap_or(default.renew_before);
    let interval = duration(&entry.interval, faults).unwrap_or(default.interval);
    if let Some(at) = entry.interval.as_ref().filter(|_| interval < SHORTEST_INTERVAL) {
        faults.add(at, "interval must be at least 1s");
    }
    if let Some(at) = entry.token_duration.as_ref().filter(|_| token_duration < SHORTEST_TOKEN) {
        faults.add(at, "token_duration must be at least 10m: Kubernetes grants nothing shorter");
    }
    let at = entry.renew_before.as_ref().or(entry.token_duration.as_ref());
    if let Some(at) = at.filter(|_| renew_before >= token_duration) {
        let what = "renew_before must be shorter than token_duration, or a token is renewed as soon as it \
                    is made";
        faults.add(at, what);
    }
    Renewal { interval, token_duration, renew_before }
}

fn cache_ttl(text: &Spanned<String>, faults: &mut Faults) -> Option<Duration> {
    let ttl = duration(&Some(text.clone()), faults)?;
    if ttl > LONGEST_TTL {
        faults.add(text, "cache.ttl is 5m at most: a revoked token stays good for so long");
    }
    Some(ttl).filter(|ttl| !ttl.is_zero())
}

fn patterns(
    all: &[Spanned<String>],
    clusters: &BTreeMap<String, ClusterConfig>,
    faults: &mut Faults,
) -> Vec<Pattern> {
    let mut read = Vec::new();
    for text in all {
        match Pattern::read(&text.value) {
            Some(pattern) if !pattern.has_cluster_of(clusters.keys().map(String::as_str)) => {
                faults.add(text, format!("{}: no such cluster is configured", text.value));
            }
            Some(pattern) => read.push(pattern),
            None => {
                let what = format!(
                    "{} is not CLUSTER/NAMESPACE/SERVICEACCOUNT, in which * stands for any name",
                    text.value
                );
                faults.add(text, what);
            }
        }
    }
    read
}

/// Names are part of annotations, metrics and patterns of callers.
pub fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.starts_with(is_inner)
        && text.ends_with(is_inner)
        && text.chars().all(|c| is_inner(c) || c == '-' || c == '.')
}

#[cfg(test)]
mod tests;
