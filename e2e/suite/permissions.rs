//! Which rights the suite needs, and which of them it has. e2e/role.yaml is the one list of them.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::json;
use trustplane::k8s::api_error::{self, ApiError};

const ROLES: &str = include_str!("../role.yaml");

/// A ClusterRole of e2e/role.yaml.
#[derive(Deserialize)]
pub struct Role {
    metadata: Metadata,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// One verb on one resource.
struct Right {
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

/// The roles, the one that every case needs first.
pub fn roles() -> Vec<Role> {
    let read = |text| serde_saphyr::from_str(text).expect("e2e/role.yaml has roles");
    ROLES.split("\n---\n").map(read).collect()
}

impl Role {
    /// As `kubectl` names it.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// `secrets: create, get` and so on, one line a rule.
    pub fn lines(&self) -> Vec<String> {
        let line = |rule: &Rule| {
            let names = match &rule.resource_names[..] {
                [] => String::new(),
                names => format!(" {}", names.join(", ")),
            };
            format!("{}{names}: {}", rule.resources.join(", "), rule.verbs.join(", "))
        };
        self.rules.iter().map(line).collect()
    }

    /// The rights of this role that we do not have. `None` where the server does not say.
    pub async fn missing(&self, client: &Client) -> Option<Vec<String>> {
        let rights: Vec<Right> = self.rules.iter().flat_map(Rule::rights).collect();
        let answers = join_all(rights.iter().map(|right| right.is_granted(client))).await;
        let mut missing = Vec::new();
        for (right, granted) in rights.iter().zip(answers) {
            if !granted? {
                missing.push(right.to_string());
            }
        }
        Some(missing)
    }
}

impl Rule {
    fn rights(&self) -> Vec<Right> {
        let names: Vec<Option<&String>> = match &self.resource_names[..] {
            [] => vec![None],
            names => names.iter().map(Some).collect(),
        };
        let mut rights = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    rights.extend(names.iter().map(|name| Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.cloned(),
                        verb: verb.clone(),
                    }));
                }
            }
        }
        rights
    }
}

impl Right {
    async fn is_granted(&self, client: &Client) -> Option<bool> {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let attributes = json!({
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
            "verb": self.verb,
        });
        let review = json!({ "spec": { "resourceAttributes": attributes } });
        let review: SelfSubjectAccessReview = serde_json::from_value(review).expect("a review");
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        match api_error::with_timeout(reviews.create(&PostParams::default(), &review)).await {
            Ok(review) => Some(review.status.is_some_and(|status| status.allowed)),
            Err(ApiError::NotFound) => None,
            Err(_) => Some(false),
        }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        match &self.name {
            Some(name) => write!(formatter, " {name}"),
            None => Ok(()),
        }
    }
}
