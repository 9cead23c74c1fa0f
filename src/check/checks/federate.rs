//! The lines about `trustplane federate`. Where it is not installed, one says so.

use super::{
    APPLY_FEDERATE, APPLY_TRUST_DOMAIN, CheckResult, Evaluator, NO_PERMISSIONS, Status, Subject,
    lacks,
};
use super::{leader, replicas, some};
use crate::{
    check::{
        federate::{ConditionFound, Installation, SpireServerFound},
        found::{Installed, PolicyFound, Reviewed},
    },
    k8s::api_error::ApiError,
    names::{FEDERATE_DEPLOYMENT, FEDERATE_LEASE},
    runtime::lease::holder::Holder,
};

impl Evaluator<'_> {
    pub(super) fn federate(&self) -> Vec<CheckResult> {
        let it = Subject { check: "federate", subject: "trustplane federate" };
        let federate = &self.facts.federate;
        let mut lines = match &federate.installation {
            Err(error) => vec![it.unanswered(error)],
            Ok(None) => vec![it.note(format!(
                "not installed: no {FEDERATE_DEPLOYMENT} in namespace {}",
                self.facts.namespace
            ))],
            Ok(Some(installation)) => vec![
                self.federate_apis(installation),
                self.federate_account(installation),
                self.federate_policy(installation),
                self.federate_deployment(installation),
                self.federate_lease(installation),
            ],
        };
        lines.extend(self.spire_server());
        lines
    }

    fn federate_apis(&self, installation: &Installation) -> CheckResult {
        let it = Subject { check: "federate-apis", subject: "SPIRE APIs" };
        let ours = match &installation.spire_server_api {
            Ok(Installed::Missing) => {
                return it
                    .failed("there is no SpireServer API", "Install it.")
                    .run(APPLY_TRUST_DOMAIN);
            }
            Ok(Installed::Altered(fields)) => {
                let found = format!(
                    "the SpireServer API is altered, or of another version: {}",
                    fields.join(", ")
                );
                let todo = "Apply it as this version ships it: the rules for SpireServers are in it. If \
                            the Zero Trust Workload Identity Manager brought it, remove one of the two.";
                return it.failed(found, todo).run(APPLY_TRUST_DOMAIN);
            }
            Ok(Installed::AsShipped) => "SpireServer as this version ships it",
            Err(error) => return it.unanswered(error),
        };
        match &installation.missing_kinds {
            Err(error) => it.unanswered(error),
            Ok(missing) if missing.is_empty() => {
                it.ok(format!("{ours}; those of the SPIRE controller manager are served"))
            }
            Ok(missing) => it.warning(
                format!("{ours}; not served: {}", missing.join(", ")),
                "Install the CRDs of the SPIRE controller manager (docs/federate.md): without them no \
                 first bundle can be imported.",
            ),
        }
    }

    fn federate_account(&self, installation: &Installation) -> CheckResult {
        let it = Subject { check: "federate-rights", subject: "federate's rights" };
        match &installation.account {
            Err(ApiError::NotFound) => it.note(NO_PERMISSIONS),
            Err(error) => it.unanswered(error),
            Ok(Reviewed { asked, missing }) if missing.is_empty() => it.ok(format!(
                "all {asked} of deploy/federate, with the SPIRE server in {}",
                installation.spire_namespace()
            )),
            Ok(Reviewed { asked, missing }) => it
                .failed(lacks(*asked, missing), "Apply what you installed from again.")
                .run(self.apply_federate(installation)),
        }
    }

    fn federate_policy(&self, installation: &Installation) -> CheckResult {
        use Installed::{Altered, AsShipped, Missing};
        let it = Subject { check: "federate-policy", subject: "SpireServer policy" };
        let failed = |found: String, todo: &str| {
            it.failed(found, todo).run(self.apply_federate(installation))
        };
        let unguarded = |found: &str| {
            let found = format!(
                "{found}: everybody who may edit the SpireServer decides which Secrets and hosts of its \
                 namespace are used"
            );
            failed(found, "Apply the policy and its binding.")
        };
        let altered = |what: &str, fields: &[String]| {
            let found = format!("{what}altered, or of another version: {}", fields.join(", "));
            failed(found, "Apply it as this version ships it.")
        };
        let found = match &installation.policy {
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
            PolicyFound { policy: Altered(fields), binding: AsShipped } => altered("", fields),
            PolicyFound { binding: Altered(fields), .. } => altered("its binding is ", fields),
            PolicyFound { policy: AsShipped, binding: AsShipped } => {
                let (guarded, serves) = (&installation.guarded, installation.spire_namespace());
                match guarded.as_deref() {
                    Some(guarded) if guarded == serves => it.note(format!(
                        "installed, bound and unaltered, for namespace {guarded}; whether the API server \
                         enforces it cannot be seen"
                    )),
                    guarded => failed(
                        format!(
                            "it guards namespace {}, but the SPIRE server runs in {serves}",
                            guarded.unwrap_or("none")
                        ),
                        "Set its variable serverNamespace to the Deployment's --namespace (docs/federate.md).",
                    ),
                }
            }
        }
    }

    fn federate_deployment(&self, installation: &Installation) -> CheckResult {
        let it = Subject { check: "federate-deployment", subject: "federate Deployment" };
        let idle = "nothing is kept up to date";
        replicas(it, &self.facts.namespace, FEDERATE_DEPLOYMENT, &installation.deployment, idle)
    }

    fn federate_lease(&self, installation: &Installation) -> CheckResult {
        let it = Subject { check: "federate-lease", subject: "federate's leader" };
        match &installation.lease {
            Err(error) => it.unanswered(error),
            Ok(Holder::Alive { identity }) => it.ok(format!("{identity} holds the Lease")),
            Ok(_) if !installation.deployment.elects => {
                it.note("the Deployment runs without --leader-elect")
            }
            Ok(holder) => {
                leader(it, &self.facts.namespace, FEDERATE_DEPLOYMENT, FEDERATE_LEASE, holder)
            }
        }
    }

    /// Shown without a Deployment too: the sandbox has none, and OpenShift has its own operator.
    fn spire_server(&self) -> Option<CheckResult> {
        let it = Subject { check: "spire-server", subject: "SpireServer" };
        let installed = matches!(self.facts.federate.installation, Ok(Some(_)));
        match &self.facts.federate.server {
            Ok(Some(server)) => Some(server_result(it, server, installed)),
            _ if !installed => None,
            Ok(None) => Some(it.note("none yet. docs/federate.md shows one")),
            Err(error) => Some(it.unanswered(error)),
        }
    }

    fn apply_federate(&self, installation: &Installation) -> String {
        match &installation.deployment.release {
            Some(release) => format!(
                "helm upgrade {release} deploy/chart -n {} --reuse-values",
                self.facts.namespace
            ),
            None => APPLY_FEDERATE.to_owned(),
        }
    }
}

fn server_result(it: Subject, server: &SpireServerFound, installed: bool) -> CheckResult {
    let ready = server.conditions.iter().find(|it| it.kind == "Ready");
    let Some(ready) = ready else {
        let found = format!("trust domain {}, without conditions", server.trust_domain);
        let todo = "Wait a moment. If none come, the controller's log says why.";
        return match installed {
            true => it.warning(found, todo),
            false => it.note(format!("{found}: no controller keeps it")),
        };
    };
    let mut found = format!(
        "trust domain {}: Ready is {} ({})",
        server.trust_domain, ready.status, ready.reason
    );
    // False is the usual of CreateOnlyMode.
    let others =
        || server.conditions.iter().filter(|it| it.kind != "Ready" && it.kind != "CreateOnlyMode");
    let mut add = |title: &str, names: Vec<String>| {
        if !names.is_empty() {
            found = format!("{found}; {title}: {}", some(names.into_iter()));
        }
    };
    let that_are = |status: &str| -> Vec<String> {
        let those = others().filter(|it| it.status == status);
        those.map(|ConditionFound { kind, reason, .. }| format!("{kind} ({reason})")).collect()
    };
    let wrong = that_are("False");
    let none_wrong = wrong.is_empty();
    add("False", wrong);
    add("Unknown", that_are("Unknown"));
    let failing = server.peers.iter().filter(|(_, well)| !well).map(|(name, _)| name.clone());
    let failing: Vec<_> = failing.collect();
    let all_well = failing.is_empty();
    add("peers with a problem", failing);
    if all_well && !server.peers.is_empty() {
        found = format!("{found}; peers without a problem: {}", server.peers.len());
    }
    if !server.current {
        found = format!("{found}; this was said of an earlier spec");
    }
    // A controller that is gone leaves its last word behind.
    if !installed {
        found = format!("{found}; no {FEDERATE_DEPLOYMENT} is installed to keep this current");
    }
    let result = match &*ready.status {
        "True" if none_wrong && all_well && server.current => match installed {
            true => Status::Ok,
            false => Status::Note,
        },
        "False" if installed => Status::Failed,
        _ => Status::Warning,
    };
    let line = it.line(result, found);
    match result {
        Status::Ok | Status::Note => line,
        _ => line
            .todo("The message of each condition, and lastError of each peer, say why and what to do.")
            .run("kubectl describe spireserver cluster"),
    }
}

#[cfg(test)]
mod tests;
