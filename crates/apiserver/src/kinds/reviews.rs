//! Kinds that are answered and never stored: reviews, and requests for tokens.

use std::sync::LazyLock;

use super::{Kind, library::Built};

/// Their slots begin here, and no store has one.
const FIRST_SLOT: usize = usize::MAX / 2;

static REVIEWS: LazyLock<[Kind; 4]> = LazyLock::new(|| {
    let of_cluster = |group, kind, plural| Kind {
        namespaced: false,
        ..Built { group, version: "v1", kind, plural, short_names: &[] }.kind()
    };
    let mut kinds = [
        of_cluster(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews"),
        of_cluster(AUTHENTICATION, "TokenReview", "tokenreviews"),
        of_cluster("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
        Kind { namespaced: true, ..of_cluster(AUTHENTICATION, "TokenRequest", "tokenrequests") },
    ];
    for (at, kind) in kinds.iter_mut().enumerate() {
        kind.slot = FIRST_SLOT + at;
    }
    kinds
});

const AUTHENTICATION: &str = "authentication.k8s.io";

pub fn self_subject_review() -> &'static Kind {
    &REVIEWS[0]
}

pub fn token_review() -> &'static Kind {
    &REVIEWS[1]
}

pub fn subject_access_review() -> &'static Kind {
    &REVIEWS[2]
}

/// Has no path of its own: it is posted to an account.
pub fn token_request() -> &'static Kind {
    &REVIEWS[3]
}

/// Those with a path of their own.
pub(super) fn with_path() -> &'static [Kind] {
    &REVIEWS[..3]
}

pub(super) fn all() -> &'static [Kind] {
    &*REVIEWS
}

/// The present version of a kind that an object names in a version before.
pub(super) fn earlier(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/')?;
    let mut known = with_path().iter().filter(|_| version == "v1beta1");
    known.find(|one| one.group == group && one.kind == kind)
}

impl Kind {
    /// Whether it is answered and never stored.
    pub fn is_review(&self) -> bool {
        self.slot >= FIRST_SLOT
    }
}
