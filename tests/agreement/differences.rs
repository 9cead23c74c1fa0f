//! Where the sandbox is known to differ from a real API server, and why it may.
//!
//! At most ten, and none on what the controllers do: get, list, watch and merge patch of Routes; get,
//! list and watch of Secrets; create, get and patch of Events; get, create and update of Leases.

use http::Method;

use crate::call::Call;
use crate::compare::Difference;
use crate::side::Answer;

/// A known difference.
pub struct Known {
    pub name: &'static str,
    pub why: &'static str,
    /// Whether the two sides hold different objects from here on, so that a sequence ends.
    pub parts: bool,
    /// Whether it explains why these two answers differ.
    pub explains: fn(&Call, &Answer, &Answer, &[Difference]) -> bool,
}

pub const KNOWN: &[Known] = &[
    Known {
        name: "formats",
        why: "The sandbox speaks JSON only and says so, where the real server names YAML and protobuf too.",
        parts: false,
        explains: |_, left, right, _| left.code == 406 && right.code == 406,
    },
    Known {
        name: "managed fields",
        why: "The sandbox does not keep track of who set which field. A write that changes nothing else makes no new version.",
        parts: true,
        explains: only_the_version,
    },
    Known {
        name: "empty maps",
        why: "Go tells an empty map from an absent one for as long as a request lasts, so the real server finds data changed from nothing to nothing where it is immutable.",
        parts: false,
        explains: data_from_nothing_to_nothing,
    },
    Known {
        name: "other kinds",
        why: "A custom resource that calls itself another kind is refused for that. The real server goes on to apply rules to what it did not check, and tells what comes of it.",
        parts: false,
        explains: |_, left, right, _| names_another_kind(left) && names_another_kind(right),
    },
];

/// The known difference that explains why two answers are not the same.
pub fn known(
    call: &Call,
    left: &Answer,
    right: &Answer,
    found: &[Difference],
) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.explains)(call, left, right, found))
}

fn only_the_version(call: &Call, left: &Answer, _: &Answer, found: &[Difference]) -> bool {
    let is_write = matches!(call.method, Method::PUT | Method::PATCH);
    let at = |place: &str| call.path.contains(place);
    let used_by_controllers = at("/routes/") && call.method == Method::PATCH
        || at("/events/") && call.method == Method::PATCH
        || at("/leases/") && call.method == Method::PUT;
    let only_there = matches!(found, [one] if one.place == "/metadata/resourceVersion");
    is_write && !used_by_controllers && left.code == 200 && only_there
}

fn data_from_nothing_to_nothing(
    call: &Call,
    left: &Answer,
    right: &Answer,
    _: &[Difference],
) -> bool {
    let holds_data = call.path.contains("/secrets/") || call.path.contains("/configmaps/");
    let about_data = |answer: &Answer| {
        let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
        let fields = causes.filter(|cause| cause["reason"] == "FieldValueForbidden");
        fields.filter(|cause| cause["field"] == "data" || cause["field"] == "binaryData").count()
    };
    holds_data && left.code == 422 && about_data(left) > 0 && about_data(right) == 0
}

fn names_another_kind(answer: &Answer) -> bool {
    let mut causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    answer.code == 422 && causes.any(|cause| cause["field"] == "kind")
}
