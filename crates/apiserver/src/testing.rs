//! The kinds of the unit tests: the built-in ones, and the Route as an example of a CRD.

use std::sync::LazyLock;

use crate::kinds::{Kind, Kinds};

pub(crate) static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    Kinds::new(&[include_str!("../../../crds/route.openshift.io_routes.yaml")]).unwrap()
});

pub(crate) fn route() -> &'static Kind {
    KINDS.kind("route.openshift.io", "v1", "routes").unwrap()
}
