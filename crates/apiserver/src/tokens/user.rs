//! Users: accounts with a token, and the administrator without one.

use serde_json::{Value, json};

use super::claims::Named;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    /// The id of the token, as in audit logs; none for the administrator.
    credential: Option<String>,
}

const ADMINISTRATORS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const ACCOUNTS: &str = "system:serviceaccounts";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl User {
    /// Whoever sends no token.
    pub fn administrator() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            uid: String::new(),
            groups: [ADMINISTRATORS, AUTHENTICATED].map(str::to_owned).to_vec(),
            credential: None,
        }
    }

    pub(super) fn account(namespace: &str, account: &Named, token_id: &str) -> Self {
        let groups = [ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}"), AUTHENTICATED.into()];
        Self {
            name: account_name(namespace, &account.name),
            uid: account.uid.clone(),
            groups: groups.to_vec(),
            credential: Some(format!("JTI={token_id}")),
        }
    }

    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }

    pub fn is_account(&self) -> bool {
        self.name.starts_with(ACCOUNT_PREFIX) || self.groups.iter().any(|group| group == ACCOUNTS)
    }

    /// A user that a SubjectAccessReview asks about.
    pub fn named(name: &str, groups: Vec<String>) -> Self {
        Self { name: name.to_owned(), uid: String::new(), groups, credential: None }
    }

    /// As in the status of a review.
    pub fn to_value(&self) -> Value {
        let mut user = json!({ "username": self.name });
        if !self.uid.is_empty() {
            user["uid"] = self.uid.as_str().into();
        }
        user["groups"] = json!(self.groups);
        if let Some(credential) = &self.credential {
            user["extra"] = json!({ "authentication.kubernetes.io/credential-id": [credential] });
        }
        user
    }
}

pub(super) fn account_name(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT_PREFIX}{namespace}:{name}")
}
