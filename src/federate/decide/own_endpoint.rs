//! Decides whether and how to poll our own bundle endpoint, as a peer would. Pure.

use std::time::Duration;

use crate::{
    api::spire_server::{Profile, SpireServer},
    federate::decide::{
        conditions::{self, ApplyResult, Findings},
        render::Component,
    },
};

pub use super::endpoint_view::{EndpointError, EndpointView};

pub(crate) const NO_BUNDLE: &str = "the SPIRE server has not published its bundle yet: ConfigMap spire-bundle has no bundle.crt. Is the server running?";
const NO_ROUTER: &str = "no router has admitted its Route yet";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) url: String,
    pub(crate) profile: Profile,
    pub(crate) trust_domain: String,
    /// The SPIRE server's own authorities, in PEM.
    pub(crate) published: Option<String>,
    /// The refresh hint for peers.
    pub(crate) hint: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointPlan {
    /// There is no endpoint, or only its owner knows where.
    None,
    Wait(&'static str),
    Ask(Target),
    /// An API call failed, so the earlier plan goes on.
    Keep,
}

pub fn plan(server: &SpireServer, findings: &Findings, url: Option<&str>) -> EndpointPlan {
    let (Some(federation), Some(url)) = (&server.spec.federation, url) else {
        return EndpointPlan::None;
    };
    if federation.manages_route() {
        match findings.outcome(Component::Route) {
            Some(ApplyResult::Failed(..)) => return EndpointPlan::Keep,
            Some(it) if it.live().is_some_and(conditions::is_admitted) => {}
            _ => return EndpointPlan::Wait(NO_ROUTER),
        }
    }
    let published = match findings.outcome(Component::BundleConfigMap) {
        Some(ApplyResult::Failed(..)) => return EndpointPlan::Keep,
        outcome => {
            let live = outcome.and_then(ApplyResult::live);
            let text = live.and_then(|it| it.pointer("/data/bundle.crt")?.as_str());
            text.filter(|it| !it.is_empty()).map(str::to_owned)
        }
    };
    let endpoint = &federation.bundle_endpoint;
    if endpoint.profile == Profile::HttpsSpiffe && published.is_none() {
        return EndpointPlan::Wait(NO_BUNDLE);
    }
    EndpointPlan::Ask(Target {
        url: url.to_owned(),
        profile: endpoint.profile,
        trust_domain: server.spec.trust_domain.clone(),
        published,
        hint: Duration::from_secs(endpoint.refresh_hint.into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bundle::fetch::FetchError;
    use crate::federate::decide::render::tests::{server, spiffe};

    fn admitted() -> ApplyResult {
        let conditions = json!([{ "type": "Admitted", "status": "True" }]);
        ApplyResult::InPlace(json!({
            "spec": { "host": "a.example" },
            "status": { "ingress": [{ "host": "a.example", "conditions": conditions }] },
        }))
    }

    fn findings(route: ApplyResult, bundle: Value) -> Findings {
        let bundle = ApplyResult::InPlace(json!({ "data": bundle }));
        let outcomes = vec![(Component::BundleConfigMap, bundle), (Component::Route, route)];
        Findings { outcomes, ..Findings::default() }
    }

    #[test]
    fn our_endpoint_is_asked_once_a_router_serves_it_and_the_server_can_be_known() {
        let server = server(spiffe());
        let planned = |findings: &Findings| plan(&server, findings, Some("https://a.example"));
        let published = json!({ "bundle.crt": "PEM" });
        let unserved = findings(ApplyResult::InPlace(json!({})), published.clone());
        assert_eq!(planned(&unserved), EndpointPlan::Wait(NO_ROUTER));
        assert_eq!(planned(&findings(admitted(), Value::Null)), EndpointPlan::Wait(NO_BUNDLE));
        let EndpointPlan::Ask(target) = planned(&findings(admitted(), published)) else {
            panic!("it can be asked")
        };
        assert_eq!(target.published.as_deref(), Some("PEM"));
        assert_eq!(
            plan(&server, &Findings::default(), None),
            EndpointPlan::None,
            "nobody knows where"
        );
    }

    #[test]
    fn what_a_pod_cannot_reach_from_inside_its_cluster_is_no_verdict() {
        let elsewhere = [FetchError::Refused, FetchError::Proxy, FetchError::UnknownCa];
        for error in elsewhere.map(EndpointError::from) {
            assert!(!error.is_conclusive(), "{error}");
        }
        for error in [EndpointError::from(FetchError::Status(503)), EndpointError::Foreign] {
            assert!(error.is_conclusive(), "{error}");
        }
    }
}
