//! A small version of OpenShift's router: from Routes to HAProxy's configuration and
//! `.status.ingress`. [`plan`] decides; this module reads, writes and reloads.

pub mod backend;
mod follow;
mod haproxy;
mod journal;
pub mod plan;
mod report;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use chrono::Utc;
use kube::Client;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use trustplane::runtime::redact::PrivateKeyPem;

use self::backend::Backend;
use self::follow::Change;
use self::haproxy::HaProxy;
pub use self::haproxy::program;
use self::journal::Journal;
use self::plan::{Admission, Files, Layout, Table, render, status};
use crate::{free_port, pair, scratch_folder};

/// Changes within this time share a reload.
const BETWEEN_RELOADS: Duration = Duration::from_millis(500);

/// A running router.
pub struct Router {
    address: SocketAddr,
    default_certificate: String,
    /// HAProxy ends with the task that holds it.
    tasks: JoinSet<()>,
}

impl Router {
    /// Starts HAProxy and watches the Routes of the cluster.
    pub async fn start(client: Client, backend: &Backend, logs: &Path) -> Result<Self, String> {
        let towards = Towards {
            plain: backend.plain(),
            tls: backend.tls(),
            host: backend.host().to_owned(),
            authority: backend.authority().to_owned(),
        };
        Self::towards(client, towards, logs).await
    }

    /// The same with the caller's own backend.
    pub async fn towards(client: Client, towards: Towards, logs: &Path) -> Result<Self, String> {
        let default = pair::issued("default.router.test");
        let layout = layout(towards, &default).map_err(|error| format!("the router: {error}"))?;
        let address = layout.listen;
        let haproxy =
            HaProxy::start(&layout.folder, render(&layout, []), &logs.join("haproxy.log")).await?;
        let (tell, changes) = mpsc::unbounded_channel();
        let (sender, statuses) = watch::channel(Vec::new());
        let driver = Driver {
            table: Table::default(),
            layout,
            haproxy,
            statuses: sender,
            journal: Journal::at(logs.join("router.log")),
            is_complete: false,
            last_reload: None,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(follow::run(client.clone(), tell));
        tasks.spawn(driver.run(changes));
        tasks.spawn(report::run(client, statuses));
        Ok(Self { address, default_certificate: default.certificate, tasks })
    }

    /// Address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The default certificate, in PEM.
    pub fn default_certificate(&self) -> &str {
        &self.default_certificate
    }

    /// Stops HAProxy and waits until it is gone.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The backend of all Routes.
pub struct Towards {
    /// Address for plain HTTP.
    pub plain: SocketAddr,
    /// Address for TLS.
    pub tls: SocketAddr,
    /// The name in its certificate.
    pub host: String,
    /// CA of its certificate, in PEM.
    pub authority: String,
}

fn layout(towards: Towards, default: &pair::Pair) -> std::io::Result<Layout> {
    Ok(Layout {
        // In the temporary folder, because a socket's path must be short.
        folder: scratch_folder()?,
        listen: SocketAddr::from(([127, 0, 0, 1], free_port()?)),
        plain_backend: towards.plain,
        tls_backend: towards.tls,
        backend_host: towards.host,
        backend_authority: towards.authority,
        default_pair: PrivateKeyPem::new(format!("{}{}", default.certificate, default.key)),
    })
}

struct Driver {
    table: Table,
    layout: Layout,
    haproxy: HaProxy,
    statuses: watch::Sender<Vec<Value>>,
    journal: Journal,
    /// Whether all Routes were listed at least once.
    is_complete: bool,
    last_reload: Option<Instant>,
}

impl Driver {
    async fn run(mut self, mut changes: mpsc::UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            self.take(change);
            self.take_all(&mut changes);
            // Before the first list is complete, an older Route may still come.
            if !self.is_complete {
                continue;
            }
            let mut files = self.decide();
            if self.haproxy.has(&files) {
                continue;
            }
            let since_reload = self.last_reload.map_or(BETWEEN_RELOADS, |last| last.elapsed());
            if since_reload < BETWEEN_RELOADS {
                tokio::time::sleep(BETWEEN_RELOADS - since_reload).await;
                self.take_all(&mut changes);
                files = self.decide();
            }
            self.load(files).await;
        }
    }

    fn take_all(&mut self, changes: &mut mpsc::UnboundedReceiver<Change>) {
        while let Ok(change) = changes.try_recv() {
            self.take(change);
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Applied(route) => self.table.apply(*route),
            Change::Gone(at) => self.table.remove(&at),
            Change::Listed(listed) => {
                self.table.keep_only(&listed);
                self.is_complete = true;
            }
            Change::Failed => self.journal.note("the watch of Routes broke"),
        }
    }

    /// Sends the status of every Route, and returns HAProxy's files.
    fn decide(&self) -> Files {
        let admissions = self.table.admissions();
        let now = Utc::now();
        let statuses = admissions
            .iter()
            .filter_map(|(entry, admission)| status::replacement(entry, admission, now));
        self.statuses.send_replace(statuses.collect());
        let admitted = admissions.iter().filter(|(_, it)| *it == Admission::Admitted);
        render(
            &self.layout,
            admitted.filter_map(|(entry, _)| Some((*entry, entry.offer.as_ref().ok()?))),
        )
    }

    async fn load(&mut self, files: Files) {
        let start = Instant::now();
        let loaded = self.haproxy.load(files).await;
        self.last_reload = Some(Instant::now());
        match loaded {
            Ok(()) => self.journal.note(&format!("reloaded in {} ms", start.elapsed().as_millis())),
            Err(why) => self.journal.shout(&format!(
                "HAProxy refuses the new configuration, so the old one stays for all Routes: {why}"
            )),
        }
    }
}
