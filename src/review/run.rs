//! The controller: serves reviews, and follows its configuration.
//!
//! Every replica serves. Only the leader renews credentials and writes what people see of the clusters.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    config_file::{self, Loaded},
    generation::{Generation, Surroundings},
    metrics::{ClusterFigures, Clusters, Metrics},
    serve,
};
use crate::runtime::{
    http_listener::{self, ApiTls, CONNECTIONS},
    lock::lock,
};

/// How often files are looked at. A kubelet takes a minute to bring a change.
const FILES_EVERY: Duration = Duration::from_secs(2);

pub struct Options {
    pub config: PathBuf,
    pub listen: SocketAddr,
}

pub struct Review {
    options: Options,
    /// Until it is served with. None for `--plain-http`.
    tls: Mutex<Option<ApiTls>>,
    around: Surroundings,
    metrics: Arc<Metrics>,
    generation: watch::Sender<Arc<Generation>>,
    /// Why the file that is there now does not count.
    config_error: Mutex<Option<String>>,
    address: OnceLock<SocketAddr>,
    /// Asks the listener to let its callers go, and says that it has.
    closing: CancellationToken,
    closed: CancellationToken,
}

impl Review {
    /// Must run on the runtime that will run it.
    pub fn new(
        options: Options,
        tls: Option<ApiTls>,
        loaded: Loaded,
        around: Surroundings,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Arc<Self>> {
        let generation = Generation::start(loaded, &around, None)?;
        let review = Arc::new(Self {
            options,
            tls: Mutex::new(tls),
            around,
            metrics,
            generation: watch::Sender::new(Arc::new(generation)),
            config_error: Mutex::default(),
            address: OnceLock::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        });
        let clusters: Arc<dyn Clusters> = review.clone();
        review.metrics.show_clusters(Arc::downgrade(&clusters));
        Ok(review)
    }

    pub fn waiting_for(&self) -> Vec<String> {
        let listener = self.address.get().is_none().then(|| "the listener".to_owned());
        listener.into_iter().chain(self.generation().waiting_for()).collect()
    }

    pub fn generation(&self) -> Arc<Generation> {
        self.generation.borrow().clone()
    }

    pub fn config_error(&self) -> Option<String> {
        lock(&self.config_error).clone()
    }

    /// Where reviews are served, with the port that was chosen for port 0; none until it is bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Lets callers go; returns when the last request is answered.
    pub async fn drain(self: Arc<Self>) {
        self.closing.cancel();
        self.closed.cancelled().await;
    }

    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
        let mut parts = JoinSet::new();
        parts.spawn(self.clone().serve());
        parts.spawn(self.clone().follow_files());
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            ended = parts.join_next() => ended,
        };
        parts.shutdown().await;
        match ended {
            // A replica without one of its parts must not look healthy.
            Some(ended) => Err(ended?.err().context("a part of review ended")?),
            None => Ok(()),
        }
    }

    async fn serve(self: Arc<Self>) -> anyhow::Result<()> {
        let listen = self.options.listen;
        let bound = http_listener::bind(listen).await;
        let (listener, address) = bound.with_context(|| {
            format!("cannot listen on {listen}. Choose another address with --serve-listen")
        })?;
        // A replica binds once.
        let _ = self.address.set(address);
        tracing::info!(%address, flag = "--serve-listen", "listening");
        let this = self.clone();
        let router = serve::router(move || this.generation.borrow().service.clone());
        let (tls, stop) = (lock(&self.tls).take(), self.closing.clone());
        http_listener::serve_api(listener, tls, router, CONNECTIONS, stop).await?;
        self.closed.cancel();
        anyhow::ensure!(self.closing.is_cancelled(), "the listener ended");
        std::future::pending().await
    }

    async fn follow_files(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            sleep(FILES_EVERY).await;
            let this = self.clone();
            let error = spawn_blocking(move || this.read_files().err()).await?;
            self.metrics.set_config_valid(error.is_none());
            let before = std::mem::replace(&mut *lock(&self.config_error), error.clone());
            if let Some(error) = error.filter(|error| before.as_ref() != Some(error)) {
                tracing::error!(%error, "the new configuration is refused, the old one stays");
            }
        }
    }

    fn read_files(&self) -> Result<(), String> {
        let before = self.generation();
        before.credentials.read_files();
        let loaded = config_file::load(&self.options.config).map_err(|error| error.to_string())?;
        if before.is_of(&loaded) {
            return Ok(());
        }
        let generation = Generation::start(loaded, &self.around, Some(&before));
        let generation = generation.map_err(|error| error.to_string())?;
        tracing::info!(clusters = generation.config.clusters.len(), "configuration changed");
        self.generation.send_replace(Arc::new(generation));
        Ok(())
    }
}

impl Clusters for Review {
    fn figures(&self) -> Vec<ClusterFigures> {
        self.generation().figures()
    }
}
