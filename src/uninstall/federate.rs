//! `trustplane federate` and its trust domain. They are not touched, because the keys of a trust domain
//! can't be made again; the commands that remove them are shown.

use kube::Client;
use serde_json::{Value, json};

use super::plan::Outlook;
use crate::{
    check::{
        federate::{self, SpireServerFound, spire_namespace},
        found::DeploymentFound,
    },
    federate::decide::render::ROUTE,
    names::{FEDERATE_DEPLOYMENT, SPIRE_NAMESPACE},
    runtime::terminal::{command, paragraph},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Federate {
    /// Where the controller is installed, if it is.
    installed_in: Option<String>,
    runs: bool,
    /// Where the SPIRE server runs.
    spire_namespace: String,
    trust_domain: Option<String>,
}

/// Nothing for a user who may not see it: they can't remove it either.
pub async fn find(client: &Client, namespace: &str) -> Federate {
    let (deployment, server) =
        tokio::join!(federate::deployment(client, namespace), federate::spire_server(client));
    Federate::of(namespace, deployment.ok().flatten(), server.ok().flatten())
}

impl Federate {
    fn of(
        namespace: &str,
        deployment: Option<DeploymentFound>,
        server: Option<SpireServerFound>,
    ) -> Self {
        Self {
            installed_in: deployment.is_some().then(|| namespace.to_owned()),
            runs: deployment.as_ref().is_some_and(|it| it.replicas > 0),
            spire_namespace: deployment
                .as_ref()
                .map_or(SPIRE_NAMESPACE, spire_namespace)
                .to_owned(),
            trust_domain: server.map(|server| server.trust_domain),
        }
    }

    fn is_nothing(&self) -> bool {
        self.installed_in.is_none() && self.trust_domain.is_none()
    }

    /// The command that removes the controller, and leaves the trust domain as it is.
    fn removes(&self) -> Option<&'static str> {
        self.installed_in.as_ref().map(|_| "kubectl delete --ignore-not-found -k deploy/federate")
    }

    fn destroys(&self) -> [String; 3] {
        [
            "kubectl delete --ignore-not-found spireserver cluster".to_owned(),
            format!("kubectl delete --ignore-not-found namespace {}", self.spire_namespace),
            "kubectl delete --ignore-not-found crd spireservers.operator.openshift.io".to_owned(),
        ]
    }

    /// Shown before anything is done.
    pub fn notice(&self, outlook: &Outlook, width: usize) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let controller = self.installed_in.as_ref();
        let controller =
            controller.map(|namespace| format!("Deployment {namespace}/{FEDERATE_DEPLOYMENT}"));
        let server = self.trust_domain.as_ref();
        let server = server.map(|name| format!("SpireServer cluster (trust domain {name})"));
        let found: Vec<_> = controller.into_iter().chain(server).collect();
        let mut text =
            format!("This command leaves trustplane federate alone: {}.", found.join(" and "));
        let is_its_route = |namespace: &str, name: &str| {
            self.runs && namespace == self.spire_namespace && name == ROUTE
        };
        if outlook.marked.iter().any(|it| is_its_route(&it.at.namespace, &it.at.name)) {
            text = format!(
                "{text} While it runs, it sets the annotation of Route {}/{ROUTE} again.",
                self.spire_namespace
            );
        }
        format!("\n{}", paragraph(&text, width))
    }

    /// How to remove it, before the rest is removed.
    pub fn next_steps(&self, width: usize) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let lines = |commands: &[String]| -> String {
            let parts = commands.iter().flat_map(|line| command(line, width - 2));
            parts.map(|part| format!("  {part}\n")).collect()
        };
        let mut text = "\n".to_owned();
        if let Some(removes) = self.removes() {
            text += &paragraph(
                "First remove trustplane federate. The SPIRE server goes on without it, and the trust \
                 domain keeps its keys. helm removes it with the rest:",
                width,
            );
            text += &lines(&[removes.to_owned()]);
        }
        text += &paragraph(
            "Run these only if the trust domain is to end. They delete ITS KEYS, for good: workloads \
             lose their identities, and every peer has to be bootstrapped again:",
            width,
        );
        text + &lines(&self.destroys())
    }

    /// The same for scripts; null where there is nothing of it.
    pub fn document(&self) -> Value {
        match self.is_nothing() {
            true => Value::Null,
            false => json!({
                "installed": self.installed_in.is_some(),
                "trustDomain": self.trust_domain,
                "namespace": self.spire_namespace,
                "next": self.removes().into_iter().collect::<Vec<_>>(),
                "destroysKeys": self.destroys(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        k8s::object_ref::ObjectRef,
        runtime::terminal::fits,
        uninstall::plan::{Effect, Marked},
    };

    fn installed() -> Federate {
        Federate {
            installed_in: Some("trustplane".into()),
            runs: true,
            spire_namespace: "spire".into(),
            trust_domain: Some("a.test".into()),
        }
    }

    #[test]
    fn where_there_is_nothing_of_it_nothing_is_said() {
        let nothing = Federate::of("trustplane", None, None);
        assert_eq!(nothing.notice(&Outlook::default(), 80), "");
        assert_eq!(nothing.next_steps(80), "");
        assert_eq!(nothing.document(), Value::Null);
    }

    #[test]
    fn what_stays_is_named_and_what_destroys_keys_stands_apart() {
        let federate = installed();
        let notice = federate.notice(&Outlook::default(), 200);
        let found = "Deployment trustplane/trustplane-federate and SpireServer cluster (trust domain a.test)";
        assert!(notice.contains(found), "{notice}");
        let next_steps = federate.next_steps(200);
        let (before, after) = next_steps.split_once("Run these only").unwrap();
        assert!(before.contains("kubectl delete --ignore-not-found -k deploy/federate\n"));
        assert!(!before.contains("spireserver") && after.contains("ITS KEYS"), "{next_steps}");
        assert!(after.contains("delete --ignore-not-found namespace spire\n"), "{next_steps}");
        let document = federate.document();
        assert_eq!(document["next"].as_array().map(Vec::len), Some(1));
        assert_eq!(document["destroysKeys"].as_array().map(Vec::len), Some(3));
        for width in [50, 80] {
            assert!(fits(&federate.next_steps(width), width), "{}", federate.next_steps(width));
            let notice = federate.notice(&Outlook::default(), width);
            assert!(fits(&notice, width), "{notice}");
        }
    }

    #[test]
    fn a_trust_domain_without_a_controller_is_told_of_too() {
        let left = Federate { installed_in: None, runs: false, ..installed() };
        assert!(!left.next_steps(80).contains("deploy/federate"), "{}", left.next_steps(80));
        assert!(left.next_steps(80).contains("kubectl delete"));
        assert_eq!(left.document()["next"], json!([]));
    }

    #[test]
    fn a_route_whose_annotation_comes_back_is_named() {
        let marked = Marked {
            at: ObjectRef::new("spire", ROUTE),
            asks_for: Some("federation-tls".into()),
            keep: Effect::PairStays,
            clear: Effect::PairGoes,
            drops_status: false,
        };
        let outlook = Outlook { marked: vec![marked], ..Outlook::default() };
        let again = "Route spire/spire-server-federation again";
        assert!(installed().notice(&outlook, 300).contains(again));
        let stopped = Federate { runs: false, ..installed() };
        assert!(!stopped.notice(&outlook, 300).contains(again));
    }
}
