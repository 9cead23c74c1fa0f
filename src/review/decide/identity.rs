//! Who a token says it is, as a review tells it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// How a claim's name begins in legacy tokens.
const LEGACY: &str = "kubernetes.io/serviceaccount/";
/// How the name of every extra of Kubernetes begins.
pub const EXTRA: &str = "authentication.kubernetes.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Made by TokenRequest.
    Bound,
    /// Lies in a Secret, and has neither audiences nor an end.
    Legacy,
}

/// A Pod or a Node. A Node that is not registered has no UID.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    uid: Option<String>,
}

/// What the claims of a ServiceAccount's token say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub style: Style,
    pub namespace: String,
    pub account: String,
    pub uid: String,
    pod: Option<Named>,
    node: Option<Named>,
    pub credential_id: Option<String>,
}

impl Identity {
    /// None if the claims are not those of a ServiceAccount.
    pub(super) fn of(claims: &Map<String, Value>) -> Option<Self> {
        let identity = match claims.get("kubernetes.io") {
            Some(bound) => bound_identity(bound, claims),
            None => legacy_identity(claims),
        }?;
        let names = [&identity.namespace, &identity.account];
        let are_names = names.iter().all(|it| !it.is_empty() && !it.contains(':'));
        let subject = claims.get("sub").and_then(Value::as_str);
        (are_names && subject == Some(&*identity.username())).then_some(identity)
    }

    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    pub fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// Without the name of the cluster, which is ours to say.
    pub fn extra(&self) -> BTreeMap<String, Vec<String>> {
        let objects = [("pod", &self.pod), ("node", &self.node)];
        let objects = objects.into_iter().filter_map(|(kind, it)| Some((kind, it.as_ref()?)));
        let objects = objects.flat_map(|(kind, it)| {
            let uid = it.uid.as_ref().map(|uid| (format!("{kind}-uid"), uid));
            [Some((format!("{kind}-name"), &it.name)), uid]
        });
        let credential_id = self.credential_id.as_ref().map(|id| ("credential-id".to_owned(), id));
        let extra = objects.flatten().chain(credential_id);
        extra.map(|(name, value)| (format!("{EXTRA}{name}"), vec![value.clone()])).collect()
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// None if it is not there, and an error if it is not well-formed.
fn named(value: &Value) -> Result<Option<Named>, ()> {
    match value {
        Value::Null => Ok(None),
        object => {
            let name = text(object.get("name")).ok_or(())?;
            let uid = match object.get("uid") {
                None => None,
                uid => Some(text(uid).ok_or(())?),
            };
            Ok(Some(Named { name, uid }))
        }
    }
}

fn bound_identity(bound: &Value, claims: &Map<String, Value>) -> Option<Identity> {
    let account = named(&bound["serviceaccount"]).ok()??;
    let jti = match claims.get("jti") {
        None => None,
        Some(jti) => Some(jti.as_str()?),
    };
    Some(Identity {
        style: Style::Bound,
        namespace: text(bound.get("namespace"))?,
        account: account.name,
        uid: account.uid?,
        pod: named(&bound["pod"]).ok()?,
        node: named(&bound["node"]).ok()?,
        credential_id: jti.map(|jti| format!("JTI={jti}")),
    })
}

fn legacy_identity(claims: &Map<String, Value>) -> Option<Identity> {
    let claim = |name: &str| text(claims.get(&format!("{LEGACY}{name}")));
    Some(Identity {
        style: Style::Legacy,
        namespace: claim("namespace")?,
        account: claim("service-account.name")?,
        uid: claim("service-account.uid")?,
        pod: None,
        node: None,
        credential_id: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::testing::{claims, legacy_claims},
        *,
    };

    fn identity(claims: &Value) -> Option<Identity> {
        Identity::of(claims.as_object().unwrap())
    }

    #[test]
    fn all_that_a_review_tells_follows_from_the_claims() {
        let identity = identity(&claims()).unwrap();
        assert_eq!(identity.username(), "system:serviceaccount:shop:cart");
        assert_eq!(identity.uid, "u-1");
        assert_eq!(
            identity.groups(),
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
        );
        let extra = |name: &str| format!("authentication.kubernetes.io/{name}");
        let expected = [
            ("credential-id", "JTI=t-1"),
            ("node-name", "node-1"),
            ("node-uid", "n-1"),
            ("pod-name", "cart-0"),
            ("pod-uid", "p-1"),
        ];
        let expected = expected.map(|(name, value)| (extra(name), vec![value.to_owned()]));
        assert_eq!(identity.extra(), BTreeMap::from(expected));
    }

    #[test]
    fn a_token_bound_to_a_secret_says_its_credential_id_alone() {
        let mut claims = claims();
        let bound = claims["kubernetes.io"].as_object_mut().unwrap();
        bound.remove("pod");
        bound.remove("node");
        bound.insert("secret".to_owned(), json!({ "name": "door", "uid": "s-1" }));
        let extra = identity(&claims).unwrap().extra();
        assert_eq!(
            extra.into_keys().collect::<Vec<_>>(),
            ["authentication.kubernetes.io/credential-id"]
        );
    }

    #[test]
    fn a_node_that_was_never_registered_has_a_name_alone() {
        let mut claims = claims();
        claims["kubernetes.io"]["node"].as_object_mut().unwrap().remove("uid");
        let extra = identity(&claims).unwrap().extra();
        assert!(extra.contains_key("authentication.kubernetes.io/node-name"));
        assert!(!extra.contains_key("authentication.kubernetes.io/node-uid"));
    }

    #[test]
    fn a_legacy_token_has_no_extra() {
        let identity = identity(&legacy_claims()).unwrap();
        assert_eq!(identity.style, Style::Legacy);
        assert_eq!(identity.username(), "system:serviceaccount:shop:cart");
        assert!(identity.extra().is_empty());
    }

    #[test]
    fn a_subject_that_is_not_the_account_is_no_accounts_token() {
        for subject in [json!("system:serviceaccount:shop:till"), json!("admin"), json!(7)] {
            let (mut bound, mut legacy) = (claims(), legacy_claims());
            bound["sub"] = subject.clone();
            legacy["sub"] = subject;
            assert_eq!((identity(&bound), identity(&legacy)), (None, None));
        }
        // Two pairs of names give the same subject.
        let mut claims = claims();
        claims["kubernetes.io"]["namespace"] = json!("shop:cart");
        claims["kubernetes.io"]["serviceaccount"]["name"] = json!("x");
        claims["sub"] = json!("system:serviceaccount:shop:cart:x");
        assert_eq!(identity(&claims), None);
    }

    #[test]
    fn claims_of_the_wrong_type_are_no_accounts_token() {
        for (path, value) in [
            ("/jti", json!(1)),
            ("/kubernetes.io/namespace", json!(null)),
            ("/kubernetes.io/serviceaccount/uid", json!(["u-1"])),
            ("/kubernetes.io/pod", json!("cart-0")),
            ("/kubernetes.io/node/uid", json!(null)),
            ("/kubernetes.io", json!([])),
        ] {
            let mut claims = claims();
            *claims.pointer_mut(path).unwrap() = value;
            assert_eq!(identity(&claims), None, "{path}");
        }
    }
}
