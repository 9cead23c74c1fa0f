//! Evaluates the facts: one result for each thing that must be in order. Pure.
//!
//! trustplane counts as installed where its Deployment is there. Before that, what belongs to the
//! installation is "not yet" and no failure, unless somebody says that it should be there.

use serde::Serialize;

use super::{
    facts::Facts,
    found::{DeploymentFound, Installed, PolicyFound, Reviewed, RouteApi},
    probe::Enforcement,
    rights::Right,
};
use crate::{
    inject::act::capability::StatusField,
    k8s::{api_error::ApiError, object_ref::ObjectRef, sandbox::Injecting},
    names::{INJECT_DEPLOYMENT, INJECT_LEASE},
    runtime::lease::holder::Holder,
};

mod authority;
mod controller;
mod federate;
mod review;
mod routes;

use controller::{helm_upgrade, leader, replicas};

/// The first version with ValidatingAdmissionPolicy v1.
pub const OLDEST: (u32, u32) = (1, 30);
/// The version that the tests run against.
pub const TESTED: (u32, u32) = (1, 36);
/// How many names a line shows.
const NAMES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Ok,
    /// It works, but somebody should look at it.
    Warning,
    Failed,
    /// It comes with the installation.
    NotYet,
    /// For information.
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// Names the check for scripts, and never changes.
    pub check: &'static str,
    pub result: Status,
    pub subject: &'static str,
    pub found: String,
    #[serde(rename = "do")]
    pub todo: Option<String>,
    /// To be copied.
    pub command: Option<String>,
}

#[derive(Clone, Copy)]
struct Subject {
    check: &'static str,
    subject: &'static str,
}

impl Subject {
    fn line(self, result: Status, found: impl Into<String>) -> CheckResult {
        let Self { check, subject } = self;
        CheckResult { check, result, subject, found: found.into(), todo: None, command: None }
    }

    fn ok(self, found: impl Into<String>) -> CheckResult {
        self.line(Status::Ok, found)
    }

    fn failed(self, found: impl Into<String>, todo: impl Into<String>) -> CheckResult {
        self.line(Status::Failed, found).todo(todo)
    }

    fn warning(self, found: impl Into<String>, todo: impl Into<String>) -> CheckResult {
        self.line(Status::Warning, found).todo(todo)
    }

    fn note(self, found: impl Into<String>) -> CheckResult {
        self.line(Status::Note, found)
    }

    fn unanswered(self, error: &ApiError) -> CheckResult {
        match error {
            ApiError::Forbidden | ApiError::Unauthorized => self.warning(
                format!("cannot be seen: {error}"),
                "Run this as somebody who may read it, for example a cluster administrator.",
            ),
            error => self.failed(format!("cannot be seen: {error}"), "Run this again."),
        }
    }
}

impl CheckResult {
    fn todo(self, todo: impl Into<String>) -> Self {
        Self { todo: Some(todo.into()), ..self }
    }

    fn run(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}

/// Whether trustplane should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// If its Deployment is.
    Whatever,
    Installed,
}

/// Whether what belongs to the installation must be there.
pub fn is_installed(facts: &Facts, expect: Expect) -> bool {
    expect == Expect::Installed || matches!(facts.deployment, Ok(Some(_)))
}

pub fn evaluate(facts: &Facts, expect: Expect) -> Vec<CheckResult> {
    let evaluator = Evaluator { facts, installed: is_installed(facts, expect) };
    let mut lines = vec![
        evaluator.api_server(),
        evaluator.route_api(),
        evaluator.status_field(),
        evaluator.installer(),
        evaluator.account(),
        evaluator.policy(),
        evaluator.deployment(),
        evaluator.lease(),
        evaluator.routes(),
        evaluator.secrets(),
        evaluator.dates(),
        evaluator.hosts(),
        evaluator.admission(),
    ];
    lines.extend(evaluator.federate());
    lines.extend(evaluator.authority());
    lines.extend(evaluator.review());
    lines.push(evaluator.encryption());
    lines
}

struct Evaluator<'a> {
    facts: &'a Facts,
    installed: bool,
}

impl Evaluator<'_> {
    fn api_server(&self) -> CheckResult {
        let it = Subject { check: "api-server", subject: "API server" };
        let server = &self.facts.server;
        if let Some(injecting) = self.facts.sandbox {
            let injector = match injecting {
                Injecting::Itself => "its injector runs",
                Injecting::Others => "without its injector",
            };
            return it.ok(format!("the trustplane sandbox at {}; {injector}", server.url));
        }
        let found = format!("Kubernetes {} at {}", server.version, server.url);
        if server.number < OLDEST {
            let (major, minor) = OLDEST;
            let todo = format!(
                "Upgrade to {major}.{minor} or newer: older versions have no ValidatingAdmissionPolicy, \
                 and everybody who may edit a Route could read Secrets through it."
            );
            return it.failed(found, todo);
        }
        let (major, minor) = TESTED;
        if server.number == TESTED {
            it.ok(found)
        } else {
            it.ok(format!("{found}; tested with {major}.{minor}"))
        }
    }

    fn route_api(&self) -> CheckResult {
        let it = Subject { check: "route-api", subject: "Route API" };
        match &self.facts.route_api {
            Err(error) => it.unanswered(error),
            Ok(RouteApi::Missing) => it
                .failed(
                    "missing",
                    "On plain Kubernetes install deploy/overlays/kubernetes, which includes it, or \
                     install it alone. OpenShift and MicroShift have their own.",
                )
                .run(ROUTE_CRD),
            Ok(RouteApi::Crd) => it.ok("route.openshift.io/v1, a CustomResourceDefinition"),
            Ok(RouteApi::Served) => {
                it.ok("route.openshift.io/v1; whether by a CRD or another server cannot be seen")
            }
            Ok(RouteApi::Aggregated { service, unavailable: None }) => {
                it.ok(format!("route.openshift.io/v1, aggregated: served by {service}"))
            }
            Ok(RouteApi::Aggregated { service, unavailable: Some(why) }) => it
                .failed(
                    format!("aggregated, but {service} is not available: {why}"),
                    "Get that server running again.",
                )
                .run("kubectl describe apiservice v1.route.openshift.io"),
        }
    }

    fn status_field(&self) -> CheckResult {
        let it = Subject { check: "status-certificate", subject: ".status.certificate" };
        match &self.facts.status_field {
            Ok(StatusField::Kept) => it.ok("stored"),
            // OpenShift's Route API and MicroShift's are not ours to change.
            Ok(StatusField::Dropped) => {
                it.note("not stored by this Route API: see Events and metrics instead")
            }
            // Said in the line before. An API that has just gone fails in more ways than one.
            Err(_) if matches!(self.facts.route_api, Ok(RouteApi::Missing)) => {
                it.note("no Routes to look at")
            }
            Err(ApiError::NotFound) => it.note("no Routes to look at"),
            Err(error) => it.unanswered(error),
        }
    }

    fn installer(&self) -> CheckResult {
        let it = Subject { check: "install-rights", subject: "rights to install" };
        match &self.facts.installer {
            // The sandbox has no permissions at all.
            Err(ApiError::NotFound) => it.note(NO_PERMISSIONS),
            Err(error) => it.unanswered(error),
            Ok(Reviewed { asked, missing }) if missing.is_empty() => {
                it.ok(format!("all {asked} that are needed to install"))
            }
            Ok(Reviewed { asked, missing }) => {
                let result = if self.installed { Status::Warning } else { Status::Failed };
                it.line(result, lacks(*asked, missing)).todo(
                    "Install or upgrade as somebody who has them, such as a cluster administrator. \
                     deploy/overlays/single-namespace needs rights in one namespace only.",
                )
            }
        }
    }

    fn account(&self) -> CheckResult {
        let it = Subject { check: "account-rights", subject: "controller's rights" };
        match &self.facts.account {
            // It answers about tokens alone.
            _ if self.in_sandbox() => it.note(NO_PERMISSIONS),
            Err(ApiError::NotFound) => it.note(NO_PERMISSIONS),
            Err(error) => it.unanswered(error),
            Ok(Reviewed { asked, missing }) if missing.is_empty() => {
                it.ok(format!("all {asked} of deploy/base{}", self.in_served()))
            }
            Ok(_) if !self.installed => it.line(Status::NotYet, "come with the installation"),
            Ok(Reviewed { asked, missing }) => it
                .failed(
                    format!("{}{}", lacks(*asked, missing), self.in_served()),
                    "Apply what you installed from again.",
                )
                .run(self.apply()),
        }
    }

    fn policy(&self) -> CheckResult {
        let mut line = self.installed_policy();
        if self.facts.enforcement == Enforcement::NothingToTest {
            line.found = format!("{}. --probe-policy tested nothing", line.found);
            if line.todo.is_none() {
                line.result = Status::Warning;
                line.todo =
                    Some("Test it where the policy is installed, bound and unaltered.".to_owned());
            }
        }
        line
    }

    fn installed_policy(&self) -> CheckResult {
        let it = Subject { check: "policy", subject: "admission policy" };
        let found = match &self.facts.policy {
            // The sandbox has no admission at all, and nothing is ever installed there.
            Err(ApiError::NotFound) if !self.installed || self.in_sandbox() => {
                return it.note("this API server has no admission policies");
            }
            Err(ApiError::NotFound) => {
                return it.failed(
                    "this API server has no admission policies: everybody who may edit a Route can read TLS Secrets through it",
                    "Enable the API admissionregistration.k8s.io/v1.",
                );
            }
            Err(error) => return it.unanswered(error),
            Ok(None) => {
                return it.failed(
                    "this API server does not know ValidatingAdmissionPolicy",
                    "Upgrade it, or enable the API admissionregistration.k8s.io/v1.",
                );
            }
            Ok(Some(found)) => found,
        };
        use Installed::{Altered, AsShipped, Missing};
        let altered = |what: &str, fields: &[String]| {
            let found = format!("{what}altered, or of another version: {}", fields.join(", "));
            it.failed(found, "Apply it as this version ships it.").run(APPLY_POLICY)
        };
        match found {
            PolicyFound { policy: Missing, binding: Missing, .. } if !self.installed => {
                it.line(Status::NotYet, "comes with the installation")
            }
            PolicyFound { policy: Missing, .. } => self.unguarded(it, "missing"),
            PolicyFound { binding: Missing, .. } => self.unguarded(it, "installed, but not bound"),
            PolicyFound { policy: Altered(fields), binding: AsShipped, .. } => altered("", fields),
            PolicyFound { binding: Altered(fields), .. } => altered("its binding is ", fields),
            PolicyFound { policy: AsShipped, binding: AsShipped, .. } => self.guarded(it),
        }
    }

    /// Whether it is enforced is for each API server to say: its plugin can be switched off. A server
    /// behind the main one runs admission by itself; OpenShift's did not ask policies for long.
    fn guarded(&self, it: Subject) -> CheckResult {
        let found = "installed, bound and unaltered";
        let aggregated = match &self.facts.route_api {
            Ok(RouteApi::Aggregated { service, .. }) => Some(service),
            _ => None,
        };
        match (&self.facts.enforcement, aggregated) {
            (Enforcement::NotTested | Enforcement::NothingToTest, None) => it
                .note(format!("{found}; whether the API server enforces it cannot be seen without a test"))
                .run(PROBE),
            (Enforcement::NotTested | Enforcement::NothingToTest, Some(service)) => it
                .warning(
                    format!("{found}; whether {service}, which serves Routes, enforces it cannot be seen"),
                    "Test it. docs/security.md says more under \"On OpenShift\".",
                )
                .run(PROBE),
            (Enforcement::Enforced, _) => it.ok(format!(
                "{found}, and enforced: a user who may not read a Secret could not ask for it"
            )),
            (Enforcement::NotEnforced, _) => it.failed(
                format!("{found}, but NOT ENFORCED: a user who may not read a Secret could ask for it"),
                match aggregated {
                    None => "Enable the admission plugin ValidatingAdmissionPolicy of every API server: \
                             remove it from --disable-admission-plugins."
                        .to_owned(),
                    Some(service) => format!(
                        "{service} does not ask admission policies. Upgrade it, or serve only chosen \
                         namespaces (docs/security.md)."
                    ),
                },
            ),
            (Enforcement::Unknown(error), _) => it
                .warning(
                    format!("{found}; whether it is enforced could not be tested: {error}"),
                    "Run this again as a cluster administrator.",
                )
                .run(PROBE),
        }
    }

    /// A controller for some namespaces may do without it, and its administrator knows.
    fn unguarded(&self, it: Subject, found: &str) -> CheckResult {
        let result = if self.facts.served().is_empty() { Status::Failed } else { Status::Warning };
        it.line(
            result,
            format!("{found}: everybody who may edit a Route can read TLS Secrets through it"),
        )
        .todo("Apply the policy and its binding.")
        .run(APPLY_POLICY)
    }

    fn deployment(&self) -> CheckResult {
        let it = Subject { check: "deployment", subject: "Deployment" };
        let namespace = &self.facts.namespace;
        match &self.facts.deployment {
            _ if self.in_sandbox() && self.installed => it.failed(
                "none: nothing can be installed in the sandbox",
                "Run this on a cluster: KUBECONFIG leads to the sandbox.",
            ),
            _ if self.in_sandbox() => it.note("none: nothing is installed in the sandbox"),
            Err(error) => it.unanswered(error),
            Ok(None) if !self.installed && !self.facts.elsewhere.is_empty() => {
                let places = self.facts.elsewhere.join(", ");
                it.warning(
                    format!("none in namespace {namespace}, but in {places}"),
                    "If you mean that one, name its namespace.",
                )
                .run(format!("trustplane check --namespace {}", self.facts.elsewhere[0]))
            }
            Ok(None) if !self.installed => it.line(
                Status::NotYet,
                format!(
                    "no {INJECT_DEPLOYMENT} in namespace {namespace}; --namespace looks in another"
                ),
            ),
            Ok(None) => it
                .failed(
                    format!("no {INJECT_DEPLOYMENT} in namespace {namespace}"),
                    "Install it. If it is elsewhere, name its namespace with --namespace.",
                )
                .run(self.apply()),
            Ok(Some(deployment)) => {
                replicas(it, namespace, INJECT_DEPLOYMENT, deployment, "nothing is injected")
            }
        }
    }

    fn lease(&self) -> CheckResult {
        let it = Subject { check: "lease", subject: "leader" };
        let namespace = &self.facts.namespace;
        let elects = match &self.facts.deployment {
            Ok(Some(deployment)) => deployment.elects,
            _ => true,
        };
        match &self.facts.lease {
            _ if self.in_sandbox() => it.note("none: the sandbox needs no Lease"),
            Err(error) => it.unanswered(error),
            Ok(Holder::Alive { identity }) => it.ok(format!("{identity} holds the Lease")),
            // One that was left behind by an earlier installation is taken over.
            Ok(_) if !self.installed => it.line(Status::NotYet, "nobody"),
            Ok(_) if !elects => it.note("the Deployment runs without --leader-elect"),
            Ok(holder) => leader(it, namespace, INJECT_DEPLOYMENT, INJECT_LEASE, holder),
        }
    }

    fn encryption(&self) -> CheckResult {
        Subject { check: "encryption-at-rest", subject: "encryption at rest" }
            .note("cannot be seen from here. Routes hold keys: encrypt them in etcd like Secrets (docs/security.md)")
    }

    fn in_sandbox(&self) -> bool {
        self.facts.sandbox.is_some()
    }

    fn in_served(&self) -> String {
        match self.facts.served() {
            [] => String::new(),
            some => format!(", in {}", some.join(", ")),
        }
    }

    /// The command that repairs the installation, in the way in which it was made.
    fn apply(&self) -> String {
        let namespace = &self.facts.namespace;
        if let Ok(Some(DeploymentFound { release: Some(release), .. })) = &self.facts.deployment {
            return helm_upgrade(release, namespace);
        }
        // Only our own Route API keeps the field, and only the overlay for Kubernetes has that in it.
        let ours = self.facts.status_field == Ok(StatusField::Kept);
        let overlay = match &self.facts.route_api {
            _ if !self.facts.served().is_empty() => "single-namespace",
            Ok(RouteApi::Missing) => "kubernetes",
            _ if ours => "kubernetes",
            _ => "openshift",
        };
        format!("kubectl apply -k deploy/overlays/{overlay}")
    }
}

const ROUTE_CRD: &str = "kubectl apply -f crds/route.openshift.io_routes.yaml";
const APPLY_POLICY: &str = "kubectl apply -k deploy/policy";
const PROBE: &str = "trustplane check --probe-policy";
const NO_PERMISSIONS: &str = "this API server has no permissions to ask about";

fn lacks(asked: usize, missing: &[Right]) -> String {
    let names = some(missing.iter().map(ToString::to_string));
    format!("{} of {asked}; missing: {names}", asked - missing.len())
}

fn named((route, reason): &(ObjectRef, Option<String>)) -> String {
    match reason {
        Some(reason) => format!("{route} ({reason})"),
        None => route.to_string(),
    }
}

/// The first names, and how many more there are.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let shown: Vec<_> = names.take(NAMES).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
