//! One cluster of several that federate: an API server, our controllers, a SPIRE server and its
//! controller manager from what we rendered, and its bundle endpoint behind a Route on HAProxy,
//! found by SNI.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    Controller, Pair, eventually, free_port, pair,
    router::{Router, Towards},
    spire::{ControllerManager, Launch, Names, SpireServer},
    stage::{NAMESPACE, Stage},
    suite,
};
use trustplane::federate::decide::render::Component;

/// The shortest that there is: SPIRE and we ask four times as often.
pub const HINT: Duration = Duration::from_secs(60);

/// A cluster with a router, before there is a SpireServer in it.
pub struct Site {
    pub stage: Stage,
    pub router: Router,
    /// Where the SPIRE server will be.
    port: u16,
    serving: Pair,
}

impl Site {
    /// The SPIRE server will have a certificate that the router knows, as one of OpenShift's service
    /// CA; it uses it where its profile says so.
    pub async fn of(stage: Stage) -> Self {
        const SERVICE: &str = "spire-server.spire.svc";
        let port = free_port().expect("a free port");
        let serving = pair::issued(SERVICE);
        let address = ([127, 0, 0, 1], port).into();
        let towards = Towards {
            plain: address,
            tls: address,
            host: SERVICE.to_owned(),
            authority: serving.authority.clone(),
        };
        let logs = suite::subfolder(&format!("router-{}", suite::next_number()));
        let router =
            Router::towards(stage.admin.clone(), towards, &logs).await.expect("the router");
        Self { stage, router, port, serving }
    }

    /// Creates the SpireServer, and starts everything else. `trusted` is PEM of authorities in place
    /// of the machine's.
    pub async fn side(self, federation: Value, names: &Names, trusted: Option<&str>) -> Side {
        let mut side = self.side_without_manager(federation, names, trusted).await;
        side.start_manager().await;
        side
    }

    /// The same without the controller manager: nobody tells the SPIRE server what an administrator
    /// brought.
    pub async fn side_without_manager(
        self,
        federation: Value,
        names: &Names,
        trusted: Option<&str>,
    ) -> Side {
        let stage = &self.stage;
        let crds = ControllerManager::crds().display().to_string();
        let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
        applied.expect("SPIRE's CRDs");
        stage.create(federation).await;
        let mut environment = names.environment();
        if let Some(authorities) = trusted {
            let file = stage.cluster.scratch().join("trusted.pem");
            suite::write_private(&file, authorities);
            environment.push(("SSL_CERT_FILE".to_owned(), file.display().to_string()));
        }
        let metrics = free_port().expect("a free port");
        let metrics_url = format!("--server-metrics-url=http://127.0.0.1:{metrics}/metrics");
        // The proxy that knows the names would make a secret of what goes wrong.
        let flags = [&*metrics_url, "--peer-error-detail=all"];
        let controller = stage.controller_with(&flags, &environment).await;
        self.with_controller(controller, metrics, names, trusted).await
    }

    /// Starts the SPIRE server from what this controller rendered of the SpireServer that is there, with its
    /// metrics at this port.
    pub async fn with_controller(
        self,
        controller: Controller,
        metrics: u16,
        names: &Names,
        trusted: Option<&str>,
    ) -> Side {
        let Self { stage, router, port, serving } = self;
        stage.until_field(Component::Route, "/spec/host", json!(stage.host())).await;
        stage.until_condition("RBACAvailable", "True", "Available").await;
        names.point(&stage.host(), router.address());

        let conf = server_conf(&stage).await;
        let account = account(&stage).await;
        let launch = Launch::new(&stage.trust_domain, conf).in_cluster(&account);
        let launch = launch.through(names).serving(&serving).metrics_at(metrics);
        let launch = match trusted {
            Some(authorities) => launch.trusting(authorities),
            None => launch,
        };
        let spire = launch.federating_at(port).start().await;
        Side { stage, controller, spire, router, manager: None }
    }
}

/// One cluster with all that runs in it.
pub struct Side {
    pub stage: Stage,
    pub controller: Controller,
    pub spire: SpireServer,
    pub router: Router,
    manager: Option<ControllerManager>,
}

/// The rendered server.conf.
pub async fn server_conf(stage: &Stage) -> Value {
    config(stage, Component::ServerConfigMap, "server.conf").await
}

async fn config(stage: &Stage, part: Component, file: &str) -> Value {
    let map = stage.object(part).await;
    let text = map["data"][file].as_str().expect("a configuration");
    serde_json::from_str(text).expect("JSON")
}

/// A kubeconfig of the account that we made for the server and the controller manager.
async fn account(stage: &Stage) -> PathBuf {
    let token = stage.cluster.token_of(NAMESPACE, "spire-server").await;
    stage.cluster.kubeconfig(&stage.cluster.admin_access().with_token(token))
}

async fn manager(stage: &Stage, spire: &SpireServer, account: &Path) -> ControllerManager {
    let conf =
        config(stage, Component::ControllerManagerConfigMap, "controller-manager-config.yaml")
            .await;
    ControllerManager::start(&stage.trust_domain, conf, spire, account).await
}

impl Side {
    /// Starts the controller manager.
    pub async fn start_manager(&mut self) {
        let account = account(&self.stage).await;
        self.manager = Some(manager(&self.stage, &self.spire, &account).await);
    }

    pub async fn peer(&self, trust_domain: &str) -> Value {
        let server = self.stage.server().await;
        let peers = server["status"]["federation"]["peers"].as_array().cloned().unwrap_or_default();
        peers.into_iter().find(|it| it["trustDomain"] == trust_domain).unwrap_or_default()
    }

    pub async fn until_peer(
        &self,
        trust_domain: &str,
        what: &str,
        within: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("{} says of {trust_domain}: {what}", self.stage.trust_domain);
        eventually(within, &what, async || {
            let peer = self.peer(trust_domain).await;
            if holds(&peer) { Ok(peer) } else { Err(peer.to_string()) }
        })
        .await
    }

    pub async fn until_bundle(&self, trust_domain: &str, authorities: usize) {
        let what =
            format!("{} has {authorities} authorities of {trust_domain}", self.stage.trust_domain);
        // A server that had no bundle to know its peer by tries again after a minute.
        eventually(2 * HINT, &what, async || {
            let bundle = self.spire.bundle_of(trust_domain).await.unwrap_or_default();
            let keys = bundle["keys"].as_array().cloned().unwrap_or_default();
            let found = keys.iter().filter(|key| key["use"] == "x509-svid").count();
            if found == authorities { Ok(()) } else { Err(bundle.to_string()) }
        })
        .await;
    }
}

/// Whether there is nothing to complain about.
pub fn well(peer: &Value) -> bool {
    peer["reachable"] == true && peer["profileVerified"] == true && peer["lastError"].is_null()
}
