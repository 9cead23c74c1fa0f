//! Which cluster made a token: the one whose key signed it.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    directory::{Candidate, Directory, PublishedKey},
    token::Token,
};

/// A token that ended longer ago is not sent to its cluster. Clocks differ by less.
const LATE: TimeDelta = TimeDelta::minutes(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// This cluster's key signed it. Whether it still counts, the cluster says.
    Of(Arc<str>),
    Nobody(NobodyReason),
    /// No known key of this name, but these clusters may have a new one.
    UnknownKey(Vec<Arc<str>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NobodyReason {
    #[error("no cluster has this issuer")]
    Issuer,
    #[error("the key that it names did not sign it")]
    Signature,
    #[error("it has expired")]
    Expired,
}

pub fn detect(token: &Token<'_>, directory: &Directory, now: DateTime<Utc>) -> Detected {
    let clusters = directory.clusters_of(&token.issuer);
    if clusters.is_empty() {
        return Detected::Nobody(NobodyReason::Issuer);
    }
    let candidates = directory.candidates(&token.issuer, token.kid.as_deref());
    match candidates.iter().find(|candidate| has_signed(&candidate.key, token)) {
        Some(_) if token.expires.is_some_and(|end| is_long_past(end, now)) => {
            Detected::Nobody(NobodyReason::Expired)
        }
        Some(candidate) => Detected::Of(candidate.cluster.clone()),
        None => match without_key(clusters, candidates, token) {
            unknown if unknown.is_empty() => Detected::Nobody(NobodyReason::Signature),
            unknown => Detected::UnknownKey(unknown),
        },
    }
}

/// The end can be the last moment that there is: whoever signs a token chooses it.
fn is_long_past(end: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    end.checked_add_signed(LATE).is_some_and(|late| late < now)
}

pub(super) fn has_signed(key: &PublishedKey, token: &Token<'_>) -> bool {
    let limited = key.algorithm.as_deref();
    limited.is_none_or(|only| only == token.algorithm_name)
        && token.jws.is_signed_by(&key.key, token.algorithm)
}

/// The clusters of which no key of this name is known. Another's key of the same name must not hide theirs.
fn without_key(
    clusters: &[Arc<str>],
    candidates: &[Candidate],
    token: &Token<'_>,
) -> Vec<Arc<str>> {
    let is_known = |name: &Arc<str>| {
        token.kid.is_some() && candidates.iter().any(|candidate| candidate.cluster == *name)
    };
    clusters.iter().filter(|name| !is_known(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Value, json};

    use super::{
        super::{
            directory::{Cluster, LEGACY_ISSUER, published},
            testing::{Issuer, claims, legacy_claims, noon, token_of},
        },
        *,
    };

    const ISSUER: &str = "https://kubernetes.default.svc";

    fn cluster(name: &str, keys: &[Value]) -> Cluster {
        let document = json!({ "keys": keys }).to_string();
        Cluster {
            name: name.into(),
            issuers: BTreeSet::from([ISSUER.to_owned(), format!("https://{name}.test")]),
            claimed: BTreeSet::new(),
            keys: published(document.as_bytes()).unwrap().0,
        }
    }

    fn detected(text: &str, clusters: &[Cluster]) -> Detected {
        detected_at(text, clusters, noon())
    }

    fn detected_at(text: &str, clusters: &[Cluster], now: DateTime<Utc>) -> Detected {
        let directory = Directory::new(clusters, &BTreeMap::new());
        detect(&Token::read(text).ok().unwrap(), &directory, now)
    }

    fn of(name: &str) -> Detected {
        Detected::Of(name.into())
    }

    #[test]
    fn a_token_is_of_the_cluster_whose_key_signed_it_by_every_algorithm() {
        let issuers = [Issuer::rsa("a"), Issuer::p256("b"), Issuer::p384("c"), Issuer::p521("d")];
        let clusters = issuers.each_ref().map(|it| cluster(&it.kid, &[it.jwk()]));
        for issuer in &issuers {
            assert_eq!(detected(&issuer.token(&claims()), &clusters), of(&issuer.kid));
        }
    }

    #[test]
    fn clusters_that_share_issuer_and_kid_are_told_apart_by_the_signature() {
        let (a, b) = (Issuer::p256("same"), Issuer::p256("same"));
        let clusters = [cluster("a", &[a.jwk()]), cluster("b", &[b.jwk()])];
        assert_eq!(detected(&a.token(&claims()), &clusters), of("a"));
        assert_eq!(detected(&b.token(&claims()), &clusters), of("b"));
        let forged = Issuer::p256("same").token(&claims());
        let nobody = Detected::Nobody(NobodyReason::Signature);
        assert_eq!(detected(&forged, &clusters), nobody);
    }

    #[test]
    fn a_key_of_another_cluster_with_the_same_name_does_not_hide_a_new_one() {
        let (old, new, blocking) = (Issuer::p256("old"), Issuer::p256("new"), Issuer::p256("new"));
        let clusters = [cluster("a", &[old.jwk()]), cluster("thief", &[blocking.jwk()])];
        let found = detected(&new.token(&claims()), &clusters);
        assert_eq!(found, Detected::UnknownKey(vec!["a".into()]));
    }

    #[test]
    fn a_token_without_a_kid_is_tried_with_all_keys_and_then_its_clusters_are_asked() {
        let (a, b) = (Issuer::p256("a"), Issuer::p384("b"));
        let clusters = [cluster("a", &[a.jwk()]), cluster("b", &[b.jwk()])];
        let text = b.token_with(&json!({ "alg": "ES384" }), &claims());
        assert_eq!(detected(&text, &clusters), of("b"));
        let unknown = Issuer::p384("c").token_with(&json!({ "alg": "ES384" }), &claims());
        let both = Detected::UnknownKey(vec!["a".into(), "b".into()]);
        assert_eq!(detected(&unknown, &clusters), both);
    }

    #[test]
    fn a_foreign_issuer_is_nobodys_though_the_key_is_known() {
        let issuer = Issuer::p256("a");
        let mut claims = claims();
        claims["iss"] = json!("https://elsewhere.test");
        let found = detected(&issuer.token(&claims), &[cluster("a", &[issuer.jwk()])]);
        assert_eq!(found, Detected::Nobody(NobodyReason::Issuer));
    }

    #[test]
    fn another_clusters_key_does_not_sign_for_an_issuer_that_is_not_its_own() {
        let (a, b) = (Issuer::p256("k"), Issuer::p256("k"));
        let clusters = [cluster("a", &[a.jwk()]), cluster("b", &[b.jwk()])];
        let mut claims = claims();
        claims["iss"] = json!("https://a.test");
        assert_eq!(detected(&a.token(&claims), &clusters), of("a"));
        let forged = detected(&b.token(&claims), &clusters);
        assert_eq!(forged, Detected::Nobody(NobodyReason::Signature));
    }

    #[test]
    fn a_token_that_ended_more_than_five_minutes_ago_is_nobodys() {
        let issuer = Issuer::p256("a");
        let clusters = [cluster("a", &[issuer.jwk()])];
        let text = issuer.token(&claims());
        let end = noon() + TimeDelta::hours(1);
        assert_eq!(detected_at(&text, &clusters, end + LATE), of("a"));
        let later = detected_at(&text, &clusters, end + LATE + TimeDelta::seconds(1));
        assert_eq!(later, Detected::Nobody(NobodyReason::Expired));
        // A forged one is forged first.
        let forged = Issuer::p256("a").token(&claims());
        let later = detected_at(&forged, &clusters, end + TimeDelta::days(1));
        assert_eq!(later, Detected::Nobody(NobodyReason::Signature));
    }

    #[test]
    fn a_token_that_ends_with_time_itself_is_a_token_like_others() {
        let issuer = Issuer::p256("a");
        let mut claims = claims();
        claims["exp"] = json!(DateTime::<Utc>::MAX_UTC.timestamp());
        let clusters = [cluster("a", &[issuer.jwk()])];
        assert_eq!(detected(&issuer.token(&claims), &clusters), of("a"));
    }

    #[test]
    fn a_legacy_token_is_known_where_its_issuer_is_and_never_ends() {
        let issuer = Issuer::rsa("a");
        let text = issuer.token(&legacy_claims());
        let mut cluster = cluster("a", &[issuer.jwk()]);
        let off = detected(&text, std::slice::from_ref(&cluster));
        assert_eq!(off, Detected::Nobody(NobodyReason::Issuer));
        cluster.issuers.insert(LEGACY_ISSUER.to_owned());
        let later = noon() + TimeDelta::days(3650);
        assert_eq!(detected_at(&text, &[cluster], later), of("a"));
    }

    #[test]
    fn a_key_signs_only_by_the_algorithm_that_is_its_own() {
        let issuer = Issuer::p256("a");
        let clusters = [cluster("a", &[issuer.jwk()])];
        let mut limited = issuer.jwk();
        limited["alg"] = json!("ES384");
        for (alg, clusters) in
            [("RS256", &clusters), ("ES512", &clusters), ("ES256", &[cluster("a", &[limited])])]
        {
            let text = issuer.token_with(&json!({ "alg": alg, "kid": "a" }), &claims());
            let found = detected(&text, clusters);
            assert_eq!(found, Detected::Nobody(NobodyReason::Signature), "{alg}");
        }
        // The public key as a shared secret, and no signature at all.
        for signature in [&b""[..], &[0; 64]] {
            let text = token_of(&json!({ "alg": "ES256", "kid": "a" }), &claims(), signature);
            let found = detected(&text, &clusters);
            assert_eq!(found, Detected::Nobody(NobodyReason::Signature));
        }
    }
}
