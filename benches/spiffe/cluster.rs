//! A real API server with the authority installed, and federations in it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{Cluster, Controller, Launch, at, figures::Times, free_port};
use trustplane::api::spiffe_federation::SpiffeFederation;

use crate::journal::Journal;

pub const OWN: &str = "own.test";
const TOKENS: &str = "/apis/trustplane.dev/v1/jointokens";
const FEDERATIONS: &str = "/apis/trustplane.dev/v1/spiffefederations";
/// Requests at the same time, to fill it.
const WIDTH: usize = 8;
const TRUSTED_WITHIN: Duration = Duration::from_secs(300);

pub struct Stage {
    cluster: Cluster,
    admin: Client,
    pub journal: Journal,
}

impl Stage {
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::start_another(name).await;
        for folder in ["deploy/authority/api", "deploy/authority"] {
            let folder = at(folder).display().to_string();
            let applied = cluster.kubectl(&["apply", "--server-side", "-k", &folder]).await;
            ensure!(applied.is_ok(), "{folder} is not accepted: {applied:?}");
        }
        let crds = ["crd/spiffefederations.trustplane.dev", "crd/jointokens.trustplane.dev"];
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", crds[0], crds[1]];
        ensure!(cluster.kubectl(&wait).await.is_ok(), "the API is not served");
        let admin = cluster.admin().await;
        let journal = Journal::start(admin.clone());
        Ok(Self { cluster, admin, journal })
    }

    /// The program with its account's own rights.
    pub async fn authority(
        &self,
        shortest_interval: Duration,
        more: &[&str],
    ) -> anyhow::Result<Controller> {
        let token = self.cluster.token_of("trustplane", "trustplane-authority").await;
        let kubeconfig = self.cluster.kubeconfig(&self.cluster.admin_access().with_token(token));
        let arguments = [
            "authority",
            &format!("--trust-domain={OWN}"),
            "--namespace=trustplane",
            "--listen=127.0.0.1:0",
            "--log-format=json",
            &format!("--spiffe-listen=127.0.0.1:{}", free_port()?),
            &format!("--min-sync-interval={}s", shortest_interval.as_secs()),
        ];
        let launch = Launch::exactly("authority", &arguments, kubeconfig).flags(more);
        let mut controller = launch.env("RUST_LOG", "info").image_environment().start();
        controller.ready().await;
        Ok(controller)
    }

    pub async fn create(
        &self,
        federations: impl Iterator<Item = (String, Value)>,
    ) -> anyhow::Result<()> {
        let admin = &self.admin;
        let create = |(name, source): (String, Value)| async move {
            let object = json!({
                "apiVersion": "trustplane.dev/v1",
                "kind": "SPIFFEFederation",
                "metadata": { "name": name },
                "spec": { "bundleSource": source },
            });
            post(admin, FEDERATIONS, &object).await
        };
        stream::iter(federations).map(create).buffer_unordered(WIDTH).try_collect().await
    }

    /// A token for agents that this rule allows.
    pub async fn create_token(&self, name: &str, rule: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "trustplane.dev/v1",
            "kind": "JoinToken",
            "metadata": { "name": name },
            "spec": {
                "roles": ["Agent"], "joinMethod": "spiffe", "spiffe": { "allow": [{ "spiffeID": rule }] },
            },
        });
        post(&self.admin, TOKENS, &object).await
    }

    /// Our own bundle.
    pub async fn published(&self) -> anyhow::Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "trustplane");
        let data = maps.get("trustplane-bundle").await?.data.unwrap_or_default();
        Ok(data.get("bundle.json").context("a bundle")?.clone())
    }

    pub async fn until_trusted(&self, number: usize) -> anyhow::Result<()> {
        let begin = Instant::now();
        while self.journal.trusted() < number {
            let trusted = self.journal.trusted();
            let is_late = begin.elapsed() > TRUSTED_WITHIN;
            ensure!(!is_late, "{trusted} of {number} are trusted after {TRUSTED_WITHIN:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Durations of status-sized patches by a plain client, one after the other.
    pub async fn raw_writes(&self, name: &str, number: usize) -> anyhow::Result<Times> {
        let api: Api<SpiffeFederation> = Api::all(self.admin.clone());
        let mut times = Vec::new();
        for mark in 0..number {
            let annotations = json!({ "bench.trustplane.dev/mark": mark.to_string() });
            let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
            let begin = Instant::now();
            api.patch(name, &PatchParams::default(), &patch).await?;
            times.push(1000.0 * begin.elapsed().as_secs_f64());
        }
        Ok(Times::of(times))
    }

    pub async fn delete_all(&self) -> anyhow::Result<()> {
        let api: Api<SpiffeFederation> = Api::all(self.admin.clone());
        api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let begin = Instant::now();
        while self.journal.trusted() > 0 {
            ensure!(begin.elapsed() < TRUSTED_WITHIN, "not all are deleted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await?;
    Ok(())
}
