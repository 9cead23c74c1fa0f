//! What changes while a client joins, and clients and servers that leave meanwhile.

use super::*;

/// Answers to writes take so long, after they were carried out.
fn slow(server: &ApiServer, by: Duration) -> Client {
    let server = server.clone();
    let transport = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, is_write) = (server.clone(), request.method() != Method::GET);
        async move {
            let answer = server.oneshot(request).await;
            if is_write {
                tokio::time::sleep(by).await;
            }
            answer
        }
    });
    Client::new(transport, "default")
}

impl World {
    fn checks(&self) -> Vec<Value> {
        self.audited().iter().map(|it| it["check"].clone()).collect()
    }

    fn patch_token(&self, patch: Value) {
        self.ask(Method::PATCH, &format!("{TOKENS}/ci"), patch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_federation_that_ends_while_the_use_is_written_counts_no_more() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service_over(slow(&world.server, 5 * SECOND), view.clone());
    let applicant = world.applicant("a");
    let ends = async {
        tokio::time::sleep(2 * SECOND).await;
        view.set_trusted(BTreeMap::new());
    };
    let (joined, ()) = tokio::join!(applicant.join(&service, false), ends);
    assert_eq!(joined.err().unwrap().code(), Code::PermissionDenied);
    assert_eq!(world.checks(), ["federation"]);
    assert_eq!(world.used_by(), ["spiffe://partner.test/ci/a"], "that was before");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_ends_while_its_use_is_written_counts_no_more() {
    let world = World::new();
    world.create_token(None);
    world.patch_token(json!({ "spec": { "expires": noon() + TimeDelta::seconds(3) } }));
    let service = world.service_over(slow(&world.server, 5 * SECOND), world.view());
    let refused = world.applicant("a").join(&service, false).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(world.checks(), ["token"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_ends_between_challenge_and_solution_lets_nobody_in() {
    let world = World::new();
    world.create_token(None);
    world.patch_token(json!({ "spec": { "expires": noon() + TimeDelta::seconds(3) } }));
    let service = world.service(world.view());
    let (applicant, mut talk) = (world.applicant("a"), Talk::open(&service));
    talk.send(applicant.init(false));
    let Ok(Some(ResponsePayload::Challenge(challenge))) = talk.next().await else { panic!() };
    tokio::time::sleep(3 * SECOND).await;
    talk.send(applicant.solution(&challenge.nonce));
    assert_eq!(code(&mut talk).await, Code::PermissionDenied);
    assert_eq!(world.used_by(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_bring_a_deleted_token_back() {
    let world = World::new();
    world.create_token(None);
    let view = world.view();
    let service = world.service_over(slow(&world.server, 5 * SECOND), view.clone());
    let applicant = world.applicant("a");
    let deleted = async {
        tokio::time::sleep(2 * SECOND).await;
        world.ask(Method::DELETE, &format!("{TOKENS}/ci"), Value::Null);
        view.forget_token("ci");
    };
    // Its use was written before the token was deleted.
    let (joined, ()) = tokio::join!(applicant.join(&service, false), deleted);
    assert_eq!(joined.err().unwrap().code(), Code::PermissionDenied);
    let renewal = applicant.join(&service, false).await.err().unwrap();
    assert_eq!(renewal.code(), Code::PermissionDenied);
    assert_eq!(world.checks(), ["token", "token"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_its_use_is_written_needs_no_other_use() {
    let world = World::new();
    world.create_token(Some(1));
    let service = world.service_over(slow(&world.server, 5 * SECOND), world.view());
    let (applicant, mut talk) = (world.applicant("a"), Talk::open(&service));
    talk.send(applicant.init(false));
    let Ok(Some(ResponsePayload::Challenge(challenge))) = talk.next().await else { panic!() };
    talk.send(applicant.solution(&challenge.nonce));
    tokio::time::sleep(SECOND).await;
    drop(talk);
    tokio::time::sleep(10 * SECOND).await;
    assert!(applicant.join(&service, false).await.is_ok());
    assert_eq!(world.used_by(), ["spiffe://partner.test/ci/a"]);
    let is_renewal: Vec<_> =
        world.audited().iter().map(|it| it["issued"]["isRenewal"].clone()).collect();
    assert_eq!(is_renewal, [false, true], "both certificates are on record");
}

#[tokio::test(start_paused = true)]
async fn refusals_that_wait_for_the_end_of_their_minute_are_recorded_when_the_server_stops() {
    let world = World::new();
    let service = world.service(world.view());
    let running = tokio::spawn(service.clone().run(None));
    let applicant = world.applicant("a");
    let refused = 40;
    for _ in 0..refused {
        assert!(applicant.join(&service, false).await.is_err());
    }
    service.stop.cancel();
    running.await.unwrap();
    let (sums, whole): (Vec<_>, Vec<_>) =
        world.audited().into_iter().partition(|it| it["count"].is_u64());
    assert!(whole.len() < refused, "a caller must not fill the log");
    let summed: u64 = sums.iter().filter_map(|it| it["count"].as_u64()).sum();
    assert_eq!(whole.len() as u64 + summed, refused as u64);
}
