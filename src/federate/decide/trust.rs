//! Trust domains that SPIRE federates with although the SpireServer does not list them. Pure.
//!
//! The controller manager creates a relationship for every ClusterFederatedTrustDomain of its class,
//! whoever wrote it and whatever the SpireServer lists.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{federated_trust_domain::FederatedTrustDomain, spire_server::SpireServerSpec},
    federate::decide::{
        render,
        validate::{MOST_PEERS, Problem},
    },
    runtime::printable::printable,
};

/// The names of the ClusterFederatedTrustDomains of our controller manager, by trust domain.
pub type Federated = BTreeMap<String, BTreeSet<String>>;

/// A trust domain that SPIRE federates with and the SpireServer does not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// Printable.
    pub trust_domain: String,
    /// Its ClusterFederatedTrustDomains.
    pub objects: Vec<String>,
}

/// Whether our controller manager uses an object; it skips those of another class.
pub fn is_ours(domain: &FederatedTrustDomain) -> bool {
    matches!(domain.spec.class_name.as_deref(), None | Some("" | render::CONTROLLER_MANAGER))
}

/// Of several objects for a trust domain, the controller manager uses the one that is first by this.
pub fn seniority(domain: &FederatedTrustDomain) -> impl Ord {
    (domain.metadata.creation_timestamp.clone(), domain.metadata.uid.clone())
}

/// The trust domains that SPIRE federates with because of these objects.
pub fn federated(domains: &BTreeMap<String, FederatedTrustDomain>) -> Federated {
    let mut federated = Federated::new();
    for (name, domain) in domains.iter().filter(|(_, domain)| is_ours(domain)) {
        let of = trust_domain(&domain.spec.trust_domain).to_owned();
        federated.entry(of).or_default().insert(name.clone());
    }
    federated
}

/// The controller manager also accepts a SPIFFE ID in place of its trust domain.
pub fn trust_domain(text: &str) -> &str {
    let Some(id) = text.strip_prefix("spiffe://") else { return text };
    id.split_once('/').map_or(id, |(domain, _)| domain)
}

/// SPIRE does not federate with itself, so its own trust domain does not count.
pub fn unlisted(spec: &SpireServerSpec, federated: &Federated) -> Vec<Unlisted> {
    let listed = listed(spec);
    let foreign = |name: &&String| !listed.contains(name.as_str()) && **name != spec.trust_domain;
    let objects =
        |name: &String| federated[name].iter().map(|it| printable(it).into_owned()).collect();
    let unlisted = federated.keys().filter(foreign).map(|name| Unlisted {
        trust_domain: printable(name).into_owned(),
        objects: objects(name),
    });
    unlisted.collect()
}

fn listed(spec: &SpireServerSpec) -> BTreeSet<&str> {
    spec.peers().iter().map(|peer| peer.trust_domain.as_str()).collect()
}

/// Whether SPIRE would fetch from more than `most` trust domains, whoever added them.
pub fn over_limit(spec: &SpireServerSpec, federated: &Federated, most: usize) -> Option<Problem> {
    let (listed, others) = (listed(spec).len(), unlisted(spec, federated).len());
    // `validate` reports the CRD's own limit.
    if spec.federation.is_none() || listed + others <= most || listed > MOST_PEERS {
        return None;
    }
    let beside = match others {
        0 => String::new(),
        others => format!(", and {others} in ClusterFederatedTrustDomains alone"),
    };
    let why = format!("{listed} trust domains{beside}, where --max-peers allows {most}");
    Some(Problem::new("spec.federation.federatesWith", why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::federate::decide::render::tests::{server, spiffe};

    fn domains(objects: &[(&str, &str, &str)]) -> BTreeMap<String, FederatedTrustDomain> {
        let object = |(name, trust_domain, class): &(&str, &str, &str)| {
            let object = json!({
                "metadata": { "name": name },
                "spec": {
                    "trustDomain": trust_domain,
                    "bundleEndpointURL": "https://b.example",
                    "bundleEndpointProfile": { "type": "https_web" },
                    "className": class,
                },
            });
            (name.to_string(), serde_json::from_value(object).unwrap())
        };
        objects.iter().map(object).collect()
    }

    #[test]
    fn what_spire_is_told_of_and_nobody_lists_is_named_with_the_objects_that_say_so() {
        let spec = server(spiffe()).spec;
        let federated = federated(&domains(&[
            ("b", "td-b.test", ""),
            ("x", "td-x.test", ""),
            ("x2", "spiffe://td-x.test/any", "spire-controller-manager"),
            ("y", "td-y.test", "another"),
            ("own", &spec.trust_domain, ""),
        ]));
        let objects = ["x", "x2"].map(str::to_owned).to_vec();
        let expected = Unlisted { trust_domain: "td-x.test".to_owned(), objects };
        assert_eq!(unlisted(&spec, &federated), [expected], "another class is another SPIRE's");
    }

    #[test]
    fn the_limit_counts_what_is_listed_and_what_spire_is_told_of_beside_it() {
        let spec = server(spiffe()).spec;
        let listed = spec.federation.as_ref().unwrap().federates_with.len();
        let federated = federated(&domains(&[("b", "td-b.test", ""), ("x", "td-x.test", "")]));
        assert_eq!(over_limit(&spec, &Federated::new(), listed), None);
        assert_eq!(over_limit(&spec, &federated, listed + 1), None, "td-b.test counts once");
        let problem = over_limit(&spec, &federated, listed).unwrap();
        assert_eq!(problem.field, "spec.federation.federatesWith");
        assert!(problem.why.contains("--max-peers allows"), "{}", problem.why);
        assert!(problem.why.contains("1 in ClusterFederatedTrustDomains alone"), "{}", problem.why);
    }
}
