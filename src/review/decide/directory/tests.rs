use serde_json::json;

use super::{super::testing::Issuer, *};

const ISSUER: &str = "https://kubernetes.default.svc";

fn cluster(name: &str, keys: &[&Issuer]) -> Cluster {
    let document = json!({ "keys": keys.iter().map(|it| it.jwk()).collect::<Vec<_>>() });
    let (keys, skipped) = published(document.to_string().as_bytes()).unwrap();
    assert_eq!(skipped, 0);
    let issuers = BTreeSet::from([ISSUER.to_owned()]);
    Cluster { name: name.into(), issuers, claimed: BTreeSet::new(), keys }
}

fn claiming(mut cluster: Cluster, kid: &str) -> Cluster {
    cluster.claimed.insert(kid.to_owned());
    cluster
}

/// Whose key a token of this kid is verified with.
fn owners(directory: &Directory, kid: &str) -> Vec<String> {
    let found = directory.candidates(ISSUER, Some(kid));
    found.iter().map(|it| it.cluster.to_string()).collect()
}

/// What is noted once the two were read one after the other.
fn noted(clusters: &[Cluster]) -> BTreeMap<Thumbprint, Arc<str>> {
    Directory::new(clusters, &BTreeMap::new()).to_note
}

#[test]
fn every_kind_of_key_is_read_and_odd_ones_are_counted() {
    let good = [Issuer::rsa("a"), Issuer::p256("b"), Issuer::p384("c"), Issuer::p521("d")];
    let mut keys: Vec<_> = good.iter().map(Issuer::jwk).collect();
    let (mut for_encryption, mut off_curve) = (good[0].jwk(), good[1].jwk());
    for_encryption["use"] = json!("enc");
    off_curve["y"] = off_curve["x"].clone();
    let odd = [
        for_encryption,
        off_curve,
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" }),
        json!({ "kty": "RSA", "n": "AQAB" }),
        json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": 7 }),
        json!(7),
        json!(null),
    ];
    keys.extend(odd.clone());
    let (read, skipped) = published(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
    assert_eq!((read.len(), skipped), (4, odd.len()));
    let kids: Vec<_> = read.iter().filter_map(|it| it.kid.as_deref()).collect();
    assert_eq!(kids, ["a", "b", "c", "d"]);
}

#[test]
fn a_document_that_is_no_jwks_is_refused() {
    for text in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": [], "keys": []}"#, "<html>"] {
        assert!(published(text.as_bytes()).is_err(), "{text}");
    }
    let key = Issuer::p256("a").jwk();
    let many = json!({ "keys": vec![key; MOST_KEYS + 1] }).to_string();
    assert_eq!(published(many.as_bytes()), Err(KeysError::Many(MOST_KEYS + 1)));
}

#[test]
fn clusters_may_share_an_issuer_and_a_kid() {
    let (a, b) = (Issuer::p256("same"), Issuer::p256("same"));
    let clusters = [cluster("a", &[&a]), cluster("b", &[&b])];
    let directory = Directory::new(&clusters, &BTreeMap::new());
    assert_eq!(owners(&directory, "same"), ["a", "b"]);
    assert!(directory.shared.is_empty(), "these are two keys");
    assert_eq!(directory.clusters_of(ISSUER).len(), 2);
    assert!(directory.clusters_of("https://other.test").is_empty());
    assert!(directory.candidates("https://other.test", Some("same")).is_empty());
}

#[test]
fn a_key_that_another_cluster_copies_stays_with_the_first() {
    let key = Issuer::p256("k");
    let first = cluster("first", &[&key]);
    let noted = noted(std::slice::from_ref(&first));
    // Under the same name and under another one.
    let mut renamed = cluster("thief", &[&key]);
    renamed.keys[0].kid = Some("other".to_owned());
    for thief in [cluster("thief", &[&key]), renamed] {
        for clusters in [[first.clone(), thief.clone()], [thief.clone(), first.clone()]] {
            let directory = Directory::new(&clusters, &noted);
            assert_eq!(owners(&directory, "k"), ["first"]);
            assert_eq!(owners(&directory, "other"), [""; 0]);
            assert_eq!(directory.shared.len(), 1);
            assert_eq!(directory.shared[0].owner.as_deref(), Some("first"));
            assert!(directory.to_note.is_empty());
        }
    }
}

#[test]
fn a_key_stays_with_the_first_after_that_one_stopped_to_publish_it() {
    let (old, new) = (Issuer::p256("old"), Issuer::p256("new"));
    let noted = noted(&[cluster("first", &[&old])]);
    let clusters = [cluster("first", &[&new]), cluster("thief", &[&old])];
    let directory = Directory::new(&clusters, &noted);
    assert_eq!(owners(&directory, "old"), [""; 0]);
    assert_eq!(directory.shared[0].published_by, ["thief".into()]);
    // Once the first is no cluster of ours any more, the key is free.
    let directory = Directory::new(&clusters[1..], &noted);
    assert_eq!(owners(&directory, "old"), ["thief"]);
}

#[test]
fn a_key_of_two_clusters_of_which_none_was_first_is_nobodys_until_the_configuration_says_whose() {
    let key = Issuer::p256("k");
    let (a, b) = (cluster("a", &[&key]), cluster("b", &[&key]));
    let directory = Directory::new(&[a.clone(), b.clone()], &BTreeMap::new());
    assert_eq!(owners(&directory, "k"), [""; 0]);
    assert_eq!(directory.shared[0].owner, None);
    assert!(directory.to_note.is_empty());

    let decided = [a.clone(), claiming(b.clone(), "k")];
    let directory = Directory::new(&decided, &BTreeMap::new());
    assert_eq!(owners(&directory, "k"), ["b"]);
    assert_eq!(directory.to_note.len(), 1);
    // Also against what was noted.
    let directory = Directory::new(&decided, &noted(std::slice::from_ref(&a)));
    assert_eq!(owners(&directory, "k"), ["b"]);
    // A contradiction is nobody's.
    let both = [claiming(a.clone(), "k"), claiming(b, "k")];
    let directory = Directory::new(&both, &noted(&[a]));
    assert_eq!(owners(&directory, "k"), [""; 0]);
}

#[test]
fn a_cluster_that_publishes_a_key_twice_is_not_its_own_thief() {
    let key = Issuer::p256("k");
    let directory = Directory::new(&[cluster("a", &[&key, &key])], &BTreeMap::new());
    assert!(directory.shared.is_empty());
    assert_eq!(directory.to_note.len(), 1);
}

#[test]
fn a_token_without_a_kid_is_tried_with_64_keys_at_most() {
    let many: Vec<_> = (0..MOST_KEYS + 1).map(|n| Issuer::p256(&n.to_string())).collect();
    let (a, b) = many.split_at(30);
    let clusters =
        [cluster("a", &a.iter().collect::<Vec<_>>()), cluster("b", &b.iter().collect::<Vec<_>>())];
    let directory = Directory::new(&clusters, &BTreeMap::new());
    assert_eq!(directory.candidates(ISSUER, None).len(), MOST_KEYS);
}
