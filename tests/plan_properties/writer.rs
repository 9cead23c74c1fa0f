//! Compares the requests of `apply.rs` with the model, on a server that knows only merge patches.

use std::{
    cell::RefCell,
    collections::HashSet,
    mem,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};
use trustplane::inject::{
    act::apply::Writer,
    cache::secret_reads::ReadPair,
    decide::{plan::plan, write::Write},
};

use crate::{
    cases::{Case, SECRET, cases},
    runner,
};
use testkit::route_table::{Model, merge};

const ROUTE: &str = "/apis/route.openshift.io/v1/namespaces/web/routes/shop";

#[derive(Default)]
struct Server {
    route: Value,
    paths: Vec<String>,
}

impl Server {
    /// Applies a patch as the API server does: spec and metadata on the object, status on its
    /// subresource.
    fn patch(&mut self, path: &str, patch: &Value) -> Result<(), String> {
        for field in ["uid", "resourceVersion"] {
            let (sent, stands) = (&patch["metadata"][field], &self.route["metadata"][field]);
            if sent != stands {
                return Err(format!("{field} is {sent}, not {stands}"));
            }
        }
        let status = path.ends_with("/status");
        let before = self.route.clone();
        merge(&mut self.route, patch);
        if status {
            self.route["metadata"] = before["metadata"].clone();
            self.route["spec"] = before["spec"].clone();
        } else if self.route.get("status") != before.get("status") {
            return Err("status was sent to the wrong door".into());
        }
        self.paths.push(path.to_owned());
        let version = format!("{}", 41 + self.paths.len());
        self.route["metadata"]["resourceVersion"] = json!(version);
        Ok(())
    }
}

fn client(server: Arc<Mutex<Server>>) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            assert_eq!(request.method(), Method::PATCH);
            assert_eq!(request.headers()["content-type"], "application/merge-patch+json");
            let query = request.uri().query().unwrap_or_default().trim_start_matches('&');
            assert_eq!(query, "fieldManager=trustplane");
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            let mut server = server.lock().unwrap();
            server.patch(&path, &serde_json::from_slice(&body)?)?;
            Ok::<_, BoxError>(Response::new(Body::from(serde_json::to_vec(&server.route)?)))
        }
    });
    Client::new(service, "default")
}

/// Plans and writes. Returns the object in the server, and the requests it got.
async fn carry_out(
    case: &Case,
    writer: &Writer,
    server: &Mutex<Server>,
) -> (Model, Model, Vec<String>) {
    let before = case.model();
    *server.lock().unwrap() = Server { route: before.0.clone(), paths: Vec::new() };
    let mut facts = before.facts();
    let plan = plan(&facts, &case.seen(), case.now, &case.policy);
    if let Some(write) = plan.write {
        let (uid, version) = (SECRET.0.into(), SECRET.1.into());
        let read = case.pair().map(|pair| ReadPair { pair: pair.clone(), uid, version });
        facts = writer.write(&facts, write, read.as_ref()).await.unwrap();
    }
    if let Some(conditions) = &plan.conditions {
        facts = writer.write_status(&facts, conditions).await.unwrap();
    }
    let after = before.after(plan.write, case.pair(), SECRET, plan.conditions.as_deref());
    let mut server = server.lock().unwrap();
    let mut stands = Model(mem::take(&mut server.route));
    assert!(
        facts == stands.facts(),
        "the writer answers with something else than what stands there"
    );
    stands.0["metadata"]["resourceVersion"] = json!("41");
    (after, stands, mem::take(&mut server.paths))
}

#[test]
fn the_writer_sends_what_was_planned_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Arc::new(Mutex::new(Server::default()));
    let writer = {
        let _inside = runtime.enter();
        Writer::new(client(server.clone()))
    };
    let kinds = RefCell::new(HashSet::new());

    let outcome = runner(5_000).run(&cases(), |case| {
        let (after, stands, paths) = runtime.block_on(carry_out(&case, &writer, &server));
        let plan = plan(&case.model().facts(), &case.seen(), case.now, &case.policy);
        let mut expected = Vec::new();
        expected.extend(plan.write.map(|_| ROUTE.to_owned()));
        expected.extend(plan.conditions.as_ref().map(|_| format!("{ROUTE}/status")));
        prop_assert_eq!(paths, expected);
        prop_assert!(after == stands, "row {}: not what the model has", plan.row);
        kinds.borrow_mut().extend(plan.write.as_ref().map(mem::discriminant::<Write>));
        Ok(())
    });

    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    assert_eq!(kinds.borrow().len(), 5, "some kind of write was never sent");
}
