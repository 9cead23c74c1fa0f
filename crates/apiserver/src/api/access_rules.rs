//! Who sends a request, and what they may do. Without a token it is the administrator, who may do
//! everything; an account may do what tokens are about, and nothing else. Roles have no effect.

use http::{HeaderMap, Method, header::AUTHORIZATION, request::Parts};
use serde_json::Value;

use super::{ApiServer, params::Params, path};
use crate::{api_error::ApiError, kinds::text, tokens::User};

/// A wrong token is an error.
pub(super) fn user(server: &ApiServer, headers: &HeaderMap) -> Result<User, ApiError> {
    if !headers.contains_key(AUTHORIZATION) {
        return Ok(User::administrator());
    }
    let token = bearer(headers).ok_or_else(ApiError::unauthorized)?;
    let accepted = server.review_token(token, &[]);
    accepted.map(|accepted| accepted.user).map_err(|_| ApiError::unauthorized())
}

/// Refuses what a user may not do.
pub(super) fn check(user: &User, parts: &Parts) -> Result<(), ApiError> {
    let attributes = Attributes::of_request(parts);
    if attributes.are_allowed_to(user) { Ok(()) } else { Err(attributes.refusal(user)) }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What a request, or a SubjectAccessReview, is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub verb: String,
    pub target: Target,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Path(String),
    Resource {
        group: String,
        resource: String,
        subresource: String,
        /// Empty for all, or none.
        namespace: String,
        /// Empty for a collection.
        name: String,
    },
}

/// Besides what is below `/api`, `/apis` and `/openapi`.
const OPEN_PATHS: [&str; 9] = [
    "/.well-known/openid-configuration",
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

impl Attributes {
    fn of_request(parts: &Parts) -> Self {
        let steps = path::steps(parts.uri.path());
        let words: Vec<&str> = steps.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => Self::of_resource(parts, "", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => {
                Self::of_resource(parts, group, rest)
            }
            _ => Self {
                verb: parts.method.as_str().to_lowercase(),
                target: Target::Path(parts.uri.path().to_owned()),
            },
        }
    }

    fn of_resource(parts: &Parts, group: &str, rest: &[&str]) -> Self {
        let (namespace, rest) = match rest {
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize"] => {
                (*namespace, rest)
            }
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let word = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (word(0), word(1), word(2));
        let verb = match parts.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ if Params::of(parts).flag("watch") => "watch",
            _ if name.is_empty() => "list",
            _ => "get",
        };
        let (group, namespace) = (group.to_owned(), namespace.to_owned());
        let target = Target::Resource { group, resource, subresource, namespace, name };
        Self { verb: verb.to_owned(), target }
    }

    /// Those of a SubjectAccessReview.
    pub fn of_review(spec: &Value) -> Self {
        if let Some(asked) = spec.get("nonResourceAttributes") {
            let verb = text(asked, &["verb"]).to_owned();
            return Self { verb, target: Target::Path(text(asked, &["path"]).to_owned()) };
        }
        let field = |name| text(spec, &["resourceAttributes", name]).to_owned();
        let target = Target::Resource {
            group: field("group"),
            resource: field("resource"),
            subresource: field("subresource"),
            namespace: field("namespace"),
            name: field("name"),
        };
        Self { verb: field("verb"), target }
    }

    pub fn are_allowed_to(&self, user: &User) -> bool {
        user.is_administrator() || user.is_account() && self.are_open_to_accounts()
    }

    fn are_open_to_accounts(&self) -> bool {
        match &self.target {
            Target::Path(path) => {
                let is_open = OPEN_PATHS.contains(&path.as_str())
                    || ["/api/", "/apis/", "/openapi/"].iter().any(|root| path.starts_with(root));
                is_open && matches!(self.verb.as_str(), "get" | "head")
            }
            Target::Resource { group, resource, subresource, .. } => {
                let open = [
                    ("", "serviceaccounts", "token"),
                    ("authentication.k8s.io", "selfsubjectreviews", ""),
                    ("authentication.k8s.io", "tokenreviews", ""),
                    ("authorization.k8s.io", "subjectaccessreviews", ""),
                ];
                self.verb == "create"
                    && open.contains(&(group.as_str(), resource.as_str(), subresource.as_str()))
            }
        }
    }

    /// What a user is told who may not.
    fn refusal(&self, user: &User) -> ApiError {
        let (user, verb) = (&user.name, &self.verb);
        match &self.target {
            Target::Path(path) => {
                let why = format!("User {user:?} cannot {verb} path {path:?}");
                ApiError::not_permitted("", "", "", &why)
            }
            Target::Resource { group, resource, subresource, namespace, name } => {
                let what = match subresource.as_str() {
                    "" => resource.clone(),
                    below => format!("{resource}/{below}"),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let why = format!(
                    "User {user:?} cannot {verb} resource {what:?} in API group {group:?} {place}"
                );
                ApiError::not_permitted(group, resource, name, &why)
            }
        }
    }
}
