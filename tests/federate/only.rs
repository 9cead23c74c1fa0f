//! The one SpireServer that an API server has. Tests take turns with it.

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testkit::{TestServer, stage};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use trustplane::api::spire_server::{API_VERSION, GROUP, KIND, NAME, VERSION};

/// An API server without a SpireServer, until the test is over.
pub struct Turn {
    api: Api<DynamicObject>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// The object as the server stores it, or why it was refused.
pub type Answer = Result<Value, String>;

impl Turn {
    /// Waits for those before us, and clears away what they left.
    pub async fn on(server: TestServer) -> Self {
        static REAL: Mutex<()> = Mutex::const_new(());
        static SANDBOX: Mutex<()> = Mutex::const_new(());
        let turns = match server {
            TestServer::Real(_) => &REAL,
            TestServer::Sandbox(_) => &SANDBOX,
        };
        let one_at_a_time = turns.lock().await;
        if let TestServer::Real(cluster) = &server {
            static SERVED: OnceCell<()> = OnceCell::const_new();
            SERVED.get_or_init(|| stage::install(cluster, "crds/federate")).await;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
        let api = Api::all_with(server.admin().await, &resource);
        let turn = Self { api, _one_at_a_time: one_at_a_time };
        turn.delete().await;
        turn
    }

    /// Creates this object as a dry run.
    pub async fn would_create(&self, object: &Value) -> Answer {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        answer(self.api.create(&dry, &typed(object)).await)
    }

    pub async fn create(&self, object: &Value) -> Value {
        answer(self.api.create(&PostParams::default(), &typed(object)).await)
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// Replaces the present object by this one as a dry run.
    pub async fn would_become(&self, object: &Value) -> Answer {
        let mut object = typed(object);
        object.metadata.resource_version = self.version().await;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        answer(self.api.replace(NAME, &dry, &object).await)
    }

    /// Gives the object that is there this status.
    pub async fn report(&self, status: &Value) -> Answer {
        let mut object = typed(
            &json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": NAME }, "status": status }),
        );
        object.metadata.resource_version = self.version().await;
        answer(self.api.replace_status(NAME, &PostParams::default(), &object).await)
    }

    /// Makes room for another.
    pub async fn delete(&self) {
        match self.api.delete(NAME, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("the SpireServer can't be deleted: {error}"),
        }
    }

    async fn version(&self) -> Option<String> {
        self.api.get(NAME).await.expect("the SpireServer is there").metadata.resource_version
    }
}

fn typed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("an object")
}

fn answer(outcome: kube::Result<DynamicObject>) -> Answer {
    match outcome {
        Ok(object) => Ok(serde_json::to_value(object).expect("an object is JSON")),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("no answer: {error}"),
    }
}

/// A SpireServer that says no more than it must.
pub fn minimal() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": { "name": NAME },
        "spec": {
            "trustDomain": "a.example.com",
            "clusterName": "a",
            "jwtIssuer": "https://oidc.a.example.com",
        },
    })
}

/// Makes two tests of each case: on the real API server, and on the sandbox.
#[macro_export]
macro_rules! on_both {
    ($($case:ident,)+) => {
        mod real {
            $(#[tokio::test] async fn $case() {
                super::$case($crate::only::Turn::on(testkit::TestServer::real().await).await).await;
            })+
        }
        mod sandbox {
            $(#[tokio::test] async fn $case() {
                super::$case($crate::only::Turn::on(testkit::TestServer::sandbox().await).await).await;
            })+
        }
    };
}
