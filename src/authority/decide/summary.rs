//! What is remembered of a SPIFFEFederation between two syncs.
//!
//! An object may have more than a megabyte of bundles, and there may be a thousand of them. Whoever writes
//! one reads it first.

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    request,
    sync::{self, Due, SYNCED, TRUSTED},
};
use crate::{
    api::{
        condition::Condition,
        spiffe_federation::{
            BundleSource, HttpsSpiffeSource, HttpsWebSource, SpiffeFederation,
            SpiffeFederationSpec, SpiffeFederationStatus, StaticSource,
        },
    },
    names::{ACCEPT_ANNOTATION, REFRESH_ANNOTATION},
};

/// Of all bundles that joins are judged by, in bytes. Each is in memory several times while one changes, and whoever
/// may create federations could end every replica with a hundred large ones otherwise.
const MOST_BUNDLES: usize = 16 * 1024 * 1024;

/// Whether the bundle of this federation fits beside those of the others that are kept.
pub fn has_room<'a>(
    others: impl Iterator<Item = &'a Summary>,
    federation: &SpiffeFederation,
) -> bool {
    let length = |it: &SpiffeFederation| it.status.current_bundle.as_ref().map_or(0, String::len);
    let others = others.map(|it| &it.outline).filter(|it| it.name() != federation.name());
    others.map(length).sum::<usize>() + length(federation) <= MOST_BUNDLES
}

/// Enough to say whether a federation counts, when it is due, and what metrics show of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Without its long texts, so never to be written.
    pub outline: SpiffeFederation,
    /// When the last authority of its bundle expires.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Summary {
    pub fn of(federation: &SpiffeFederation) -> Self {
        let outline = SpiffeFederation {
            metadata: metadata(federation),
            spec: SpiffeFederationSpec {
                trust_domain: federation.spec.trust_domain.clone(),
                bundle_source: source(&federation.spec.bundle_source),
            },
            status: status(&federation.status),
        };
        Self { outline, expires_at: sync::expires_at(&federation.status) }
    }

    /// Whether it is written as trusted, although the last authority expired.
    pub fn has_expired(&self, now: DateTime<Utc>) -> bool {
        let is_trusted = self.outline.condition(TRUSTED).is_some_and(|it| it.status == "True");
        is_trusted && self.expires_at.is_some_and(|at| at < now)
    }

    /// When it is looked at again.
    pub fn next_look(&self, due: Due, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let at = match due {
            Due::At(at) => Some(at),
            _ => None,
        };
        at.into_iter().chain(self.expires_at.filter(|at| *at > now)).min()
    }

    /// Whether an answer that was fetched for that outline is one to this object. Labels and other people's
    /// annotations do not count: whoever writes them often would keep a bundle from being taken.
    pub fn asks_for_the_same(&self, fetched_for: &SpiffeFederation) -> bool {
        let (now, then) = (&self.outline.metadata, &fetched_for.metadata);
        (&now.uid, now.generation, &now.annotations, &now.deletion_timestamp)
            == (&then.uid, then.generation, &then.annotations, &then.deletion_timestamp)
            // Another leader may have synced meanwhile.
            && self.outline.status == fetched_for.status
    }

    /// Grows with every change of the object.
    pub fn version(&self) -> u64 {
        let text = self.outline.metadata.resource_version.as_deref();
        text.and_then(|it| it.parse().ok()).unwrap_or_default()
    }
}

fn metadata(federation: &SpiffeFederation) -> ObjectMeta {
    let kept = [REFRESH_ANNOTATION, ACCEPT_ANNOTATION];
    let annotation =
        |name| Some((str::to_owned(name), request::kept(federation.annotation(name)?)));
    let meta = &federation.metadata;
    ObjectMeta {
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        generation: meta.generation,
        resource_version: meta.resource_version.clone(),
        creation_timestamp: meta.creation_timestamp.clone(),
        deletion_timestamp: meta.deletion_timestamp.clone(),
        annotations: Some(kept.into_iter().filter_map(annotation).collect()),
        ..ObjectMeta::default()
    }
}

/// Its kind, and where an SVID of the endpoint comes from.
fn source(source: &BundleSource) -> BundleSource {
    BundleSource {
        fixed: source.fixed.as_ref().map(|_| StaticSource { bundle: String::new() }),
        https_web: source.https_web.as_ref().map(|web| HttpsWebSource {
            bundle_endpoint_url: String::new(),
            ca_bundle: None,
            pins: Vec::new(),
            follow_redirects: web.follow_redirects,
        }),
        https_spiffe: source.https_spiffe.as_ref().map(|spiffe| HttpsSpiffeSource {
            bundle_endpoint_url: String::new(),
            endpoint_spiffe_id: spiffe.endpoint_spiffe_id.clone(),
            bundle_bootstrap: None,
            follow_redirects: spiffe.follow_redirects,
        }),
    }
}

fn status(status: &SpiffeFederationStatus) -> SpiffeFederationStatus {
    let ours = status.conditions.iter().filter(|it| [SYNCED, TRUSTED].contains(&&*it.r#type));
    let condition = |it: &Condition| Condition { message: String::new(), ..it.clone() };
    SpiffeFederationStatus {
        current_bundle_synced_at: status.current_bundle_synced_at,
        current_bundle_refresh_hint: status.current_bundle_refresh_hint,
        next_sync_at: status.next_sync_at,
        refused_fingerprint: status.refused_fingerprint.clone(),
        observed_refresh: status.observed_refresh.as_deref().map(request::kept),
        observed_accept: status.observed_accept.as_deref().map(request::kept),
        audited_generation: status.audited_generation,
        conditions: ours.map(condition).collect(),
        ..SpiffeFederationStatus::default()
    }
}

#[cfg(test)]
mod tests;
