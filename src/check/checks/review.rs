//! The lines about `trustplane review`. Where it is not installed, one says so.

use chrono::{DateTime, Utc};

use super::{
    CheckResult, Evaluator, Subject,
    controller::{ControllerChecks, if_installed},
    some,
};
use crate::{
    check::review::{
        CONFIG_KEY, CONTROLLER, ClusterStatus, ConfigurationFound, Installation, Outage,
        StatusFound,
    },
    names::REVIEW_STATUS_CONFIG_MAP,
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
        status(installation, checks),
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

fn status(installation: &Installation, checks: &ControllerChecks<'_>) -> CheckResult {
    let it = Subject { check: "review-status", subject: "reviewed clusters" };
    let namespace = &installation.state_namespace;
    let found = match &installation.status {
        Err(error) => return it.unanswered(error),
        Ok(None) => {
            let found = format!("no ConfigMap {REVIEW_STATUS_CONFIG_MAP} in namespace {namespace}");
            let todo = "The leader writes it as soon as it has asked each cluster. Its log says why it did not.";
            return it.warning(found, todo).run(checks.logs());
        }
        Ok(Some(found)) => found,
    };
    let StatusFound { clusters, read_at } = found;
    let reachable = clusters.values().flatten().filter(|it| it.reachable).count();
    let summary = format!("{reachable} of {} can be asked", clusters.len());
    let with = |flaws: Vec<String>| format!("{summary}; {}", some(flaws.into_iter()));
    let of_all = |flaw: fn(&ClusterStatus, DateTime<Utc>) -> Option<String>| -> Vec<String> {
        let flaws = clusters.iter().map(|(name, status)| (name, status.as_ref()));
        let flaws = flaws.filter_map(|(name, status)| Some((name, flaw(status?, *read_at)?)));
        flaws.map(|(name, flaw)| format!("{name}: {flaw}")).collect()
    };
    let ended = of_all(ended);
    if !ended.is_empty() {
        let todo = "It can't renew itself any more. Bring a new one, for each of these clusters.";
        let register = format!(
            "trustplane review register CLUSTER --kubeconfig FILE --namespace {}",
            checks.namespace
        );
        return it.failed(with(ended), todo).run(register);
    }
    let unread = clusters.iter().filter(|(_, status)| status.is_none());
    let unread = unread.map(|(name, _)| format!("{name}: its entry can't be read"));
    let flaws: Vec<_> = of_all(flaw).into_iter().chain(unread).collect();
    if flaws.is_empty() {
        return it.ok(summary);
    }
    it.warning(with(flaws), "docs/review.md says what to do about each, by its alert.")
        .run(format!("kubectl -n {namespace} get configmap {REVIEW_STATUS_CONFIG_MAP} -o yaml"))
}

fn ended(status: &ClusterStatus, now: DateTime<Utc>) -> Option<String> {
    let end = status.credential.as_ref()?.expires.filter(|end| *end <= now)?;
    Some(format!("our credential ended at {}", end.to_rfc3339()))
}

fn flaw(status: &ClusterStatus, _now: DateTime<Utc>) -> Option<String> {
    let outage = match &status.outage {
        Some(Outage { since, error }) => {
            Some(format!("not reachable since {}: {error}", since.to_rfc3339()))
        }
        None => (!status.reachable).then(|| "not reachable".to_owned()),
    };
    let problems = status.problems.iter().map(|it| format!("{} ({})", it.reason, it.text));
    let flaws: Vec<_> = outage.into_iter().chain(problems).collect();
    (!flaws.is_empty()).then(|| flaws.join(", "))
}

#[cfg(test)]
mod tests;
