//! Events, in the shape of the core group. Those from events.k8s.io/v1 have stricter rules.

use serde_json::Value;

use super::{finalizer_names, unchanged};
use crate::{api_error::Cause, kinds::Kind, kinds::text, name_rules};

pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = common(kind, object);
    if kind.group.is_empty() {
        return causes;
    }
    causes.extend(series(object));
    if is_unset(object, "eventTime") {
        causes.push(Cause::required("eventTime", ""));
    }
    let r#type = text(object, &["type"]);
    if r#type != "Normal" && r#type != "Warning" {
        causes.push(Cause::invalid("type", "\"\"", format!("has invalid value: {}", r#type)));
    }
    let source = !text(object, &["source", "component"]).is_empty()
        || !text(object, &["source", "host"]).is_empty();
    let deprecated = [
        ("firstTimestamp", !is_unset(object, "firstTimestamp")),
        ("lastTimestamp", !is_unset(object, "lastTimestamp")),
        ("count", !is_unset(object, "count")),
        ("source", source),
    ];
    for (field, _) in deprecated.iter().filter(|(_, set)| *set) {
        causes.push(Cause::invalid(*field, "\"\"", "needs to be unset"));
    }
    causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    causes
}

pub(super) fn validate_update(kind: &Kind, object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes = common(kind, object);
    if kind.group.is_empty() {
        return causes;
    }
    if object["series"] != current["series"] {
        causes.extend(series(object));
    }
    let fixed = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingInstance",
    ];
    causes.extend(fixed.iter().filter_map(|field| unchanged(object, current, field, field)));
    causes.extend(unchanged(object, current, "reportingComponent", "reportingController"));
    causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    causes
}

fn is_unset(object: &Value, field: &str) -> bool {
    matches!(&object[field], Value::Null) || object[field] == 0
}

/// The rules of both groups. A new-style Event is one with an eventTime.
fn common(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let namespace = text(object, &["metadata", "namespace"]);
    let about = text(object, &["involvedObject", "namespace"]);
    let new_style = !is_unset(object, "eventTime");
    let fits = match (new_style, about) {
        (false, "") => namespace == "default",
        (false, about) => about == namespace,
        (true, "") => namespace == "default" || namespace == "kube-system",
        (true, _) => true,
    };
    if !fits {
        let (field, shown) = ("involvedObject.namespace", format!("{about:?}"));
        causes.push(Cause::invalid(field, &shown, "does not match event.namespace"));
    }
    if new_style {
        causes.extend(new_style_texts(kind, object));
    }
    causes
}

fn new_style_texts(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let told_as = if kind.group.is_empty() { "reportingComponent" } else { "reportingController" };
    let controller = text(object, &["reportingComponent"]);
    if controller.is_empty() {
        causes.push(Cause::required(told_as, ""));
    }
    for why in name_rules::qualified_name(controller) {
        causes.push(Cause::invalid(told_as, &format!("{controller:?}"), why));
    }
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        if text(object, &[field]).is_empty() {
            causes.push(Cause::required(field, ""));
        }
        causes.extend(longer(object, field, limit));
    }
    causes.extend(longer(object, "message", 1024));
    causes
}

fn longer(object: &Value, field: &str, limit: usize) -> Option<Cause> {
    let why = format!("can have at most {limit} characters");
    (text(object, &[field]).len() > limit).then(|| Cause::invalid(field, "\"\"", why))
}

fn series(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(series) = object.get("series").filter(|series| series.is_object()) else {
        return causes;
    };
    if series["count"].as_i64().unwrap_or(0) < 2 {
        causes.push(Cause::invalid("series.count", "\"\"", "should be at least 2"));
    }
    if is_unset(series, "lastObservedTime") {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
    causes
}
