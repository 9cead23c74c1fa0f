//! Whose a token is and why, for `trustplane review explain`. Decided as a review decides it; only that more is told.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    config::Config,
    detect::{Detected, detect, has_signed},
    directory::{Cluster, Directory, PublishedKey, Thumbprint},
    token::{Token, TokenError},
};

/// The keys of each cluster, or why they are not known.
pub type Keys = BTreeMap<Arc<str>, Result<Vec<PublishedKey>, String>>;

/// What a token says of itself. Nothing of it is true before a key has verified it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    pub algorithm: String,
    pub kid: Option<String>,
    pub issuer: String,
    pub username: String,
    pub uid: String,
    pub extra: BTreeMap<String, Vec<String>>,
    /// None for a legacy token, which is for the API server.
    pub audiences: Option<Vec<String>>,
    pub issued: Option<DateTime<Utc>>,
    /// None for a legacy token, which has no end.
    pub expires: Option<DateTime<Utc>>,
}

/// How it stands between the token and a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relation {
    pub cluster: String,
    /// Whether tokens with this issuer may be its own.
    #[serde(rename = "hasIssuer")]
    pub has_issuer: bool,
    #[serde(flatten)]
    pub key: KeyRelation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "key", content = "detail", rename_all = "kebab-case")]
pub enum KeyRelation {
    /// A key of its own signed the token.
    Signed,
    /// It publishes the key that signed the token, and the key is another's, or nobody's.
    SignedButNotItsOwn,
    /// It has a key of this name, which signed another.
    DidNotSign,
    /// It publishes no key of this name.
    NoSuchKey,
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Conclusion {
    /// Whether it still counts, the cluster says.
    Of {
        cluster: String,
    },
    /// It ended so long ago that its cluster is not asked.
    Expired {
        cluster: String,
    },
    Refused {
        reason: String,
    },
    /// The keys of these clusters are not known.
    Undecided {
        clusters: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// None if it is no token of a ServiceAccount.
    pub claims: Option<Claims>,
    pub clusters: Vec<Relation>,
    #[serde(flatten)]
    pub conclusion: Conclusion,
}

/// `noted` is whose each key was first, as our Secret has it.
pub fn explain(
    text: &str,
    config: &Config,
    keys: &Keys,
    noted: &BTreeMap<Thumbprint, Arc<str>>,
    now: DateTime<Utc>,
) -> Explanation {
    let token = match Token::read(text) {
        Ok(token) => token,
        Err(error) => return no_token(error),
    };
    let clusters: Vec<_> = clusters(config, keys);
    let directory = Directory::new(&clusters, noted);
    let relations: Vec<_> =
        config.clusters.keys().map(|name| relation(name, &token, keys, &directory)).collect();
    let is_related = |it: &Relation| {
        it.has_issuer || !matches!(it.key, KeyRelation::NoSuchKey | KeyRelation::DidNotSign)
    };
    let conclusion = conclusion(&token, &directory, keys, now);
    let clusters = relations.into_iter().filter(is_related).collect();
    Explanation { claims: Some(claims(&token)), clusters, conclusion }
}

fn no_token(error: TokenError) -> Explanation {
    let conclusion = Conclusion::Refused { reason: error.to_string() };
    Explanation { claims: None, clusters: Vec::new(), conclusion }
}

fn clusters(config: &Config, keys: &Keys) -> Vec<Cluster> {
    let cluster = |(name, it): (&String, &super::config::ClusterConfig)| Cluster {
        name: name.as_str().into(),
        issuers: it.issuers.clone(),
        claimed: it.kids.clone(),
        keys: keys.get(name.as_str()).and_then(|it| it.clone().ok()).unwrap_or_default(),
    };
    config.clusters.iter().map(cluster).collect()
}

fn claims(token: &Token<'_>) -> Claims {
    Claims {
        algorithm: token.algorithm_name.clone(),
        kid: token.kid.clone(),
        issuer: token.issuer.clone(),
        username: token.identity.username(),
        uid: token.identity.uid.clone(),
        extra: token.identity.extra(),
        audiences: token.audiences.clone(),
        issued: token.issued,
        expires: token.expires,
    }
}

fn relation(name: &str, token: &Token<'_>, keys: &Keys, directory: &Directory) -> Relation {
    let has_issuer = directory.clusters_of(&token.issuer).iter().any(|it| **it == *name);
    let published = match keys.get(name) {
        Some(Ok(published)) => published,
        Some(Err(why)) => {
            let key = KeyRelation::Unknown(why.clone());
            return Relation { cluster: name.into(), has_issuer, key };
        }
        None => {
            let key = KeyRelation::Unknown("they were not asked for".to_owned());
            return Relation { cluster: name.into(), has_issuer, key };
        }
    };
    let is_meant = |key: &&PublishedKey| token.kid.is_none() || key.kid == token.kid;
    let signer = published.iter().find(|key| is_meant(key) && has_signed(key, token));
    let key = match signer {
        Some(key) if directory.owner(&key.key).is_some_and(|it| **it == *name) => {
            KeyRelation::Signed
        }
        Some(_) => KeyRelation::SignedButNotItsOwn,
        None if published.iter().any(|key| is_meant(&key)) => KeyRelation::DidNotSign,
        None => KeyRelation::NoSuchKey,
    };
    Relation { cluster: name.into(), has_issuer, key }
}

fn conclusion(
    token: &Token<'_>,
    directory: &Directory,
    keys: &Keys,
    now: DateTime<Utc>,
) -> Conclusion {
    // As long as it lasted, so that the cluster of one that has ended is told, too.
    let then = token.expires.map_or(now, |end| end.min(now));
    let refused = |reason: &str| Conclusion::Refused { reason: reason.to_owned() };
    match (detect(token, directory, then), detect(token, directory, now)) {
        (Detected::Of(cluster), Detected::Of(_)) => Conclusion::Of { cluster: cluster.to_string() },
        (Detected::Of(cluster), _) => Conclusion::Expired { cluster: cluster.to_string() },
        (Detected::Nobody(reason), _) => refused(&reason.to_string()),
        (Detected::UnknownKey(clusters), _) => {
            let is_unknown = |it: &Arc<str>| !matches!(keys.get(it), Some(Ok(_)));
            let unknown = clusters.iter().filter(|it| is_unknown(it));
            let unknown: Vec<_> = unknown.map(ToString::to_string).collect();
            match unknown.is_empty() {
                true => {
                    refused("no cluster with its issuer publishes a key of its own that signed it")
                }
                false => Conclusion::Undecided { clusters: unknown },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use serde_json::json;

    use super::{
        super::{
            config::read,
            directory::published,
            testing::{Issuer, claims, noon},
        },
        *,
    };

    const ISSUER: &str = "https://kubernetes.default.svc";

    /// Clusters `a` and `b` have the usual issuer, `c` has another.
    fn config() -> Config {
        let remote = |name: &str, issuer: &str| {
            format!(
                "  {name}:\n    issuer: {issuer}\n    api_server: https://{name}.test\n    token_path: /{name}\n"
            )
        };
        let all = [remote("a", ISSUER), remote("b", ISSUER), remote("c", "https://c.test")];
        read(&format!("clusters:\n{}", all.concat())).unwrap()
    }

    fn keys(all: [&[&Issuer]; 3]) -> Keys {
        let names = ["a", "b", "c"].into_iter().map(Arc::from);
        let document = |issuers: &[&Issuer]| {
            let keys: Vec<_> = issuers.iter().map(|it| it.jwk()).collect();
            published(json!({ "keys": keys }).to_string().as_bytes()).unwrap().0
        };
        names.zip(all.map(|issuers| Ok(document(issuers)))).collect()
    }

    fn explained(token: &str, keys: &Keys) -> Explanation {
        explain(token, &config(), keys, &BTreeMap::new(), noon())
    }

    fn relations(explanation: &Explanation) -> Vec<(&str, &KeyRelation)> {
        explanation.clusters.iter().map(|it| (it.cluster.as_str(), &it.key)).collect()
    }

    #[test]
    fn a_token_is_told_with_its_cluster_and_with_why_it_is_no_others() {
        let (a, b, c) = (Issuer::p256("k"), Issuer::p256("k"), Issuer::p256("other"));
        let token = b.token(&claims());
        let explanation = explained(&token, &keys([&[&a], &[&b], &[&c]]));
        assert_eq!(explanation.conclusion, Conclusion::Of { cluster: "b".into() });
        let expected = [("a", &KeyRelation::DidNotSign), ("b", &KeyRelation::Signed)];
        assert_eq!(relations(&explanation), expected);
        let claims = explanation.claims.as_ref().unwrap();
        assert_eq!(claims.username, "system:serviceaccount:shop:cart");
        assert_eq!((claims.algorithm.as_str(), claims.kid.as_deref()), ("ES256", Some("k")));
        let shown = format!("{explanation:?}{}", json!(explanation));
        assert!(!shown.contains(token.rsplit('.').next().unwrap()), "{shown}");
    }

    #[test]
    fn of_a_token_that_has_ended_its_cluster_is_told_too() {
        let a = Issuer::p256("k");
        let keys = keys([&[&a], &[], &[]]);
        let token = a.token(&claims());
        let at = |now| explain(&token, &config(), &keys, &BTreeMap::new(), now).conclusion;
        assert_eq!(at(noon() + TimeDelta::days(9)), Conclusion::Expired { cluster: "a".into() });
        let forged = Issuer::p256("k").token(&claims());
        let late = noon() + TimeDelta::days(9);
        let conclusion = explain(&forged, &config(), &keys, &BTreeMap::new(), late).conclusion;
        assert!(!matches!(conclusion, Conclusion::Expired { .. }), "{conclusion:?}");
    }

    #[test]
    fn a_cluster_whose_key_signed_it_though_it_has_another_issuer_is_told() {
        let c = Issuer::p256("k");
        let explanation = explained(&c.token(&claims()), &keys([&[], &[], &[&c]]));
        assert!(matches!(explanation.conclusion, Conclusion::Refused { .. }));
        let of_c = explanation.clusters.iter().find(|it| it.cluster == "c").unwrap();
        assert_eq!((of_c.has_issuer, &of_c.key), (false, &KeyRelation::Signed));
    }

    #[test]
    fn a_key_that_two_publish_is_neithers_until_it_is_known_who_had_it_first() {
        let key = Issuer::p256("k");
        let all = keys([&[&key], &[&key], &[]]);
        let explanation = explained(&key.token(&claims()), &all);
        assert!(matches!(explanation.conclusion, Conclusion::Refused { .. }), "{explanation:?}");
        let both = KeyRelation::SignedButNotItsOwn;
        assert_eq!(relations(&explanation), [("a", &both), ("b", &both)]);
        let first = Directory::new(
            &[Cluster { name: "a".into(), keys: all["a"].clone().unwrap(), ..Cluster::default() }],
            &BTreeMap::new(),
        );
        let explanation = explain(&key.token(&claims()), &config(), &all, &first.to_note, noon());
        assert_eq!(explanation.conclusion, Conclusion::Of { cluster: "a".into() });
    }

    #[test]
    fn nothing_is_decided_where_the_keys_of_a_cluster_are_not_known() {
        let (a, b) = (Issuer::p256("a"), Issuer::p256("b"));
        let mut keys = keys([&[&a], &[&b], &[]]);
        keys.insert("b".into(), Err("no answer".to_owned()));
        let explanation = explained(&b.token(&claims()), &keys);
        assert_eq!(explanation.conclusion, Conclusion::Undecided { clusters: vec!["b".into()] });
        // Another's outage changes nothing.
        let explanation = explained(&a.token(&claims()), &keys);
        assert_eq!(explanation.conclusion, Conclusion::Of { cluster: "a".into() });
        keys.insert("b".into(), Ok(Vec::new()));
        let explanation = explained(&b.token(&claims()), &keys);
        assert!(matches!(explanation.conclusion, Conclusion::Refused { .. }), "{explanation:?}");
    }

    #[test]
    fn what_is_no_token_is_told_why_without_a_byte_of_it() {
        let explanation = explained("opaque-and-secret", &keys([&[], &[], &[]]));
        assert_eq!((&explanation.claims, explanation.clusters.len()), (&None, 0));
        let shown = json!(explanation).to_string();
        assert!(shown.contains("three parts in base64") && !shown.contains("opaque"), "{shown}");
    }

    #[test]
    fn a_foreign_issuer_is_refused_whatever_signed_it() {
        let a = Issuer::p256("a");
        let mut claims = claims();
        claims["iss"] = json!("https://elsewhere.test");
        let explanation = explained(&a.token(&claims), &keys([&[&a], &[], &[]]));
        let reason = "no cluster has this issuer".to_owned();
        assert_eq!(explanation.conclusion, Conclusion::Refused { reason });
        assert_eq!(relations(&explanation), [("a", &KeyRelation::Signed)]);
    }
}
