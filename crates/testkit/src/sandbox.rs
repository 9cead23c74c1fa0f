//! The sandbox's API server on a loopback port, as `trustplane sandbox` serves it.

use std::path::Path;
use std::sync::OnceLock;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::{Builder, Runtime};
use trustplane::demo::{
    api_server,
    loopback::Port,
    serve::{Options, RunningApi},
};
use trustplane::runtime::clock::Clock;

use crate::suite;

/// More changes than the tests of a binary make.
const HISTORY: usize = 100_000;
/// uids and generated names are the same in every run.
const SEED: u64 = 4;

/// An API server in this process.
pub struct Sandbox {
    serving: RunningApi,
    /// Own runtime, because the first test's ends before the others are done.
    _runtime: Runtime,
}

impl Sandbox {
    /// The server that the tests of this binary share, each in its own namespace. It ends with the
    /// process.
    pub async fn get() -> &'static Self {
        static SHARED: OnceLock<Sandbox> = OnceLock::new();
        let start = || SHARED.get_or_init(Self::start);
        tokio::task::spawn_blocking(start).await.expect("the sandbox starts")
    }

    fn start() -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        // Never removed, but its token is useless once the server has ended.
        let path = suite::subfolder("sandbox").join("kubeconfig");
        let options = Options { port: Port::Exactly(0), kubeconfig: Some(&path) };
        let clock = Clock::system();
        let api = api_server::server(api_server::store(HISTORY, SEED), clock.clone());
        let serving = runtime.block_on(RunningApi::start_for_accounts(api, options, &clock));
        Self { serving: serving.expect("the sandbox is served"), _runtime: runtime }
    }

    pub fn kubeconfig(&self) -> &Path {
        self.serving.kubeconfig()
    }

    /// A client for the runtime of the calling test.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.expect("a configuration for the sandbox");
        // The proxy of the environment is not for loopback.
        config.proxy_url = None;
        Client::try_from(config).expect("a client for the sandbox")
    }
}
