//! Accounts of a cluster, what their tokens are bound to, and those tokens.

use serde_json::{Value, json};

use super::{leaks, member::Member};

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Account {
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts/{}", self.namespace, self.name)
    }
}

/// What a token ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub kind: &'static str,
    pub name: String,
    pub uid: String,
    path: String,
}

/// A token to be made.
#[derive(Clone)]
pub struct TokenOrder<'a> {
    account: &'a Account,
    spec: Value,
}

impl<'a> TokenOrder<'a> {
    /// For the API server, for an hour.
    pub fn of(account: &'a Account) -> Self {
        Self { account, spec: json!({ "expirationSeconds": 3600 }) }
    }

    pub fn audiences(mut self, audiences: &[&str]) -> Self {
        self.spec["audiences"] = json!(audiences);
        self
    }

    pub fn seconds(mut self, seconds: u64) -> Self {
        self.spec["expirationSeconds"] = json!(seconds);
        self
    }

    pub fn bound_to(mut self, bound: &Bound) -> Self {
        self.spec["boundObjectRef"] =
            json!({ "apiVersion": "v1", "kind": bound.kind, "name": bound.name, "uid": bound.uid });
        self
    }
}

impl Member {
    /// An account in a namespace, which is made if it is missing.
    pub async fn account(&self, namespace: &str, name: &str) -> Account {
        let path = "/api/v1/namespaces";
        if self.find(&format!("{path}/{namespace}")).await.is_none() {
            let object = json!({ "metadata": { "name": namespace } });
            // Another test may have been faster.
            let _ = self.call("POST", path, Some(&object)).await;
        }
        let path = format!("{path}/{namespace}/serviceaccounts");
        let made = self.create(&path, &json!({ "metadata": { "name": name } })).await;
        Account { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid(&made) }
    }

    /// A Pod of the account on a Node. Nothing runs it.
    pub async fn pod(&self, account: &Account, name: &str, node: &Bound) -> Bound {
        let path = format!("/api/v1/namespaces/{}/pods", account.namespace);
        let spec = json!({
            "serviceAccountName": account.name, "nodeName": node.name,
            "containers": [{ "name": "app", "image": "app" }],
        });
        self.bound("Pod", &path, json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    pub async fn secret(&self, account: &Account, name: &str) -> Bound {
        let path = format!("/api/v1/namespaces/{}/secrets", account.namespace);
        self.bound("Secret", &path, json!({ "metadata": { "name": name } })).await
    }

    pub async fn node(&self, name: &str) -> Bound {
        self.bound("Node", "/api/v1/nodes", json!({ "metadata": { "name": name } })).await
    }

    async fn bound(&self, kind: &'static str, path: &str, object: Value) -> Bound {
        let made = self.create(path, &object).await;
        let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
        Bound { kind, path: format!("{path}/{name}"), uid: uid(&made), name }
    }

    pub async fn delete(&self, bound: &Bound) {
        self.delete_at(&bound.path).await;
    }

    pub async fn delete_account(&self, account: &Account) {
        self.delete_at(&account.path()).await;
    }

    async fn delete_at(&self, path: &str) {
        // No kubelet would end a Pod.
        let at_once = format!("{path}?gracePeriodSeconds=0");
        self.call("DELETE", &at_once, None).await.unwrap_or_else(|why| panic!("{path}: {why}"));
    }

    /// A token for the API server, for an hour.
    pub async fn token(&self, account: &Account) -> String {
        self.token_as(TokenOrder::of(account)).await
    }

    /// A token for somebody else, for an hour.
    pub async fn token_for(&self, account: &Account, audience: &str) -> String {
        self.token_as(TokenOrder::of(account).audiences(&[audience])).await
    }

    /// Registered, so that [`leaks`] looks for it.
    pub async fn token_as(&self, order: TokenOrder<'_>) -> String {
        let token = self.made(order).await;
        leaks::register(self.name(), &token);
        token
    }

    /// A token to be sent where it should not be.
    pub async fn unregistered_token(&self, account: &Account) -> String {
        self.made(TokenOrder::of(account)).await
    }

    async fn made(&self, order: TokenOrder<'_>) -> String {
        let path = format!("{}/token", order.account.path());
        let answer = self.create(&path, &json!({ "spec": order.spec })).await;
        answer["status"]["token"].as_str().expect("a token in the answer").to_owned()
    }

    /// What the API server itself says about a token.
    pub async fn review(&self, token: &str, audiences: &[&str]) -> Value {
        let review = json!({ "spec": { "token": token, "audiences": audiences } });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        self.create(path, &review).await["status"].clone()
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("objects have a uid").to_owned()
}
