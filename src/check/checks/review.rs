//! The lines about `trustplane review`. Where it is not installed, one says so.

use super::{
    CheckResult, Evaluator, Subject,
    controller::{ControllerChecks, if_installed},
    some,
};
use crate::{
    check::review::{CONFIG_KEY, CONTROLLER, ConfigurationFound, Installation},
    review::decide::config::{Config, Fault},
};

/// Its overlay names the remote clusters, so it is not one of ours.
const APPLY: &str = "kubectl apply -k OVERLAY";

impl Evaluator<'_> {
    pub(super) fn review(&self) -> Vec<CheckResult> {
        let it = Subject { check: "review", subject: "review" };
        let namespace = &self.facts.namespace;
        if_installed(it, CONTROLLER, namespace, &self.facts.review, |installation| {
            let found = &installation.controller;
            let checks =
                ControllerChecks { controller: CONTROLLER, found, namespace, apply: APPLY };
            lines(installation, &checks)
        })
    }
}

fn lines(installation: &Installation, checks: &ControllerChecks<'_>) -> Vec<CheckResult> {
    let rights = Subject { check: "review-rights", subject: "review's rights" };
    let replicas = Subject { check: "review-deployment", subject: "review replicas" };
    let lease = Subject { check: "review-lease", subject: "review's leader" };
    let source = format!("deploy/review, with its state in {}", installation.state_namespace);
    vec![
        checks.rights(rights, &source),
        checks.deployment(replicas, "no token is reviewed, and no credential renewed"),
        checks.lease(lease),
        configuration(installation, checks),
    ]
}

fn configuration(installation: &Installation, checks: &ControllerChecks<'_>) -> CheckResult {
    let it = Subject { check: "review-config", subject: "review's clusters" };
    let found = match &installation.configuration {
        Err(error) => return it.unanswered(error),
        Ok(found) => found,
    };
    let ConfigurationFound { config_map, read, unmounted } = found;
    let namespace = checks.namespace;
    match read {
        None => it
            .failed(
                format!(
                    "no {CONFIG_KEY} in a ConfigMap {config_map} of namespace {namespace}, which the Pods wait for"
                ),
                "Register a remote cluster, which makes it; or write it yourself (docs/review.md).",
            )
            .run(format!(
                "trustplane review register CLUSTER --kubeconfig FILE --namespace {namespace}"
            )),
        Some(Err(faults)) => it
            .failed(
                format!("refused: {}", some(faults.iter().map(Fault::to_string))),
                "Correct it. The one before goes on, but a replica that starts now would not start.",
            )
            .run(format!("kubectl -n {namespace} edit configmap/{config_map}")),
        Some(Ok(config)) if unmounted.is_empty() => it.ok(clusters(config)),
        Some(Ok(config)) => it.failed(
            format!(
                "{}; whose token or CA is in no volume of the Deployment: {}",
                clusters(config),
                some(unmounted.iter().cloned())
            ),
            "Add the Secret of each to the volume `clusters`, as deploy/review/kustomization.yaml shows; with the \
             chart, add its name to review.clusters.",
        ),
    }
}

fn clusters(config: &Config) -> String {
    let names = some(config.clusters.keys().cloned());
    match config.local() {
        Some(local) => format!("{names}; this one is {local}"),
        None => format!("{names}; tokens of this one are not reviewed"),
    }
}

#[cfg(test)]
mod tests;
