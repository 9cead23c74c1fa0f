//! The query of a request, and the options of a verb in it.

use http::request::Parts;
use serde_json::{Value, json};

use crate::{
    api_error::{ApiError, Cause},
    kinds::text,
    store::{Call, DeleteOptions, FieldValidation, Propagation},
};

pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(other, _)| other == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    fn given(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// Empty if absent.
    pub fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    /// Every value but false is true.
    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.given(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text: &str| {
            let why = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
            text.parse().map_err(|_| ApiError::bad_request(why))
        };
        self.given(name).map(parse).transpose()
    }

    /// Copies the options of a write into the call; `options` is their kind.
    pub fn write_options(&self, options: &str, call: &mut Call) -> Result<(), ApiError> {
        let mut causes = Vec::new();
        if options == "PatchOptions" && self.given("force").is_some() {
            let why = "may not be specified for non-apply patch";
            causes.push(Cause::forbidden("force", why));
        }
        if self.text("fieldManager").len() > LONGEST_MANAGER {
            causes.push(Cause::too_long("fieldManager", LONGEST_MANAGER));
        }
        causes.extend(dry_run(&self.all("dryRun"), call));
        match self.text("fieldValidation") {
            "Ignore" => call.unknown_fields = FieldValidation::Ignore,
            "" | "Warn" => call.unknown_fields = FieldValidation::Warn,
            "Strict" => call.unknown_fields = FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::unsupported("fieldValidation", &format!("{other:?}"), &known));
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options(options, causes)) }
    }

    /// The options of a deletion without a body.
    pub fn delete_options(&self) -> Result<Value, ApiError> {
        let mut options = json!({ "dryRun": self.all("dryRun") });
        if let Some(grace) = self.number("gracePeriodSeconds")? {
            options["gracePeriodSeconds"] = grace.into();
        }
        if let Some(orphan) = self.optional_flag("orphanDependents") {
            options["orphanDependents"] = orphan.into();
        }
        if let Some(policy) = self.given("propagationPolicy") {
            options["propagationPolicy"] = policy.into();
        }
        Ok(options)
    }
}

const LONGEST_MANAGER: usize = 128;

fn dry_run(values: &[&str], call: &mut Call) -> Option<Cause> {
    call.dry_run = !values.is_empty();
    let known = values.iter().all(|value| *value == "All");
    (!known).then(|| Cause::unsupported("dryRun", &json!(values).to_string(), &["All"]))
}

/// Parses DeleteOptions from body or query.
pub(super) fn read_delete_options(
    options: &Value,
    call: &mut Call,
) -> Result<DeleteOptions, ApiError> {
    let mut causes = Vec::new();
    let policy = options.get("propagationPolicy").and_then(Value::as_str);
    let orphan = options.get("orphanDependents").and_then(Value::as_bool);
    let shown = format!("{:?}", policy.unwrap_or_default());
    if policy.is_some() && orphan.is_some() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(Cause::invalid("propagationPolicy", &shown, why));
    }
    let propagation = match (policy, orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (None, None) => None,
        (Some(_), _) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::unsupported("propagationPolicy", &shown, &known));
            None
        }
    };
    let dry_runs = options["dryRun"].as_array().into_iter().flatten();
    let dry_runs: Vec<&str> = dry_runs.filter_map(Value::as_str).collect();
    causes.extend(dry_run(&dry_runs, call));
    if !causes.is_empty() {
        return Err(ApiError::invalid_options("DeleteOptions", causes));
    }
    let precondition = |name| {
        let value = options["preconditions"].get(name).and_then(Value::as_str);
        value.map(str::to_owned)
    };
    Ok(DeleteOptions {
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
        grace: options["gracePeriodSeconds"].as_i64(),
        propagation,
    })
}

/// Whether a body is DeleteOptions at all.
pub(super) fn is_delete_options(body: &Value) -> bool {
    body.is_object() && matches!(text(body, &["kind"]), "" | "DeleteOptions")
}
