//! The lines about Routes, their certificates and their Secrets.

use super::{CheckResult, Evaluator, Subject, named, some};
use crate::{
    check::routes::RoutesFound,
    k8s::{api_error::ApiError, object_ref::ObjectRef, sandbox::Injecting},
};

impl Evaluator<'_> {
    /// Where Routes could not be listed, the first line says why and the others this.
    fn not_seen(&self, it: Subject) -> CheckResult {
        it.note(match &self.facts.routes {
            Err(ApiError::NotFound) => "no Routes to look at",
            _ => "cannot be seen: the Routes could not be listed",
        })
    }

    pub(super) fn routes(&self) -> CheckResult {
        let it = Subject { check: "routes", subject: "Routes" };
        let found = match &self.facts.routes {
            Err(ApiError::NotFound) => return self.not_seen(it),
            Err(error) => return it.unanswered(error),
            Ok(found) => found,
        };
        let RoutesFound { all, annotated, injected, left_alone, failing, .. } = found;
        let mut text = match &found.current {
            Ok(_) if *annotated == 0 => format!("{all}, none of which asks for a Secret"),
            Ok(current) => format!(
                "{all}, of which {annotated} ask for a Secret; its certificate and key are in {current} of these"
            ),
            Err(_) => format!(
                "{all}, of which {annotated} ask for a Secret; {injected} have what was injected, but without \
                 reading Secrets it cannot be seen whether that is current"
            ),
        };
        if *left_alone > 0 {
            text = format!("{text}; {left_alone} more ask, but belong to an Ingress");
        }
        if !found.misspelt.is_empty() {
            let names = some(found.misspelt.iter().map(|(route, key)| format!("{route} ({key})")));
            text = format!("{text}; misspelt annotation: {names}");
        }
        let injects = self.installed || self.facts.sandbox == Some(Injecting::Itself);
        let idle = !injects && *injected == 0;
        if idle || failing.is_empty() && found.undecodable.is_empty() {
            return match found.misspelt.is_empty() {
                true if idle => it.note(text),
                true => it.ok(text),
                false => it.warning(text, SPELL),
            };
        }
        if !found.undecodable.is_empty() {
            text = format!("{text}; cannot be decoded: {}", refs(&found.undecodable));
        }
        if !failing.is_empty() {
            text = format!("{text}; failing: {}", some(failing.iter().map(named)));
        }
        it.warning(text, "The Events of each say why, and what to do.")
            .run("kubectl -n NAMESPACE events --for route/NAME")
    }

    pub(super) fn secrets(&self) -> CheckResult {
        let it = Subject { check: "secrets", subject: "Secrets of Routes" };
        let Ok(found) = &self.facts.routes else { return self.not_seen(it) };
        match &found.without_secret {
            Err(error) => it.unanswered(error),
            Ok(absent) if absent.is_empty() => it.ok("every TLS Secret that a Route names exists"),
            Ok(absent) => {
                let names =
                    some(absent.iter().map(|(route, secret)| format!("{route} names {secret}")));
                it.warning(
                    format!("missing, or of another type: {names}"),
                    "Create it in the Route's namespace with type kubernetes.io/tls, or correct the annotation.",
                )
            }
        }
    }

    /// Only `list` on Routes is needed: the certificate is in the Route.
    pub(super) fn dates(&self) -> CheckResult {
        let it = Subject { check: "certificate-dates", subject: "certificate dates" };
        let Ok(found) = &self.facts.routes else { return self.not_seen(it) };
        let kinds = [
            ("expired", &found.expired),
            ("not valid yet", &found.not_yet_valid),
            ("expiring soon", &found.expiring),
            ("cannot be read", &found.unreadable),
        ];
        let bad = kinds.iter().filter(|(_, routes)| !routes.is_empty());
        let bad: Vec<_> = bad.map(|(what, routes)| format!("{what}: {}", refs(routes))).collect();
        if bad.is_empty() {
            return it.ok("none that a Route asked for is expired or expires soon");
        }
        it.warning(bad.join("; "), "Renew the certificate in the Secret of each Route.")
    }

    pub(super) fn hosts(&self) -> CheckResult {
        let it = Subject { check: "certificate-hosts", subject: "certificate hosts" };
        let Ok(found) = &self.facts.routes else { return self.not_seen(it) };
        if found.wrong_host.is_empty() {
            return it.ok("every one that a Route asked for is for its host");
        }
        it.warning(
            format!("not for the Route's host: {}", refs(&found.wrong_host)),
            "Clients refuse it. Have the host added to the certificate, or correct spec.host of the Route.",
        )
    }

    pub(super) fn admission(&self) -> CheckResult {
        let it = Subject { check: "router-admission", subject: "routers" };
        let Ok(found) = &self.facts.routes else { return self.not_seen(it) };
        if found.refused.is_empty() {
            return it.ok("no router refuses a Route that asks for a Secret");
        }
        let names = some(found.refused.iter().map(|(route, why)| format!("{route} ({why})")));
        it.warning(format!("refused: {names}"), "The Admitted condition of each Route says why.")
            .run(ADMITTED)
    }
}

const SPELL: &str = "Nobody reads an annotation of that name. If it is to ask for a Secret, call it \
     route.openshift.io/tls-secret-name.";
const ADMITTED: &str = r#"kubectl -n NAMESPACE get route NAME -o jsonpath='{range .status.ingress[*].conditions[*]}{.message}{"\n"}{end}'"#;

fn refs(routes: &[ObjectRef]) -> String {
    some(routes.iter().map(ToString::to_string))
}
