//! Federations for tests.

use chrono::{DateTime, Utc};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::sync::Received;
use crate::{
    api::spiffe_federation::{
        BundleSource, HttpsSpiffeSource, HttpsWebSource, SpiffeFederation, SpiffeFederationSpec,
        SpiffeFederationStatus, StaticSource,
    },
    spiffe::bundle::Bundle,
};

pub(crate) fn noon() -> DateTime<Utc> {
    crate::spiffe::testing::noon()
}

pub(crate) fn web() -> BundleSource {
    let web = HttpsWebSource {
        bundle_endpoint_url: "https://b.example/bundle".to_owned(),
        ca_bundle: None,
        pins: Vec::new(),
        follow_redirects: None,
    };
    BundleSource { https_web: Some(web), ..BundleSource::default() }
}

pub(crate) fn spiffe(id: &str, bootstrap: Option<&str>) -> BundleSource {
    let spiffe = HttpsSpiffeSource {
        bundle_endpoint_url: "https://b.example/bundle".to_owned(),
        endpoint_spiffe_id: id.to_owned(),
        bundle_bootstrap: bootstrap.map(str::to_owned),
        follow_redirects: None,
    };
    BundleSource { https_spiffe: Some(spiffe), ..BundleSource::default() }
}

pub(crate) fn fixed(bundle: &str) -> BundleSource {
    let fixed = StaticSource { bundle: bundle.to_owned() };
    BundleSource { fixed: Some(fixed), ..BundleSource::default() }
}

/// Created this many seconds after 1970.
pub(crate) fn federation(
    name: &str,
    created: i64,
    bundle_source: BundleSource,
) -> SpiffeFederation {
    let mut federation = SpiffeFederation {
        metadata: Default::default(),
        spec: SpiffeFederationSpec { trust_domain: None, bundle_source },
        status: SpiffeFederationStatus::default(),
    };
    federation.metadata.name = Some(name.to_owned());
    federation.metadata.uid = Some(format!("uid-of-{name}"));
    federation.metadata.generation = Some(1);
    federation.metadata.creation_timestamp = Timestamp::from_second(created).ok().map(Time);
    federation
}

pub(crate) fn received(document: &str) -> Received {
    Received { bundle: Bundle::parse(document.as_bytes()).unwrap(), document: document.to_owned() }
}
