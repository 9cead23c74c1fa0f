//! Request paths.

use percent_encoding::percent_decode_str;

use crate::{
    api_error::ApiError,
    kinds::{self, Kind, Kinds},
};

/// A parsed request path.
#[derive(Debug)]
pub(super) enum Path {
    /// `/livez`, `/readyz`, `/healthz`.
    Healthy,
    /// `/version`.
    Version,
    /// Below `/openapi`.
    OpenApi(Vec<String>),
    /// `/api`, `/apis` and the lists of kinds below.
    Discovery(Vec<String>),
    /// `/.well-known/openid-configuration`
    OpenIdConfiguration,
    /// `/openid/v1/jwks`
    Jwks,
    Review(&'static Kind),
    /// A ServiceAccount's subresource `token`.
    Token {
        namespace: String,
        account: String,
    },
    Object(Target),
}

#[derive(Debug)]
pub(super) struct Target {
    pub kind: &'static Kind,
    /// Empty: cluster-scoped, or all namespaces.
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Path {
    pub fn parse(kinds: &'static Kinds, path: &str) -> Result<Self, ApiError> {
        let steps = steps(path);
        let words: Vec<&str> = steps.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["livez" | "readyz" | "healthz", ..] => Ok(Self::Healthy),
            ["version"] => Ok(Self::Version),
            ["openapi", rest @ ..] => Ok(Self::OpenApi(owned(rest))),
            [".well-known", "openid-configuration"] => Ok(Self::OpenIdConfiguration),
            ["openid", "v1", "jwks"] => Ok(Self::Jwks),
            [".well-known", "openid-configuration", ..] | ["openid", "v1", "jwks", ..] => {
                Err(ApiError::no_such_path())
            }
            ["api", "v1", "namespaces", namespace, "serviceaccounts", account, "token"] => {
                let (namespace, account) = ((*namespace).to_owned(), (*account).to_owned());
                Ok(Self::Token { namespace, account })
            }
            [] | ["api" | "apis"] | ["api", _] | ["apis", _] | ["apis", _, _] => {
                Ok(Self::Discovery(steps))
            }
            ["api", version, rest @ ..] => Self::object(kinds, "", version, rest),
            ["apis", group, version, rest @ ..] => Self::object(kinds, group, version, rest),
            _ => Err(ApiError::nothing_there()),
        }
    }
}

impl Path {
    fn object(
        kinds: &'static Kinds,
        group: &str,
        version: &str,
        rest: &[&str],
    ) -> Result<Self, ApiError> {
        // Of whatever version.
        let built_in = |kind: &Kind| kind.group == group && !kind.is_custom();
        if let [plural] = rest
            && let Some(kind) = kinds::review(group, version, plural)
        {
            return Ok(Self::Review(kind));
        }
        match Target::parse(kinds, group, version, rest) {
            Some(target) => Ok(Self::Object(target)),
            None if group.is_empty() || kinds.with_path().any(built_in) => {
                Err(ApiError::no_such_path())
            }
            None => Err(no_such_custom_path(kinds, group, version, rest)),
        }
    }
}

/// For unknown subresources of custom resources Kubernetes says that the object is missing.
fn no_such_custom_path(kinds: &Kinds, group: &str, version: &str, rest: &[&str]) -> ApiError {
    match rest {
        ["namespaces", _, plural, name, _] => match kinds.kind(group, version, plural) {
            Some(kind) => ApiError::not_found(kind, name),
            None => ApiError::nothing_there(),
        },
        _ => ApiError::nothing_there(),
    }
}

/// Decoded first, as in Kubernetes: an escaped slash is a slash.
pub(super) fn steps(path: &str) -> Vec<String> {
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.split('/').filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Target {
    fn parse(kinds: &'static Kinds, group: &str, version: &str, rest: &[&str]) -> Option<Self> {
        let (namespace, rest) = match rest {
            // A namespace's own subresources look like objects in it.
            ["namespaces", namespace, subresource @ ("status" | "finalize")] => {
                let kind = kinds.kind(group, version, "namespaces")?;
                return Some(Self {
                    kind,
                    namespace: String::new(),
                    name: Some((*namespace).to_owned()),
                    subresource: Some((*subresource).to_owned()),
                });
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(*name), None),
            [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        let kind = kinds.kind(group, version, plural)?;
        let fits = match (kind.namespaced, namespace.is_empty()) {
            (true, true) => name.is_none(),
            (true, false) | (false, true) => true,
            (false, false) => false,
        };
        let known = match subresource {
            None => true,
            Some("status") => kind.status,
            Some("finalize") => kind == kinds::namespace(),
            Some(_) => false,
        };
        (fits && known).then(|| Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }
}
