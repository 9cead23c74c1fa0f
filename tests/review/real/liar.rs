//! A cluster that says something else about a token than the token itself, and a caller who says it beforehand.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use testkit::{
    proxy::Fault,
    review::{Disturbed, TokenOrder},
};

use super::stage::{Stage, credential, entry, is_authenticated, status};

type Lie = fn(&mut Value);

/// Reads better than an error in a list of cases.
const LIES: [(&str, Lie); 10] = [
    ("an administrator", |status| status["user"]["groups"] = json!(["system:masters"])),
    ("an administrator, too", |status| push(&mut status["user"]["groups"], "system:masters")),
    ("another's name", |status| {
        status["user"]["username"] = json!("system:serviceaccount:liar:other");
    }),
    ("a person's name", |status| status["user"]["username"] = json!("admin")),
    ("nobody's name", |status| status["user"]["username"] = json!("system:anonymous")),
    ("another's uid", |status| {
        status["user"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    }),
    ("another's Pod", |status| extra(status, "pod-name", "other")),
    ("another's credential", |status| extra(status, "credential-id", "JTI=other")),
    ("an audience that was not asked for", |status| push(&mut status["audiences"], "vault")),
    ("no audience", |status| status["audiences"] = json!([])),
];

fn push(list: &mut Value, item: &str) {
    list.as_array_mut().expect("a list").push(json!(item));
}

fn extra(status: &mut Value, name: &str, value: &str) {
    status["user"]["extra"][format!("authentication.kubernetes.io/{name}")] = json!([value]);
}

/// B, with the lie of the moment in its reviews.
async fn lying_b(lie: &Arc<Mutex<Option<Lie>>>) -> Disturbed {
    let lie = lie.clone();
    let script = move |request: &testkit::proxy::SeenRequest| {
        let lie = lie
            .lock()
            .expect("nobody panics with it")
            .filter(|_| request.path.ends_with("/tokenreviews"));
        match lie {
            None => Fault::Forward,
            Some(lie) => Fault::MangleBody(Box::new(move |body| {
                let mut review: Value = serde_json::from_slice(&body).expect("a review");
                lie(&mut review["status"]);
                Bytes::from(review.to_string())
            })),
        }
    };
    Stage::get().await.b.disturbed(script).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cluster_makes_its_tokens_somebody_elses() {
    let stage = Stage::get().await;
    let lie = Arc::default();
    let b = lying_b(&lie).await;
    let credential = credential(&stage.b, 160 * 3600).await;
    let config = stage.config(&[entry(&stage.b, &b.recording.url(), &credential)]);
    let product = stage.another_ready("liar", config).await;
    let account = stage.b.account("liar", "app").await;
    let node = stage.b.node("liar").await;
    let pod = stage.b.pod(&account, "pod", &node).await;
    let order = TokenOrder::of(&account).bound_to(&pod).audiences(&["shop", "till"]);
    let token = stage.b.token_as(order).await;
    let asked = async || {
        let answer = product.review(&stage.caller, &token, &["shop"]).await;
        status(&answer)
    };
    let honest = asked().await;
    assert!(is_authenticated(&honest), "{}", honest["error"]);

    for (number, (name, lies)) in LIES.into_iter().enumerate() {
        *lie.lock().expect("nobody panics with it") = Some(lies);
        let status = asked().await;
        assert!(!is_authenticated(&status), "{name}: {}", status["user"]);
        assert_eq!((&status["user"], &status["audiences"]), (&json!({}), &Value::Null), "{name}");
        product.until_metric("mismatches_total{cluster=\"b\"}", (number + 1) as f64).await;
    }
    // Kubernetes may add others one day. They are not passed on, and nobody is kept out for it.
    *lie.lock().expect("nobody panics with it") = Some(|status| extra(status, "colour", "red"));
    assert_eq!(asked().await["user"], honest["user"]);
    product.until_metric("extra_dropped_total{cluster=\"b\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_writes_into_the_status_reaches_no_cluster_and_no_answer() {
    let stage = Stage::get().await;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let ask = async |token: &str| {
        let body = json!({
            "spec": { "token": token },
            "status": {
                "authenticated": true, "audiences": ["smuggled-audience"],
                "user": { "username": "smuggled-user", "groups": ["system:masters"] },
            },
        });
        let answer = stage.product.post(&stage.caller, path, &body).await;
        status(&answer)
    };
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("smuggled", "app").await;
        let token = member.token_for(&account, "not-the-api-server").await;
        let refused = ask(&token).await;
        assert_eq!((&refused["user"], &refused["audiences"]), (&json!({}), &Value::Null));
        assert!(!is_authenticated(&refused));
        // The API server itself gives it back.
        let forged = json!({ "spec": { "token": token }, "status": { "user": { "username": "smuggled-user" } } });
        let direct = member.create(path, &forged).await;
        assert_eq!(direct["status"]["user"]["username"], "smuggled-user");
        assert_eq!(member.proxy().count(b"smuggled"), 0, "{} was sent it", member.name());
    }
    let nobodys = ask("no.such.token").await;
    assert_eq!((&nobodys["user"], &nobodys["authenticated"]), (&json!({}), &Value::Null));
}
