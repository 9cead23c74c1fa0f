//! Reviews, and requests for tokens: answered and never stored.

use chrono::{SecondsFormat, TimeDelta};
use http::{Method, request::Parts};
use serde_json::{Value, json};

use super::table::{Include, Table};
use super::{
    ApiServer, accept::Format, access_rules::Attributes, answer::Answer, params::Params, payload,
};
use crate::{
    api_error::{ApiError, Cause},
    kinds::{self, Kind, text},
    store::{self, Call, same_namespace},
    tokens::{Accepted, Grant, Refusal, User},
};

/// Of tokens whose request names no life.
const USUAL_SECONDS: i64 = 3600;
const FEWEST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

/// A request whose body was decoded.
struct Posted<'a> {
    server: &'a ApiServer,
    object: Value,
    call: Call,
}

/// Answers a review.
pub(super) fn review(
    server: &ApiServer,
    kind: &'static Kind,
    user: &User,
    parts: &Parts,
    body: &[u8],
) -> Result<Answer, ApiError> {
    answer(server, kind, parts, body, |posted| {
        // A namespace has no meaning here, and is dropped.
        remove(&mut posted.object["metadata"], "namespace");
        match kind {
            _ if kind == kinds::token_review() => posted.review_token(),
            _ if kind == kinds::self_subject_review() => posted.review_self(user),
            _ => posted.review_access(),
        }
    })
}

/// Answers a request for a token of an account.
pub(super) fn issue_token(
    server: &ApiServer,
    (namespace, account): (&str, &str),
    parts: &Parts,
    body: &[u8],
) -> Result<Answer, ApiError> {
    answer(server, kinds::token_request(), parts, body, |posted| {
        posted.issue_token(namespace, account)
    })
}

fn answer(
    server: &ApiServer,
    kind: &'static Kind,
    parts: &Parts,
    body: &[u8],
    work: impl FnOnce(&mut Posted<'_>) -> Result<(), ApiError>,
) -> Result<Answer, ApiError> {
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let format = Format::of(&parts.headers)?;
    if format == Format::Table {
        return Err(ApiError::not_acceptable());
    }
    payload::check_type(kind, parts)?;
    let mut call = Call::at(server.now());
    Params::of(parts).write_options("CreateOptions", &mut call)?;
    let object = payload::read(kind, parts, body, &mut call)?;
    let object = store::decode(kind, object, &mut call)?;
    let mut posted = Posted { server, object, call };
    let done = work(&mut posted);
    let Posted { object, call, .. } = posted;
    done.map_err(|error| ApiError { warnings: call.warnings.clone(), ..error })?;
    let mut answer = Answer::object(kind, object.into()).created();
    answer.warnings = call.warnings;
    answer.shown_as(format, Table { kind, now: call.now, include: Include::Metadata })
}

impl Posted<'_> {
    fn review_token(&mut self) -> Result<(), ApiError> {
        let token = text(&self.object, &["spec", "token"]);
        if token.is_empty() {
            let why = "token is required for TokenReview in authentication";
            return Err(ApiError::bad_request(why));
        }
        let reviewed = self.server.review_token(token, &texts(&self.object["spec"]["audiences"]));
        let status = &mut self.object["status"];
        match reviewed {
            Ok(Accepted { user, audiences }) => {
                status["authenticated"] = true.into();
                status["user"] = user.to_value();
                status["audiences"] = json!(audiences);
            }
            // The rest is what the caller sent, as in Kubernetes.
            Err(refusal) => {
                remove(status, "authenticated");
                status["error"] = refusal.to_string().into();
            }
        }
        Ok(())
    }

    fn review_self(&mut self, user: &User) -> Result<(), ApiError> {
        let now = self.call.now.to_rfc3339_opts(SecondsFormat::Secs, true);
        self.object["metadata"] = json!({ "creationTimestamp": now });
        self.object["status"] = json!({ "userInfo": user.to_value() });
        Ok(())
    }

    fn review_access(&mut self) -> Result<(), ApiError> {
        let causes = access_causes(&self.object);
        if !causes.is_empty() {
            // Kubernetes leaves the kind out.
            let kind = kinds::subject_access_review();
            return Err(ApiError::invalid(kind, "", causes).with_kind_name(kind, ""));
        }
        let spec = &self.object["spec"];
        let user = User::named(text(spec, &["user"]), texts(&spec["groups"]));
        let allowed = Attributes::of_review(spec).are_allowed_to(&user);
        self.object["status"] = json!({ "allowed": allowed });
        Ok(())
    }

    fn issue_token(&mut self, namespace: &str, account: &str) -> Result<(), ApiError> {
        same_namespace(&self.object, namespace)?;
        let server = self.server;
        server.with(|store| store.admit(kinds::service_account(), namespace, account))?;
        check_name(&self.object, account)?;
        let find = |kind, name: &str| {
            let found = server.with(|store| store.get(kind, namespace, name).cloned());
            found.ok_or_else(|| ApiError::not_found(kind, name))
        };
        let found = find(kinds::service_account(), account)?;
        self.check_uid(account, text(&found, &["metadata", "uid"]))?;
        self.complete(&found, namespace);
        let seconds = self.seconds()?;
        let bound = self.object["spec"].get("boundObjectRef").filter(|it| it.is_object());
        let secret = bound.map(|bound| {
            let name = bindable(bound)?;
            let secret = find(kinds::secret(), name)?;
            same_uid(bound, &secret, name).map(|()| secret)
        });
        let secret = secret.transpose()?;
        let seconds = self.shortened(seconds);
        let grant = Grant {
            namespace,
            account: &found,
            secret: secret.as_deref(),
            audiences: texts(&self.object["spec"]["audiences"]),
            seconds,
            id: server.with(|store| store.new_uid()),
        };
        let issued = server.tokens().issue(grant, self.call.now);
        let token = issued.map_err(|error| ApiError::internal(&error.to_string()))?;
        let expires = self.call.now + TimeDelta::seconds(seconds);
        self.object["spec"]["expirationSeconds"] = seconds.into();
        self.object["status"] = json!({
            "token": token,
            "expirationTimestamp": expires.to_rfc3339_opts(SecondsFormat::Secs, true),
        });
        Ok(())
    }

    /// A request may name the incarnation of the account.
    fn check_uid(&self, account: &str, actual: &str) -> Result<(), ApiError> {
        let uid = text(&self.object, &["metadata", "uid"]);
        if uid.is_empty() || uid == actual {
            return Ok(());
        }
        let why = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({actual})"
        );
        Err(ApiError::unmet_precondition(kinds::token_request(), account, &why))
    }

    /// Fills in what the request left out.
    fn complete(&mut self, account: &Value, namespace: &str) {
        let now = self.call.now.to_rfc3339_opts(SecondsFormat::Secs, true);
        let metadata = &mut self.object["metadata"];
        metadata["name"] = account["metadata"]["name"].clone();
        metadata["namespace"] = namespace.into();
        metadata["uid"] = account["metadata"]["uid"].clone();
        metadata["creationTimestamp"] = now.into();
        let spec = &mut self.object["spec"];
        if texts(&spec["audiences"]).is_empty() {
            spec["audiences"] = json!(self.server.tokens().audiences());
        }
        if spec.get("boundObjectRef").is_none() {
            spec["boundObjectRef"] = Value::Null;
        }
    }

    fn seconds(&self) -> Result<i64, ApiError> {
        let seconds = self.object["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL_SECONDS);
        let why = match seconds {
            ..FEWEST_SECONDS => "may not specify a duration less than 10 minutes",
            FEWEST_SECONDS..=MOST_SECONDS => return Ok(seconds),
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        let cause = Cause::invalid("spec.expirationSeconds", &seconds.to_string(), why);
        Err(ApiError::invalid(kinds::token_request(), "", vec![cause]))
    }

    fn shortened(&mut self, seconds: i64) -> i64 {
        let longest = self.server.tokens().options.longest_life;
        let longest = longest.and_then(|life| i64::try_from(life.as_secs()).ok());
        match longest {
            Some(longest) if longest < seconds => {
                self.call.warnings.push(format!(
                    "requested expiration of {seconds} seconds shortened to {longest} seconds"
                ));
                longest
            }
            _ => seconds,
        }
    }
}

impl ApiServer {
    /// Whose token it is, if it has one of the audiences; the server's own, if none are given.
    pub(super) fn review_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Accepted, Refusal> {
        let tokens = self.tokens();
        let own = tokens.audiences();
        let audiences = if audiences.is_empty() { &own } else { audiences };
        self.with(|store| tokens.review(token, audiences, store, self.now()))
    }
}

fn check_name(object: &Value, account: &str) -> Result<(), ApiError> {
    let name = text(object, &["metadata", "name"]);
    if name.is_empty() || name == account {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    let cause = Cause::invalid("metadata.name", &format!("{name:?}"), why);
    Err(ApiError::invalid(kinds::token_request(), account, vec![cause]))
}

/// The name of the Secret that a token shall be bound to.
fn bindable(bound: &Value) -> Result<&str, ApiError> {
    let field = |name| text(bound, &[name]);
    let (version, kind, name) = (field("apiVersion"), field("kind"), field("name"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    match (group, kind) {
        ("", "Secret" | "Pod" | "Node") if name.is_empty() => {
            Err(ApiError::bad_request("Name parameter required."))
        }
        ("", "Secret") => Ok(name),
        // There are none here.
        ("", "Pod") => Err(ApiError::not_found_in("pods", name)),
        ("", "Node") => Err(ApiError::not_found_in("nodes", name)),
        _ => {
            let what = format!("{group}/{version}, Kind={kind}");
            let why = format!("cannot bind token to object of type {what}");
            Err(ApiError::bad_request(why))
        }
    }
}

fn same_uid(bound: &Value, secret: &Value, name: &str) -> Result<(), ApiError> {
    let uid = text(bound, &["uid"]);
    if uid.is_empty() || uid == text(secret, &["metadata", "uid"]) {
        return Ok(());
    }
    let why = format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    Err(ApiError::unmet_precondition(kinds::secret(), name, &why))
}

fn access_causes(review: &Value) -> Vec<Cause> {
    let spec = &review["spec"];
    let (of_resource, of_path) =
        (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let mut causes = Vec::new();
    match (of_resource, of_path) {
        (Some(_), Some(path)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            // In Kubernetes' names for the fields.
            let shown = json!({ "Path": text(path, &["path"]), "Verb": text(path, &["verb"]) });
            causes.push(Cause::invalid("spec.nonResourceAttributes", &shown.to_string(), why));
        }
        (None, None) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(Cause::invalid("spec.resourceAttributes", "null", why));
        }
        _ => {}
    }
    if text(spec, &["user"]).is_empty() && texts(&spec["groups"]).is_empty() {
        let why = "at least one of user or group must be specified";
        causes.push(Cause::invalid("spec.user", "\"\"", why));
    }
    let metadata = &review["metadata"];
    if metadata.as_object().is_some_and(|metadata| !metadata.is_empty()) {
        causes.push(Cause::invalid("metadata", "", "must be empty"));
    }
    causes
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests;
