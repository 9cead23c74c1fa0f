//! The lines about `trustplane federate`. Where it is not installed, one says so.

use super::{
    CheckResult, Evaluator, Status, Subject,
    controller::{ControllerChecks, PolicyWords, if_installed, shipped_api},
    some,
};
use crate::{
    check::{
        federate::{CONTROLLER, Installation, SpireServerFound},
        found::ConditionFound,
    },
    names::FEDERATE_DEPLOYMENT,
};

const APPLY: &str = "kubectl apply -k deploy/federate";
const APPLY_TRUST_DOMAIN: &str = "kubectl apply -k deploy/trust-domain";

impl Evaluator<'_> {
    pub(super) fn federate(&self) -> Vec<CheckResult> {
        let it = Subject { check: "federate", subject: "trustplane federate" };
        let namespace = &self.facts.namespace;
        let installation = &self.facts.federate.installation;
        let mut lines = if_installed(it, CONTROLLER, namespace, installation, |installation| {
            let found = &installation.controller;
            let checks =
                ControllerChecks { controller: CONTROLLER, found, namespace, apply: APPLY };
            lines(installation, &checks)
        });
        lines.extend(self.spire_server());
        lines
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
}

fn lines(installation: &Installation, checks: &ControllerChecks<'_>) -> Vec<CheckResult> {
    let serves = installation.spire_namespace();
    let rights = Subject { check: "federate-rights", subject: "federate's rights" };
    let policy = Subject { check: "federate-policy", subject: "SpireServer policy" };
    let deployment = Subject { check: "federate-deployment", subject: "federate Deployment" };
    let lease = Subject { check: "federate-lease", subject: "federate's leader" };
    let words = PolicyWords {
        open: "everybody who may edit the SpireServer decides which Secrets and hosts of its namespace are \
               used",
        namespace: serves,
        owner: "the SPIRE server",
        todo: "Set its variable serverNamespace to the Deployment's --namespace (docs/federate.md).",
    };
    vec![
        apis(installation),
        checks.rights(rights, &format!("deploy/federate, with the SPIRE server in {serves}")),
        checks.policy(policy, &words),
        checks.deployment(deployment, "nothing is kept up to date"),
        checks.lease(lease),
    ]
}

fn apis(installation: &Installation) -> CheckResult {
    let it = Subject { check: "federate-apis", subject: "SPIRE APIs" };
    let todo = "Apply it as this version ships it: the rules for SpireServers are in it. If the Zero \
                Trust Workload Identity Manager brought it, remove one of the two.";
    let found = &installation.spire_server_api;
    let ours = match shipped_api(it, "SpireServer", found, todo, APPLY_TRUST_DOMAIN) {
        Ok(ours) => ours,
        Err(line) => return line,
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
