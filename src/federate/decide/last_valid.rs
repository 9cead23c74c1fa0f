//! The last valid spec, which applies while a newer one is invalid. Pure.
//!
//! It is an annotation of the server's ConfigMap, written together with the configuration rendered from it.
//! So drift is corrected and removed peers disappear although another field of the object is wrong.
//!
//! Writers of that ConfigMap must not gain what the admission policy guards, such as a Secret mounted into
//! the Pod. So the status has a digest of the spec, written before the annotation. Peers are not part of it:
//! those are removed while the spec is invalid, and nothing may depend on two writes. Such writers could
//! change a peer only as any editor of the SpireServer can.

use serde_json::Value;

use crate::{
    api::spire_server::{Peer, SpireServer, SpireServerSpec},
    federate::decide::{digest, validate},
    names::LAST_VALID_SPEC_ANNOTATION,
};

/// Kubernetes allows 256 KiB of annotations per object. A longer spec is not stored: while a newer one is
/// invalid, nothing is changed then.
const LONGEST: usize = 192 * 1024;

/// The status keeps at most this many digests while the ConfigMap can't be written.
const MOST_ANNOUNCED: usize = 16;

/// The annotation; none if it would be too long.
pub fn written(spec: &SpireServerSpec) -> Option<String> {
    serde_json::to_string(spec).ok().filter(|text| text.len() <= LONGEST)
}

/// The digest for the status.
pub fn digest(spec: &SpireServerSpec) -> Option<String> {
    let mut spec = spec.clone();
    if let Some(federation) = &mut spec.federation {
        federation.federates_with.clear();
    }
    serde_json::to_string(&spec).ok().map(|text| digest::digest(&text))
}

/// The digests that the status must have before the ConfigMap gets this spec: the new one, and those of specs
/// that the ConfigMap may still have. So the annotation counts whatever happens between the two writes.
/// None if the status has the digest already.
pub fn announced(server: &SpireServer) -> Option<String> {
    let new = digest(&server.spec).filter(|digest| !is_announced(server, digest))?;
    let all: Vec<_> = std::iter::once(&*new).chain(digests(server)).take(MOST_ANNOUNCED).collect();
    Some(all.join(" "))
}

fn is_announced(server: &SpireServer, digest: &str) -> bool {
    digests(server).any(|it| it == digest)
}

fn digests(server: &SpireServer) -> impl Iterator<Item = &str> {
    server.status.last_valid_spec.as_deref().unwrap_or_default().split_whitespace()
}

/// None unless the ConfigMap is this SpireServer's and the annotation is ours.
pub fn read(config_map: &Value, server: &SpireServer) -> Option<SpireServerSpec> {
    let meta = &config_map["metadata"];
    let owners = meta["ownerReferences"].as_array()?;
    let uid = server.metadata.uid.as_deref()?;
    let ours = owners.iter().any(|it| it["controller"] == true && it["uid"] == uid);
    let text = meta["annotations"][LAST_VALID_SPEC_ANNOTATION].as_str().filter(|_| ours)?;
    let spec: SpireServerSpec = serde_json::from_str(text).ok()?;
    let usable = is_announced(server, &digest(&spec)?)
        && spec.trust_domain == server.spec.trust_domain
        && validate::problems(&spec).is_empty();
    usable.then_some(spec)
}

pub fn less_removed_peers(mut last: SpireServerSpec, new: &SpireServerSpec) -> SpireServerSpec {
    let is_listed = |peer: &Peer| new.peers().iter().any(|it| it.trust_domain == peer.trust_domain);
    if let Some(federation) = &mut last.federation {
        federation.federates_with.retain(is_listed);
    }
    last
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::federate::decide::render::{
        Component,
        tests::{part, server, spiffe},
    };

    /// A SpireServer whose status has its digest.
    fn reported() -> SpireServer {
        let mut server = server(spiffe());
        server.status.last_valid_spec = digest(&server.spec);
        server
    }

    fn config_map(server: &SpireServer) -> Value {
        part(server, Component::ServerConfigMap)
    }

    #[test]
    fn what_was_rendered_last_is_read_again_from_its_own_config_map() {
        let server = reported();
        assert_eq!(read(&config_map(&server), &server), Some(server.spec.clone()));
    }

    #[test]
    fn what_is_another_server_s_or_was_broken_does_not_count() {
        let server = reported();
        let map = config_map(&server);
        let with = |change: fn(&mut Value)| {
            let mut map = map.clone();
            change(&mut map);
            read(&map, &server)
        };
        assert_eq!(with(|it| it["metadata"]["ownerReferences"][0]["uid"] = json!("1")), None);
        let annotation = |it: &mut Value, text: &str| {
            it["metadata"]["annotations"][LAST_VALID_SPEC_ANNOTATION] = json!(text);
        };
        let mut broken = map.clone();
        annotation(&mut broken, "{}");
        assert_eq!(read(&broken, &server), None);
        let mut other = server.spec.clone();
        other.trust_domain = "td-z.test".to_owned();
        annotation(&mut broken, &written(&other).unwrap());
        assert_eq!(read(&broken, &server), None, "of another trust domain");
        let mut invalid = server.spec.clone();
        invalid.federation.as_mut().unwrap().federates_with[0].bundle_endpoint_url =
            "http://b".into();
        annotation(&mut broken, &written(&invalid).unwrap());
        assert_eq!(read(&broken, &server), None, "it is not valid itself");
    }

    #[test]
    fn whoever_writes_to_the_config_map_has_no_secret_mounted_by_it() {
        let server = reported();
        let mut other = server.clone();
        other.spec.datastore.tls_secret_name = Some("victim".to_owned());
        assert_eq!(read(&config_map(&other), &server), None);
        let unknown = SpireServer { status: Default::default(), ..server.clone() };
        assert_eq!(read(&config_map(&server), &unknown), None, "nothing to hold it against");
        let mut fewer = server.clone();
        fewer.spec.federation.as_mut().unwrap().federates_with.clear();
        assert!(
            read(&config_map(&fewer), &server).is_some(),
            "peers go before the status is written"
        );
    }

    #[test]
    fn a_spec_is_announced_before_it_is_written_beside_the_one_in_place() {
        let old = reported();
        assert_eq!(announced(&old), None, "it is told already");
        let mut new = old.clone();
        new.spec.jwt_issuer = "https://new.td-a.test".to_owned();
        new.status.last_valid_spec = announced(&new);
        for written in [&old, &new] {
            assert!(read(&config_map(written), &new).is_some(), "it counts before and after");
        }
        assert_eq!(announced(&new), None);
        for number in 0..100 {
            new.spec.jwt_issuer = format!("https://{number}.td-a.test");
            new.status.last_valid_spec = announced(&new);
        }
        assert_eq!(digests(&new).count(), MOST_ANNOUNCED);
        assert!(read(&config_map(&new), &new).is_some());
    }

    #[test]
    fn a_peer_that_is_no_longer_listed_goes_and_one_that_is_listed_wrongly_stays_as_it_was() {
        let last = server(spiffe()).spec;
        let mut new = last.clone();
        let peers = &mut new.federation.as_mut().unwrap().federates_with;
        peers.remove(0);
        peers[0].bundle_endpoint_url = "https://".to_owned();
        let counts = less_removed_peers(last.clone(), &new).federation.unwrap().federates_with;
        assert_eq!(counts, [last.federation.unwrap().federates_with[1].clone()]);
    }

    #[test]
    fn a_spec_that_an_annotation_does_not_hold_is_not_kept() {
        let mut spec = server(spiffe()).spec;
        spec.jwt_issuer = "x".repeat(LONGEST);
        assert_eq!(written(&spec), None);
    }
}
