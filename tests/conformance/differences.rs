//! Known differences between the sandbox and a real API server, and why they are acceptable.
//!
//! At most ten, and none in the requests of the controllers: get, list, watch and merge patch of
//! Routes; get, list and watch of Secrets; create, get and patch of Events; get, create and update
//! of Leases. Tests check both, and that each example still shows its difference.
//!
//! Kinds that the sandbox lacks are a limit, not a difference.

use http::Method;
use serde_json::{Value, json};

use crate::call::Call;
use crate::compare::Difference;
use crate::side::Answer;

pub struct KnownDifference {
    pub name: &'static str,
    pub why: &'static str,
    /// Whether the two sides hold different objects afterwards, so that the sequence must end.
    pub parts: bool,
    /// Whether it explains these differences.
    pub explains: fn(&Call, &Answer, &Answer, &[Difference]) -> bool,
    /// The last of these calls shows it.
    pub example: fn() -> Vec<Call>,
}

const SECRETS: &str = "/api/v1/namespaces/${a}/secrets";
const SECRET: &str = "/api/v1/namespaces/${a}/secrets/a";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/${a}/leases";
const ROUTES: &str = "/apis/route.openshift.io/v1/namespaces/${a}/routes";
const APPLY: &str = "application/apply-patch+yaml";

pub const KNOWN: &[KnownDifference] = &[
    KnownDifference {
        name: "server-side apply",
        why: "The sandbox does not keep track of who set which field, which server-side apply is about. It says so.",
        parts: true,
        explains: |call, _, right, _| {
            call.headers.contains(&("content-type", APPLY)) && right.code == 415
        },
        example: || {
            let secret =
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } });
            vec![Call::patch(APPLY, SECRET, secret).with("fieldManager", "test")]
        },
    },
    KnownDifference {
        name: "managed fields",
        why: "For the same reason a write that changes nothing but who manages a field makes no new version.",
        parts: true,
        explains: only_the_version,
        example: || {
            let switched_off = json!({ "spec": { "strategy": "OldestEmulationVersion" } });
            vec![
                Call::post(
                    LEASES,
                    json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "a" } }),
                ),
                Call::merge(format!("{LEASES}/a"), switched_off),
            ]
        },
    },
    KnownDifference {
        name: "formats",
        why: "The sandbox answers in JSON only and says so, where the real server has YAML and protobuf too.",
        parts: false,
        explains: |_, _, right, _| right.code == 406,
        example: || vec![Call::get(SECRETS).header("accept", "application/yaml")],
    },
    KnownDifference {
        name: "old paths of watches",
        why: "The paths below /watch/ are deprecated since Kubernetes 1.11. The sandbox has none of them.",
        parts: false,
        explains: |call, _, right, _| call.path.contains("/watch/") && right.code == 404,
        example: || {
            vec![Call::get("/api/v1/watch/namespaces/${a}/secrets").with("timeoutSeconds", "1")]
        },
    },
    KnownDifference {
        name: "empty maps",
        why: "Go tells an empty map from an absent one for as long as a request lasts, so the real server finds immutable data changed from nothing to nothing.",
        parts: false,
        explains: data_from_nothing_to_nothing,
        example: || {
            let secret = json!({ "metadata": { "name": "a" }, "immutable": true, "data": {} });
            vec![Call::post(SECRETS, secret.clone()), Call::put(SECRET, secret)]
        },
    },
    KnownDifference {
        name: "other kinds",
        why: "A custom resource that calls itself another kind is refused for that. The real server goes on to apply rules to what it did not check, and tells what comes of it.",
        parts: false,
        explains: |_, left, right, _| names_another_kind(left) && names_another_kind(right),
        example: || {
            let spec = json!({ "to": { "name": "web" }, "path": "/p", "tls": { "termination": "passthrough" } });
            vec![Call::post(
                ROUTES,
                json!({ "apiVersion": "route.openshift.io/v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": spec }),
            )]
        },
    },
];

/// The known difference that explains these differences.
pub fn known(
    call: &Call,
    left: &Answer,
    right: &Answer,
    found: &[Difference],
) -> Option<&'static KnownDifference> {
    let explains = |known: &&KnownDifference| (known.explains)(call, left, right, found);
    KNOWN.iter().find(|known| !is_done_by_controllers(call) && explains(known))
}

/// Whether our controllers send such requests.
fn is_done_by_controllers(call: &Call) -> bool {
    let at = |place: &str| call.path.contains(place);
    let reads = call.method == Method::GET && call.headers.is_empty();
    let merges = call.method == Method::PATCH
        && call.headers.contains(&("content-type", "application/merge-patch+json"));
    let creates = call.method == Method::POST;
    let updates = call.method == Method::PUT;
    at("/routes") && (reads || merges)
        || at("/secrets") && !at("/watch/") && reads
        || at("/apis/events.k8s.io/") && (reads || merges || creates)
        || at("/leases") && (reads || creates || updates)
}

fn only_the_version(call: &Call, left: &Answer, _: &Answer, found: &[Difference]) -> bool {
    let is_write = matches!(call.method, Method::PUT | Method::PATCH);
    let only_there = matches!(found, [one] if one.place == "/metadata/resourceVersion");
    is_write && left.code == 200 && only_there
}

fn data_from_nothing_to_nothing(
    call: &Call,
    left: &Answer,
    right: &Answer,
    _: &[Difference],
) -> bool {
    let holds_data = call.path.contains("/secrets/") || call.path.contains("/configmaps/");
    let about_data = |answer: &Answer| {
        let forbidden = causes(answer).filter(|cause| cause["reason"] == "FieldValueForbidden");
        let of_data = |cause: &&Value| cause["field"] == "data" || cause["field"] == "binaryData";
        forbidden.filter(of_data).count()
    };
    holds_data && left.code == 422 && about_data(left) > 0 && about_data(right) == 0
}

fn names_another_kind(answer: &Answer) -> bool {
    answer.code == 422 && causes(answer).any(|cause| cause["field"] == "kind")
}

fn causes(answer: &Answer) -> impl Iterator<Item = &Value> {
    answer.body["details"]["causes"].as_array().into_iter().flatten()
}
