//! Labels of the rendered objects, and node selectors.

use super::{Problem, pattern::pattern};
use crate::{api::spire_server::SpireServerSpec, runtime::printable::printable};

pattern!(
    KEY,
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
);
pattern!(
    /// They steer the cluster itself: a ClusterRole is aggregated into another, a ConfigMap's content is
    /// replaced.
    RESERVED,
    r"^([^/]+\.)?(kubernetes\.io|k8s\.io|openshift\.io|trustplane\.dev)/"
);
pattern!(VALUE, r"^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$");

pub const KEY_SAYS: &str = "a label's key is a name of at most 63 letters, digits, dashes, dots and underscores, such \
     as team, after a domain and a slash if need be, such as example.com/team";
pub const RESERVED_SAYS: &str = "labels of kubernetes.io, k8s.io, openshift.io and trustplane.dev are not for users: they \
     steer the cluster itself; use a domain of your own, such as example.com/team";
pub const VALUE_SAYS: &str = "a label's value has letters, digits, dashes, dots and underscores, and begins and ends with \
     a letter or digit";

/// Characters of a key that are shown.
const SHOWN: usize = 80;

pub fn problems(spec: &SpireServerSpec) -> Vec<Problem> {
    let labels = spec.labels.iter().flat_map(|(key, value)| {
        let reserved = RESERVED.accepts(key).then_some(RESERVED_SAYS);
        common(key, value).chain(reserved).map(|why| problem("labels", key, why))
    });
    let nodes = spec
        .node_selector
        .iter()
        .flat_map(|(key, value)| common(key, value).map(|why| problem("nodeSelector", key, why)));
    labels.chain(nodes).collect()
}

fn common(key: &str, value: &str) -> impl Iterator<Item = &'static str> {
    let is_key = KEY.accepts(key) && key.find('/').is_none_or(|slash| slash <= 253);
    let is_value = VALUE.accepts(value) && value.len() <= 63;
    [(!is_key).then_some(KEY_SAYS), (!is_value).then_some(VALUE_SAYS)].into_iter().flatten()
}

pub(super) fn problem(map: &str, key: &str, why: &str) -> Problem {
    let shown: String = key.chars().take(SHOWN).collect();
    Problem::new(format!("spec.{map}[{}]", printable(&shown)), why)
}
