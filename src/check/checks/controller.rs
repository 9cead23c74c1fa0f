//! The lines that controllers have in common: `trustplane inject` some of them, those beside it all.

use super::{CheckResult, NO_PERMISSIONS, Subject, lacks};
use crate::{
    check::{
        controller::{Controller, ControllerFound},
        found::{Answer, DeploymentFound, Installed, PolicyFound, Reviewed},
    },
    k8s::api_error::ApiError,
    runtime::lease::holder::Holder,
};

/// A controller beside `trustplane inject` that is installed.
pub(super) struct ControllerChecks<'a> {
    pub controller: Controller,
    pub found: &'a ControllerFound,
    /// Where it is installed.
    pub namespace: &'a str,
    /// The command that installs it again, unless helm did.
    pub apply: &'static str,
}

/// The words of the line about an admission policy.
pub(super) struct PolicyWords<'a> {
    /// What is open to everybody without it.
    pub open: &'a str,
    /// The namespace that it must be for.
    pub namespace: &'a str,
    /// What is in that namespace, and what to do where the policy is for another one.
    pub owner: &'a str,
    pub todo: &'a str,
}

impl ControllerChecks<'_> {
    /// `source` is where the rights come from.
    pub(super) fn rights(&self, it: Subject, source: &str) -> CheckResult {
        match &self.found.account {
            Err(ApiError::NotFound) => it.note(NO_PERMISSIONS),
            Err(error) => it.unanswered(error),
            Ok(Reviewed { asked, missing }) if missing.is_empty() => {
                it.ok(format!("all {asked} of {source}"))
            }
            Ok(Reviewed { asked, missing }) => it
                .failed(lacks(*asked, missing), "Apply what you installed from again.")
                .run(self.apply()),
        }
    }

    pub(super) fn policy(&self, it: Subject, words: &PolicyWords<'_>) -> CheckResult {
        use Installed::{Altered, AsShipped, Missing};
        let failed = |found: String, todo: &str| it.failed(found, todo).run(self.apply());
        let unguarded = |found: &str| {
            failed(format!("{found}: {}", words.open), "Apply the policy and its binding.")
        };
        let altered = |what: &str, fields: &[String]| {
            let found = format!("{what}altered, or of another version: {}", fields.join(", "));
            failed(found, "Apply it as this version ships it.")
        };
        let found = match &self.found.policy {
            Err(ApiError::NotFound) | Ok(None) => {
                return it.failed(
                    "this API server has no admission policies",
                    "Enable the API admissionregistration.k8s.io/v1.",
                );
            }
            Err(error) => return it.unanswered(error),
            Ok(Some(found)) => found,
        };
        match found {
            PolicyFound { policy: Missing, .. } => unguarded("missing"),
            PolicyFound { binding: Missing, .. } => unguarded("installed, but not bound"),
            PolicyFound { policy: Altered(fields), binding: AsShipped, .. } => altered("", fields),
            PolicyFound { binding: Altered(fields), .. } => altered("its binding is ", fields),
            PolicyFound { policy: AsShipped, binding: AsShipped, namespace } => {
                let guarded = namespace.as_deref().unwrap_or("none");
                let PolicyWords { namespace, owner, todo, .. } = words;
                match guarded == *namespace {
                    true => it.note(format!(
                        "installed, bound and unaltered, for namespace {guarded}; whether the API server \
                         enforces it cannot be seen"
                    )),
                    false => failed(
                        format!("it guards namespace {guarded}, but {owner} runs in {namespace}"),
                        todo,
                    ),
                }
            }
        }
    }

    /// `idle` is what does not happen while it does not run.
    pub(super) fn deployment(&self, it: Subject, idle: &str) -> CheckResult {
        replicas(it, self.namespace, self.controller.deployment, &self.found.deployment, idle)
    }

    pub(super) fn lease(&self, it: Subject) -> CheckResult {
        let Controller { deployment, lease, .. } = self.controller;
        match &self.found.lease {
            Err(error) => it.unanswered(error),
            Ok(Holder::Alive { identity }) => it.ok(format!("{identity} holds the Lease")),
            Ok(_) if !self.found.deployment.elects => {
                it.note("the Deployment runs without --leader-elect")
            }
            Ok(holder) => leader(it, self.namespace, deployment, lease, holder),
        }
    }

    /// The command that shows why it does not do its work.
    pub(super) fn logs(&self) -> String {
        logs(self.namespace, self.controller.deployment)
    }

    /// The command that installs it again.
    pub(super) fn apply(&self) -> String {
        match &self.found.deployment.release {
            Some(release) => helm_upgrade(release, self.namespace),
            None => self.apply.to_owned(),
        }
    }
}

/// The lines of a controller beside `trustplane inject`, or one that says that it is not installed.
pub(super) fn if_installed<T>(
    it: Subject,
    controller: Controller,
    namespace: &str,
    installation: &Answer<Option<T>>,
    lines: impl FnOnce(&T) -> Vec<CheckResult>,
) -> Vec<CheckResult> {
    match installation {
        Err(error) => vec![it.unanswered(error)],
        Ok(None) => {
            let name = controller.deployment;
            vec![it.note(format!("not installed: no {name} in namespace {namespace}"))]
        }
        Ok(Some(installation)) => lines(installation),
    }
}

/// An API with a CRD of ours: what is good about it, or the line that says what is not.
pub(super) fn shipped_api(
    it: Subject,
    kind: &str,
    found: &Answer<Installed>,
    todo: &str,
    apply: &str,
) -> Result<String, CheckResult> {
    match found {
        Err(error) => Err(it.unanswered(error)),
        Ok(Installed::Missing) => {
            Err(it.failed(format!("there is no {kind} API"), "Install it.").run(apply))
        }
        Ok(Installed::Altered(fields)) => {
            let fields = fields.join(", ");
            let found = format!("the {kind} API is altered, or of another version: {fields}");
            Err(it.failed(found, todo).run(apply))
        }
        Ok(Installed::AsShipped) => Ok(format!("{kind} as this version ships it")),
    }
}

pub(super) fn helm_upgrade(release: &str, namespace: &str) -> String {
    format!("helm upgrade {release} deploy/chart -n {namespace} --reuse-values")
}

fn logs(namespace: &str, deployment: &str) -> String {
    format!("kubectl -n {namespace} logs deployment/{deployment}")
}

/// A Deployment that is there: whether its replicas are.
pub(super) fn replicas(
    it: Subject,
    namespace: &str,
    name: &str,
    deployment: &DeploymentFound,
    idle: &str,
) -> CheckResult {
    let DeploymentFound { replicas, ready, updated, image, dry_run, .. } = deployment;
    if *replicas == 0 {
        return it
            .failed(format!("scaled to 0, image {image}: {idle}"), "Scale it up.")
            .run(format!("kubectl -n {namespace} scale deployment/{name} --replicas=2"));
    }
    if *dry_run {
        return it.failed(
            format!("runs with --dry-run, image {image}: {idle}"),
            "Remove that flag, or the variable TRUSTPLANE_DRY_RUN.",
        );
    }
    let mut found = format!("{ready} of {replicas} replicas ready, image {image}");
    // Old ones that are ready hide new ones that never start.
    if updated < replicas {
        found = format!("{found}; {updated} of {replicas} replaced by this version");
    }
    if ready < replicas || updated < replicas {
        it.failed(found, "Look at its Pods and their logs.")
            .run(format!("kubectl -n {namespace} describe deployment/{name}"))
    } else {
        it.ok(found)
    }
}

/// A Lease that somebody should hold.
pub(super) fn leader(
    it: Subject,
    namespace: &str,
    deployment: &str,
    lease: &str,
    holder: &Holder,
) -> CheckResult {
    let found = match holder {
        Holder::Alive { identity } => return it.ok(format!("{identity} holds the Lease")),
        Holder::NoLease => format!("no Lease {lease} in namespace {namespace}"),
        Holder::Released => "nobody: the Lease was released".to_owned(),
        Holder::Gone { identity, renewed } => {
            let since =
                renewed.map_or_else(String::new, |it| format!(" since {}", it.to_rfc3339()));
            format!("nobody: {identity} has not renewed the Lease{since}")
        }
    };
    it.failed(found, "The log says why.").run(logs(namespace, deployment))
}
