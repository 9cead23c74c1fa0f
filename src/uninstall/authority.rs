//! `trustplane authority` and its trust domain. They are not touched, because the keys of a trust domain
//! can't be made again; the commands that remove them are shown.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{
    check::authority::{self, state_namespace},
    k8s::api_error,
    names::{
        AUTHORITY_DEPLOYMENT, AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, FEDERATIONS_CONFIG_MAP,
        REQUESTS_CONFIG_MAP,
    },
    runtime::{
        clock::Clock,
        terminal::{command, paragraph},
    },
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// Where the controller is installed, if it is.
    installed_in: Option<String>,
    /// Where the keys are, or would be.
    namespace: String,
    has_keys: bool,
    trust_domain: Option<String>,
    /// How many SPIFFEFederations there are.
    federations: usize,
}

/// Nothing for a user who may not see it: they can't remove it either.
pub async fn find(client: &Client, installed_in: &str) -> Authority {
    let deployment = authority::CONTROLLER.deployment(client, installed_in).await.ok().flatten();
    let namespace =
        deployment.as_ref().map_or(installed_in, |it| state_namespace(it, installed_in));
    let clock = Clock::system();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let (secret, published, federations) = tokio::join!(
        // Whether it is there. Nobody but the authority needs to read the keys.
        api_error::with_timeout(secrets.get_metadata_opt(AUTHORITY_SECRET)),
        authority::published(client, namespace, &clock),
        authority::federations(client),
    );
    let state = published.ok().flatten().and_then(|it| it.state);
    Authority {
        namespace: namespace.to_owned(),
        installed_in: deployment.map(|_| installed_in.to_owned()),
        has_keys: secret.is_ok_and(|it| it.is_some()),
        trust_domain: state.map(|it| it.trust_domain),
        federations: federations.map(|it| it.count()).unwrap_or_default(),
    }
}

impl Authority {
    #[cfg(test)]
    pub fn with_keys_in(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), has_keys: true, ..Self::default() }
    }

    fn is_nothing(&self) -> bool {
        let Self { installed_in, has_keys, trust_domain, federations, .. } = self;
        installed_in.is_none() && !has_keys && trust_domain.is_none() && *federations == 0
    }

    /// Whether deleting this namespace deletes the keys.
    pub fn keeps_keys_in(&self, namespace: &str) -> bool {
        self.has_keys && self.namespace == namespace
    }

    /// The command that removes the controller, and leaves keys and federations as they are.
    fn removes(&self) -> Option<&'static str> {
        self.installed_in.as_ref().map(|_| "kubectl delete --ignore-not-found -k deploy/authority")
    }

    fn destroys(&self) -> [String; 3] {
        let config_maps = [BUNDLE_CONFIG_MAP, REQUESTS_CONFIG_MAP, FEDERATIONS_CONFIG_MAP];
        let config_maps = config_maps.map(|name| format!("configmap/{name}")).join(" ");
        [
            "kubectl delete --ignore-not-found spiffefederations --all".to_owned(),
            format!(
                "kubectl -n {} delete --ignore-not-found secret/{AUTHORITY_SECRET} {config_maps}",
                self.namespace
            ),
            "kubectl delete --ignore-not-found crd spiffefederations.trustplane.dev".to_owned(),
        ]
    }

    /// Shown before anything is done.
    pub fn notice(&self, width: usize) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let controller = self.installed_in.as_ref();
        let controller =
            controller.map(|namespace| format!("Deployment {namespace}/{AUTHORITY_DEPLOYMENT}"));
        let whose = match &self.trust_domain {
            Some(name) => format!("trust domain {name}"),
            None => "its trust domain".to_owned(),
        };
        let keys = format!("Secret {}/{AUTHORITY_SECRET} (the keys of {whose})", self.namespace);
        let federations = match self.federations {
            0 => None,
            1 => Some("1 SPIFFEFederation".to_owned()),
            number => Some(format!("{number} SPIFFEFederations")),
        };
        let found = controller.into_iter().chain(self.has_keys.then_some(keys)).chain(federations);
        let found: Vec<_> = found.collect();
        let text = format!("This command leaves trustplane authority alone: {}.", found.join(", "));
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
                "First remove trustplane authority. Its keys and all SPIFFEFederations stay. helm removes \
                 it with the rest:",
                width,
            );
            text += &lines(&[removes.to_owned()]);
        }
        text += &paragraph(
            "Run these only if its trust domain is to end. They end the trust in every other trust \
             domain, and delete THE KEYS of this one, for good: workloads lose their identities, and \
             every partner has to be given a new bundle:",
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
                "namespace": self.namespace,
                "keys": self.has_keys,
                "federations": self.federations,
                "next": self.removes().into_iter().collect::<Vec<_>>(),
                "destroysKeys": self.destroys(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::terminal::fits;

    fn installed() -> Authority {
        Authority {
            installed_in: Some("trustplane".into()),
            namespace: "trustplane".into(),
            has_keys: true,
            trust_domain: Some("a.test".into()),
            federations: 2,
        }
    }

    #[test]
    fn where_there_is_nothing_of_it_nothing_is_said() {
        let nothing = Authority { namespace: "trustplane".into(), ..Authority::default() };
        assert_eq!((nothing.notice(80), nothing.next_steps(80)), (String::new(), String::new()));
        assert_eq!(nothing.document(), Value::Null);
        assert!(!nothing.keeps_keys_in("trustplane"));
    }

    #[test]
    fn the_secret_with_the_keys_is_named_and_what_deletes_it_stands_apart() {
        let authority = installed();
        let notice = authority.notice(300);
        let found = "Deployment trustplane/trustplane-authority, Secret trustplane/trustplane-authority \
                     (the keys of trust domain a.test), 2 SPIFFEFederations.";
        assert!(notice.contains(found), "{notice}");
        let next_steps = authority.next_steps(300);
        let (before, after) = next_steps.split_once("Run these only").unwrap();
        assert!(before.contains("kubectl delete --ignore-not-found -k deploy/authority\n"));
        assert!(!before.contains("secret") && after.contains("THE KEYS"), "{next_steps}");
        let deletes =
            "kubectl -n trustplane delete --ignore-not-found secret/trustplane-authority ";
        assert!(after.contains(deletes), "{next_steps}");
        for width in [50, 80] {
            assert!(fits(&authority.next_steps(width), width), "{}", authority.next_steps(width));
            assert!(fits(&authority.notice(width), width), "{}", authority.notice(width));
        }
    }

    #[test]
    fn keys_without_a_controller_are_told_of_too() {
        let left = Authority { installed_in: None, trust_domain: None, ..installed() };
        assert!(
            left.notice(200).contains("(the keys of its trust domain)"),
            "{}",
            left.notice(200)
        );
        assert!(!left.next_steps(80).contains("deploy/authority"), "{}", left.next_steps(80));
        assert_eq!(
            (&left.document()["next"], &left.document()["keys"]),
            (&json!([]), &json!(true))
        );
        assert!(left.keeps_keys_in("trustplane") && !left.keeps_keys_in("web"));
    }
}
