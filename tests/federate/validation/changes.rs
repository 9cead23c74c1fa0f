//! Changes to an existing SpireServer.

use serde_json::{Value, json};

use super::{acme, federated, peer, web, with, with_peers, without};
use crate::{
    on_both,
    only::{Turn, minimal},
};

on_both! {
    a_trust_domain_stays_and_the_refusal_says_what_to_do_instead,
    the_name_of_the_cluster_stays,
    the_volume_stays,
    federation_can_be_added_but_not_removed,
    the_profile_of_the_endpoint_stays,
    the_source_of_certificates_stays,
    peers_come_and_go,
}

/// With this object in place: what it may become, and what it may not.
async fn judge(turn: &Turn, before: Value, free: &[Value], refused: &[Value], says: &str) {
    turn.create(&before).await;
    for object in free {
        turn.would_become(object).await.unwrap_or_else(|why| panic!("refused: {object}\n{why}"));
    }
    for object in refused {
        let answer = turn.would_become(object).await;
        let why = answer.map_or_else(|why| why, |_| panic!("accepted: {object}"));
        assert!(why.contains(says), "{object}\n{why}\nshould say: {says}");
    }
    turn.delete().await;
}

async fn a_trust_domain_stays_and_the_refusal_says_what_to_do_instead(turn: Turn) {
    let says = "trustDomain cannot be changed, because it is part of every identity that was issued: \
                delete the SpireServer and its volume, create it again with the new trust domain, and \
                bootstrap every peer again";
    let other = with(minimal(), "/spec/trustDomain", json!("b.example.com"));
    let free = [minimal(), with(minimal(), "/spec/logLevel", json!("debug"))];
    judge(&turn, minimal(), &free, &[other], says).await;
}

async fn the_name_of_the_cluster_stays(turn: Turn) {
    let says = "clusterName cannot be changed, because the identities of all agents and all entries \
                carry it";
    let other = with(minimal(), "/spec/clusterName", json!("b"));
    judge(&turn, minimal(), &[minimal()], &[other], says).await;
}

async fn the_volume_stays(turn: Turn) {
    let says = "persistence cannot be changed, because the volume holds the server's keys";
    let volume = |volume: Value| with(minimal(), "/spec/persistence", volume);
    let before = volume(json!({ "size": "2Gi" }));
    let same = volume(json!({ "size": "2Gi", "accessMode": "ReadWriteOnce" }));
    let refused = [
        volume(json!({ "size": "3Gi" })),
        volume(json!({ "size": "2Gi", "accessMode": "ReadWriteMany" })),
        volume(json!({ "size": "2Gi", "storageClass": "fast" })),
        minimal(),
    ];
    judge(&turn, before, &[same], &refused, says).await;
}

async fn federation_can_be_added_but_not_removed(turn: Turn) {
    let says = "federation cannot be removed once it is set";
    let free = [federated(), web(json!({ "servingCert": {} }))];
    judge(&turn, minimal(), &free, &[], "").await;
    let null = with(minimal(), "/spec/federation", json!(null));
    judge(&turn, federated(), &[federated()], &[minimal(), null], says).await;
}

async fn the_profile_of_the_endpoint_stays(turn: Turn) {
    let says = "profile cannot be changed, because every peer is configured for it";
    let by_web = || web(json!({ "servingCert": {} }));
    let hint = |object| with(object, "/spec/federation/bundleEndpoint/refreshHint", json!(60));
    judge(&turn, federated(), &[hint(federated())], &[by_web()], says).await;
    judge(&turn, by_web(), &[hint(by_web())], &[federated()], says).await;
}

async fn the_source_of_certificates_stays(turn: Turn) {
    let by_acme = || web(json!({ "acme": acme() }));
    let serving_cert = || web(json!({ "servingCert": {} }));
    let terms = with(acme(), "/tosAccepted", json!("true"));
    let secret = web(json!({ "servingCert": { "externalSecretRef": "federation-tls" } }));
    let says = "acme cannot be replaced by servingCert: delete the SpireServer and create it again";
    judge(&turn, by_acme(), &[web(json!({ "acme": terms }))], &[serving_cert()], says).await;
    let says = "servingCert cannot be replaced by acme: delete the SpireServer and create it again";
    judge(&turn, serving_cert(), &[secret], &[by_acme()], says).await;
}

async fn peers_come_and_go(turn: Turn) {
    let (b, c) = (|| peer("b.example.com"), || peer("c.example.com"));
    let moved = with(b(), "/bundleEndpointUrl", json!("https://elsewhere.example.com"));
    let none = without(with_peers([b()]), "/spec/federation/federatesWith");
    let free = [with_peers([b(), c()]), with_peers([c()]), with_peers([moved]), none];
    let own = with_peers([b(), peer("a.example.com")]);
    judge(&turn, with_peers([b()]), &free, &[own], "a trust domain cannot federate with itself")
        .await;
}
