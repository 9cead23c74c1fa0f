//! `trustplane review`. It is not touched: services may still ask it. What it can be removed with is shown, and
//! which credentials for other clusters are left.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};

use crate::{
    check::review::{CONTROLLER, state_namespace},
    k8s::api_error,
    names::{REVIEW_CONFIG_MAP, REVIEW_DEPLOYMENT, REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    runtime::terminal::{command, paragraph},
};

/// How the name of a Secret with a remote cluster's first credential begins.
const CLUSTER_SECRET: &str = "trustplane-review-cluster-";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Where the service is installed, if it is.
    installed_in: Option<String>,
    /// Where the credentials are, or would be.
    namespace: String,
    /// Whether there is the Secret with renewed credentials.
    has_credentials: bool,
    /// The remote clusters that have a Secret with the first one.
    clusters: Vec<String>,
}

/// Nothing for a user who may not see it: they can't remove it either.
pub async fn find(client: &Client, installed_in: &str) -> Review {
    let deployment = CONTROLLER.deployment(client, installed_in).await.ok().flatten();
    let namespace =
        deployment.as_ref().map_or(installed_in, |it| state_namespace(it, installed_in));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let all = ListParams::default();
    // Nobody but the service needs to read what is in them.
    let (own, secrets) = tokio::join!(
        api_error::with_timeout(secrets.get_metadata_opt(REVIEW_SECRET)),
        api_error::with_timeout(secrets.list_metadata(&all)),
    );
    let names = secrets.into_iter().flatten().filter_map(|it| it.metadata.name);
    let clusters = names.filter_map(|it| it.strip_prefix(CLUSTER_SECRET).map(str::to_owned));
    Review {
        namespace: namespace.to_owned(),
        installed_in: deployment.map(|_| installed_in.to_owned()),
        has_credentials: own.is_ok_and(|it| it.is_some()),
        clusters: clusters.collect(),
    }
}

impl Review {
    fn is_nothing(&self) -> bool {
        let Self { installed_in, has_credentials, clusters, .. } = self;
        installed_in.is_none() && !has_credentials && clusters.is_empty()
    }

    /// The Secrets that are left.
    fn secrets(&self) -> Vec<String> {
        let own = self.has_credentials.then(|| REVIEW_SECRET.to_owned());
        let first = self.clusters.iter().map(|name| format!("{CLUSTER_SECRET}{name}"));
        own.into_iter().chain(first).collect()
    }

    /// The command that removes the service, and leaves credentials and configuration as they are.
    fn removes(&self) -> Option<&'static str> {
        self.installed_in.as_ref().map(|_| "kubectl delete --ignore-not-found -k deploy/review")
    }

    fn deletes(&self) -> String {
        let secrets = self.secrets().into_iter().map(|name| format!("secret/{name}"));
        let config_maps = [REVIEW_STATUS_CONFIG_MAP, REVIEW_CONFIG_MAP];
        let config_maps = config_maps.into_iter().map(|name| format!("configmap/{name}"));
        let objects: Vec<_> = secrets.chain(config_maps).collect();
        let namespace = &self.namespace;
        format!("kubectl -n {namespace} delete --ignore-not-found {}", objects.join(" "))
    }

    /// Shown before anything is done.
    pub fn notice(&self, width: usize) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let service = self.installed_in.as_ref();
        let service =
            service.map(|namespace| format!("Deployment {namespace}/{REVIEW_DEPLOYMENT}"));
        let secrets = self.secrets().into_iter();
        let secrets = secrets.map(|name| format!("Secret {}/{name}", self.namespace));
        let found: Vec<_> = service.into_iter().chain(secrets).collect();
        let text = format!("This command leaves trustplane review alone: {}.", found.join(", "));
        format!("\n{}", paragraph(&text, width))
    }

    /// How to remove it, before the rest is removed.
    pub fn next_steps(&self, width: usize) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let line = |line: &str| -> String {
            command(line, width - 2).iter().map(|part| format!("  {part}\n")).collect()
        };
        let mut text = "\n".to_owned();
        if let Some(removes) = self.removes() {
            text += &paragraph(
                "First remove trustplane review. Services that ask it for TokenReviews get no answer from then \
                 on. Its credentials stay. helm removes it with the rest:",
                width,
            );
            text += &line(removes);
        }
        text += &paragraph(
            "These delete its credentials for other clusters and its configuration. In each of those clusters the \
             account stays that they are for, until it is deleted there:",
            width,
        );
        text += &line(&self.deletes());
        text + &line("kubectl --context REMOTE delete --ignore-not-found -k deploy/review/remote")
    }

    /// The same for scripts; null where there is nothing of it.
    pub fn document(&self) -> Value {
        match self.is_nothing() {
            true => Value::Null,
            false => json!({
                "installed": self.installed_in.is_some(),
                "namespace": self.namespace,
                "secrets": self.secrets(),
                "clusters": self.clusters,
                "next": self.removes().into_iter().collect::<Vec<_>>(),
                "deletesCredentials": [self.deletes()],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::terminal::fits;

    fn installed() -> Review {
        Review {
            installed_in: Some("trustplane".into()),
            namespace: "trustplane".into(),
            has_credentials: true,
            clusters: vec!["b".into(), "c".into()],
        }
    }

    #[test]
    fn where_there_is_nothing_of_it_nothing_is_said() {
        let nothing = Review { namespace: "trustplane".into(), ..Review::default() };
        assert_eq!((nothing.notice(80), nothing.next_steps(80)), (String::new(), String::new()));
        assert_eq!(nothing.document(), Value::Null);
    }

    #[test]
    fn the_secrets_that_are_left_are_named_and_what_deletes_them_stands_apart() {
        let review = installed();
        let notice = review.notice(400);
        let found = "Deployment trustplane/trustplane-review, Secret trustplane/trustplane-review, \
                     Secret trustplane/trustplane-review-cluster-b, \
                     Secret trustplane/trustplane-review-cluster-c.";
        assert!(notice.contains(found), "{notice}");
        let next_steps = review.next_steps(400);
        let (before, after) = next_steps.split_once("These delete").unwrap();
        assert!(before.contains("kubectl delete --ignore-not-found -k deploy/review\n"));
        let deletes = "kubectl -n trustplane delete --ignore-not-found secret/trustplane-review \
                       secret/trustplane-review-cluster-b secret/trustplane-review-cluster-c ";
        assert!(!before.contains("secret/") && after.contains(deletes), "{next_steps}");
        assert!(after.contains("-k deploy/review/remote"), "{next_steps}");
        for width in [50, 80] {
            assert!(fits(&review.next_steps(width), width), "{}", review.next_steps(width));
            assert!(fits(&review.notice(width), width), "{}", review.notice(width));
        }
    }

    #[test]
    fn credentials_without_a_service_are_told_of_too() {
        let left = Review { installed_in: None, has_credentials: false, ..installed() };
        assert!(!left.next_steps(80).contains("First remove"), "{}", left.next_steps(80));
        let document = left.document();
        assert_eq!((&document["next"], &document["clusters"]), (&json!([]), &json!(["b", "c"])));
    }
}
